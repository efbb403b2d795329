"""Compiled forwards against the models' own."""

import logging
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from engine.attention import Span
from engine.build import build_engine
from engine.config import DrafterConfig, EngineConfig
from engine.core import Engine
from engine.kernels import compiled
from engine.kernels.compiled import compiled_forward
from engine.kernels.native import NativeBatch
from engine.kernels.panels import PanelProduct
from engine.kv_cache import KVCache
from engine.model import load_model
from engine.probe import probe
from engine.request import Request, SamplingParams
from engine.runner import EagerForward, Forward
from policy.table import SpeculationTable, fixed_rungs
from tests.engine.tiny_models import ascii_tokenizer

CPU = torch.device("cpu")
VOCAB = 104
TRIES = 20
"""Of something that nearly always succeeds at once."""
MANY = 500
"""Turns of another thread; some tens fit in where a library lets go for a moment."""
FAMILIES = {
    "llama": {},
    # Two windows, softcaps, norms of its own, scaled embeddings.
    "gemma2": {"sliding_window": 5, "query_pre_attn_scalar": 8},
}


def save(folder: Path, family: str, seed: int, **overrides: object) -> Path:
    config = AutoConfig.for_model(
        family,
        **{
            "vocab_size": VOCAB,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "initializer_range": 0.25,
            "max_position_embeddings": 128,
            "eos_token_id": 1,
            **FAMILIES[family],
            **overrides,
        },
    )
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)  # type: ignore[no-untyped-call]
    model.save_pretrained(folder)
    ascii_tokenizer().save_pretrained(folder)
    return folder


@pytest.mark.usefixtures("operators")
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_compiled_forward_is_the_model_s_own_with_whatever_weights(
    family: str, tmp_path: Path, compile_folder: Path
) -> None:
    told: list[str] = []
    pairs = []
    for seed in (1, 2):
        model = load_model(
            save(tmp_path / str(seed), family, seed), torch.float16, CPU, product_of=PanelProduct
        )
        shapes = probe(model, torch.float32, CPU)
        built = compiled_forward(model, compile_folder, told.append)
        assert built is not None
        pairs.append((built, EagerForward(model), shapes))
    assert len(told) <= 1  # the second has its own weights, and the first one's code
    torch.manual_seed(0)
    for spans in (
        [Span(0, 1, [2])],
        [Span(9, 1, [0, 1, 2]), Span(3, 5, [3, 5]), Span(0, 20, [6, 7, 8, 9, 10])],
    ):
        total = sum(span.num_tokens for span in spans)
        ids = torch.randint(VOCAB, (1, total))
        positions = torch.tensor([[p for s in spans for p in range(s.start, s.end)]])
        for rows in (torch.arange(total), torch.tensor([], dtype=torch.long)):
            logits = []
            for ours, own, shapes in pairs:
                forwards: tuple[Forward, ...] = (ours, own)
                for forward in forwards:
                    cache = KVCache(shapes, 12, 4, torch.float32, CPU)
                    batch = NativeBatch.build(cache, spans, CPU)
                    with torch.inference_mode():
                        logits.append(forward(ids, positions, rows, batch))
            assert logits[0].shape == (len(rows), VOCAB)
            for compiled_logits, own_logits in (logits[:2], logits[2:]):
                torch.testing.assert_close(compiled_logits, own_logits, rtol=1e-4, atol=1e-4)
            if len(rows):
                assert (logits[0] - logits[2]).abs().max() > 0.1


@pytest.mark.usefixtures("operators")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_logits_are_the_same_bits_in_any_chunk_beside_any_other(
    family: str, dtype: torch.dtype, tmp_path: Path, compile_folder: Path
) -> None:
    """A prompt at once, in chunks, as verified drafts, token by token; alone and in company."""
    model = load_model(save(tmp_path, family, 1), dtype, CPU, product_of=PanelProduct)
    shapes = probe(model, torch.float32, CPU)
    forward = compiled_forward(model, compile_folder, print)
    assert forward is not None
    torch.manual_seed(0)
    total, size = 120, 16
    tokens, others = torch.randint(VOCAB, (2, total))
    blocks = -(-total // size)
    own, other = list(range(blocks)), list(range(blocks, 2 * blocks))

    def logits(chunks: list[int], company: int) -> torch.Tensor:
        """Of `tokens`; in each forward so many of `others` come first, from where they were."""
        cache = KVCache(shapes, 2 * blocks, size, torch.float32, CPU)
        found, start, met = [], 0, 0
        for chunk in chunks:
            spans = [Span(met, company, other)] if company else []
            spans.append(Span(start, chunk, own))
            ids = torch.cat([others[met : met + company], tokens[start : start + chunk]])
            positions = torch.cat([torch.arange(span.start, span.end) for span in spans])
            rows = torch.arange(company, company + chunk)
            with torch.inference_mode():
                batch = NativeBatch.build(cache, spans, CPU)
                found.append(forward(ids[None], positions[None], rows, batch))
            start, met = start + chunk, met + company
        return torch.cat(found)

    at_once = logits([total], 0)
    assert torch.equal(logits([1] * total, 0), at_once)
    assert torch.equal(logits([5] * (total // 5), 4), at_once)
    assert torch.equal(logits([70, 1, 2, 3, 9, 16, 17, 2], 15), at_once)


@pytest.fixture
def no_switches() -> Iterator[None]:
    """A thread runs until it lets go by itself."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("operators", "no_switches")
def test_other_threads_run_while_a_compiled_forward_does(
    tmp_path: Path, compile_folder: Path
) -> None:
    """Event loops among them, which would stand still for most of the time."""
    model = load_model(save(tmp_path, "llama", 1), torch.float16, CPU, product_of=PanelProduct)
    shapes = probe(model, torch.float32, CPU)
    forward = compiled_forward(model, compile_folder, print)
    assert forward is not None
    tokens = 4000  # as many as take some tenths of a second
    cache = KVCache(shapes, 1000, 4, torch.float32, CPU)
    batch = NativeBatch.build(cache, [Span(0, tokens, list(range(1000)))], CPU)
    ids, rows = torch.zeros(1, tokens, dtype=torch.long), torch.arange(tokens)
    count, is_over = 0, False

    def other() -> None:
        nonlocal count
        while not is_over:
            count += 1
            time.sleep(0)  # lets go

    def calls_meanwhile() -> int:
        # The library alone: operators around it let go, too.
        with batch.attending():
            before = count
            forward._library.run([ids, rows[None], rows])
            return count - before

    thread = threading.Thread(target=other)
    thread.start()
    try:
        with torch.inference_mode():
            assert any(calls_meanwhile() > MANY for _ in range(TRIES))
    finally:
        is_over = True
        thread.join()


def texts(engine: Engine, draft_len: int, together: int = 5) -> dict[str, list[int]]:
    """Of five requests, so many at once."""
    engine.set_table(SpeculationTable(engine.table.version + 1, fixed_rungs(draft_len)))
    found: dict[str, list[int]] = {}
    for index in range(5):
        prompt = tuple((7 * index + 3 * i * i) % 90 + 4 for i in range(3 + 9 * index))
        sampling = SamplingParams(
            max_tokens=24, temperature=float(index % 2), seed=index, ignore_eos=True
        )
        engine.add(Request(str(index), prompt, sampling))
        found[str(index)] = []
        while engine.has_work and (index == 4 or (index + 1) % together == 0):
            for delta in engine.step():
                found[delta.request_id] += delta.token_ids
    return found


@pytest.mark.usefixtures("operators")
def test_a_compiled_engine_gives_the_same_texts_in_bf16_too(
    tmp_path: Path, compile_folder: Path
) -> None:
    """Greedy and sampled, alone and together; later on prompts come from the prefix cache."""
    folder = save(tmp_path / "model", "llama", 3)
    config = EngineConfig(
        folder,
        DrafterConfig(min_ngram=1),
        dtype="bfloat16",
        num_blocks=64,
        compile_folder=compile_folder,
    )
    engine = build_engine(config, SpeculationTable(0, ()))
    plain = texts(engine, 0)
    for draft_len in (0, 3, 8):
        for together in (1, 5):
            assert texts(engine, draft_len, together) == plain


@pytest.mark.usefixtures("operators")
def test_a_compiled_engine_gives_the_same_texts_at_any_length(
    tmp_path: Path, compile_folder: Path
) -> None:
    folder = save(tmp_path / "model", "llama", 3)
    engines = [
        build_engine(
            EngineConfig(
                folder,
                DrafterConfig(min_ngram=1),
                dtype="float32",
                num_blocks=64,
                compile_folder=place,
            ),
            SpeculationTable(0, ()),
        )
        for place in (None, compile_folder)
    ]
    plain = texts(engines[0], 0)
    for draft_len in (0, 3, 8):
        assert texts(engines[1], draft_len) == plain


@pytest.mark.usefixtures("operators")
def test_a_broken_package_is_made_anew(
    tmp_path: Path,
    compile_folder: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = load_model(
        save(tmp_path / "model", "llama", 1), torch.bfloat16, CPU, product_of=PanelProduct
    )
    assert compiled_forward(model, compile_folder, print) is not None
    broken = tmp_path / "broken"
    broken.mkdir()
    for path in compile_folder.glob("forward-*.pt2"):
        (broken / path.name).write_bytes(path.read_bytes()[:1000])

    def compile_again(_model: torch.nn.Module, package: Path) -> None:
        shutil.copy(compile_folder / package.name, package)

    monkeypatch.setattr(compiled, "_compile", compile_again)
    told: list[str] = []
    with caplog.at_level(logging.WARNING):
        assert compiled_forward(model, broken, told.append) is not None
    assert len(told) == 1
    assert "made anew" in caplog.text


def test_what_cannot_be_compiled_is_said_and_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = load_model(
        save(tmp_path / "model", "llama", 1), torch.bfloat16, CPU, product_of=PanelProduct
    )
    folder = tmp_path / "file"
    folder.write_text("")
    with caplog.at_level(logging.WARNING):
        assert compiled_forward(model, folder, print) is None
    assert "not compiled" in caplog.text
