"""From a target and prompts to a draft, whole and in pieces."""

import dataclasses
import itertools
import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from engine.build import build_engine
from engine.config import DrafterConfig, EngineConfig
from engine.distill import learning
from engine.distill.answers import Interviewer
from engine.distill.config import DistillationConfig, Interrupted
from engine.distill.distillation import distil
from engine.distill.samples import NUM_TOP, SampleStore
from engine.distill.sources import Own, own_prompt_ids, prompt_ids
from engine.errors import ConfigError
from engine.evaluate.decoding import Decoding
from engine.model import load_tokenizer
from engine.request import FinishReason, Request, TokenDelta, TokenLogprobs
from engine.vocabulary import read_vocabulary
from policy.table import SpeculationTable
from tests.engine.distill.conftest import Watching
from tests.engine.families import save
from tests.pickled import pickle_weights
from tests.tiny_tokenizer import END_OF_TURN


def acceptance(target: Path, draft: Path) -> float:
    """Of one drafted token, through the engine, on prompts that nothing was learned from."""
    engine = build_engine(
        EngineConfig(
            model=target,
            drafter=DrafterConfig(kind="model", model=draft),
            dtype="float32",
            kv_cache_bytes=2**24,
        ),
        SpeculationTable(0, ()),
    )
    tokenizer = load_tokenizer(target)
    prompts = [
        prompt_ids([f"Tell me about {i}, {i * i} and {i % 7}."], (), tokenizer)
        for i in range(60, 72)
    ]
    window = Decoding(engine).run(prompts, 1, 30).window
    return window.accepted_tokens / window.drafted_tokens


def test_a_distilled_draft_beats_an_untrained_one(
    config: DistillationConfig, tmp_path: Path
) -> None:
    watching = Watching()
    done = distil(config, watching)
    untrained = dataclasses.replace(config.training, learning_rate=0.0, epochs=1)
    plain = distil(
        dataclasses.replace(config, out=tmp_path / "plain", training=untrained), Watching()
    )
    assert done.acceptance.value > plain.acceptance.value + 0.1
    assert acceptance(config.target, done.folder) > acceptance(config.target, plain.folder) + 0.05
    assert watching.asked[-1][:2] == (64, 64)
    assert watching.steps[-1].loss < watching.steps[0].loss
    assert watching.steps[-1].progress == 1.0
    assert not (tmp_path / "draft.work").exists()


def test_the_folder_is_a_model_of_transformers(quick: DistillationConfig) -> None:
    folder = distil(quick, Watching()).folder
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    target = AutoModelForCausalLM.from_pretrained(quick.target, dtype=torch.float32)
    assert model.config.num_hidden_layers == 2
    logits = model(input_ids=torch.tensor([[5, 6, 7]])).logits
    assert logits.shape == (1, 3, 384)
    ours, theirs = model.state_dict(), target.state_dict()
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        assert torch.equal(ours[name], theirs[name])
    assert not torch.equal(
        ours["model.layers.0.mlp.up_proj.weight"], theirs["model.layers.0.mlp.up_proj.weight"]
    )
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.get_vocab() == AutoTokenizer.from_pretrained(quick.target).get_vocab()
    about = json.loads((folder / "distillation.json").read_text())
    assert about["held_out_greedy_acceptance_at_position_1"]["tried"] > 10
    assert (folder / "training.png").read_bytes().startswith(b"\x89PNG")
    vocabulary = read_vocabulary(folder)
    assert vocabulary is not None
    assert len(vocabulary) <= 320


@pytest.mark.parametrize("model_type", ["qwen2", "opt"])
def test_other_families_distil(model_type: str, quick: DistillationConfig, tmp_path: Path) -> None:
    target = tmp_path / model_type
    sizes = {"opt": {"ffn_dim": 48, "word_embed_proj_dim": 32}}
    save(
        model_type,
        target,
        {"num_hidden_layers": 3, "max_position_embeddings": 256, **sizes.get(model_type, {})},
    )
    short = dataclasses.replace(quick.training, epochs=1)
    done = distil(
        dataclasses.replace(quick, target=target, layers=(0, 2), training=short), Watching()
    )
    assert 0.0 <= acceptance(target, done.folder) <= 1.0


def test_running_text_is_learned_from_too(quick: DistillationConfig, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("The quick brown fox jumps over the lazy dog. " * 200)
    done = distil(dataclasses.replace(quick, prompts=(), texts=(text,)), Watching())
    assert done.num_labels > 500


class Scripted:
    """An engine whose answers are known beforehand, a request a step."""

    max_model_len = 256

    def __init__(self, *answers: tuple[list[int], bool]) -> None:
        """Tokens, and whether the last one is a stop token."""
        self.asked: list[Request] = []
        self._answers = list(answers)

    def add(self, request: Request) -> None:
        self.asked.append(request)

    @property
    def has_work(self) -> bool:
        return bool(self._answers)

    def step(self) -> list[TokenDelta]:
        tokens, stopped = self._answers.pop(0)
        request = self.asked[-1]
        logprobs = [
            TokenLogprobs(token, 0.0, 0, ((token, 0.0),) * NUM_TOP)
            for token in tokens
            if request.sampling.logprobs
        ]
        reason = FinishReason.STOP if stopped else FinishReason.LENGTH
        return [
            TokenDelta(
                request.request_id,
                tuple(tokens),
                reason,
                logprobs=tuple(logprobs),
                ends_with_stop_token=stopped,
            )
        ]


def test_a_target_answers_the_prompts_it_writes(deep: Path) -> None:
    tokenizer = load_tokenizer(deep)
    (end,) = tokenizer.encode(END_OF_TURN, add_special_tokens=False)
    written = tokenizer.encode("Why is the sky blue?", add_special_tokens=False)
    answer = tokenizer.encode("It is not.", add_special_tokens=False)
    engine = Scripted(([*written, end], True), ([*answer, end], True))
    interviewer = Interviewer(engine, tokenizer, max_tokens=40, width=1)  # type: ignore[arg-type]
    (sample,) = [one for some in interviewer.samples([(7, Own())]) for one in some]
    asked = prompt_ids(["Why is the sky blue?"], (), tokenizer)
    assert list(engine.asked[0].prompt_token_ids) == own_prompt_ids(tokenizer)
    assert asked[: len(engine.asked[0].prompt_token_ids)] == own_prompt_ids(tokenizer)
    assert list(engine.asked[1].prompt_token_ids) == asked
    assert sample.source == 7
    assert sample.tokens.tolist() == [*asked, *answer, end]
    assert sample.start == len(asked)


def test_what_has_no_end_is_no_users_turn(deep: Path) -> None:
    engine = Scripted(([20, 21, 22], False), ([], True))
    interviewer = Interviewer(engine, load_tokenizer(deep), max_tokens=40, width=1)  # type: ignore[arg-type]
    assert not [one for some in interviewer.samples([(0, Own()), (1, Own())]) for one in some]
    assert len(engine.asked) == 2


def test_own_prompts_that_come_to_nothing_are_too_few(quick: DistillationConfig) -> None:
    """This target never says the token that ends a user's turn."""
    with pytest.raises(ConfigError, match="0 of 24 prompts were answered, too few to learn from"):
        distil(dataclasses.replace(quick, prompts=(), own_prompts=24), Watching())


def test_a_target_without_chat_template_writes_texts(
    quick: DistillationConfig, tmp_path: Path
) -> None:
    target = tmp_path / "plain"
    shutil.copytree(quick.target, target)
    (target / "chat_template.jinja").unlink(missing_ok=True)
    tokenizer = json.loads((target / "tokenizer_config.json").read_text())
    tokenizer.pop("chat_template", None)
    (target / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    done = distil(dataclasses.replace(quick, target=target, prompts=(), own_prompts=24), Watching())
    assert done.num_labels > 200


def test_an_interrupted_distillation_ends_as_a_whole_one(
    quick: DistillationConfig, tmp_path: Path
) -> None:
    whole = distil(dataclasses.replace(quick, out=tmp_path / "whole"), Watching())
    steps = []
    for watching in (
        Watching(stop_asking_at=20),
        Watching(stop_asking_at=20),  # at once: more than that is known already
        Watching(stop_training_at=1),
        Watching(stop_training_at=2),
    ):
        with pytest.raises(Interrupted):
            distil(quick, watching)
        assert not quick.out.exists()
        steps += watching.steps
    last = Watching()
    pieces = distil(quick, last)
    numbers = [step.number for step in (*steps, *last.steps)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert pieces.num_labels == whole.num_labels
    ours, theirs = (
        AutoModelForCausalLM.from_pretrained(one.folder).state_dict() for one in (pieces, whole)
    )
    for name, tensor in ours.items():
        # Other batches round the target's probabilities otherwise; nothing else differs.
        assert torch.allclose(tensor, theirs[name], atol=2e-3), name


def test_training_goes_on_exactly_where_it_stopped(
    quick: DistillationConfig, tmp_path: Path
) -> None:
    other = dataclasses.replace(quick, out=tmp_path / "other")
    with pytest.raises(Interrupted):
        distil(quick, Watching(stop_training_at=1))
    shutil.copytree(tmp_path / "draft.work", tmp_path / "other.work")
    with pytest.raises(Interrupted):
        distil(quick, Watching(stop_training_at=1))
    (one, two) = (distil(each, Watching()).folder for each in (quick, other))
    first, second = (AutoModelForCausalLM.from_pretrained(path).state_dict() for path in (one, two))
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name


def test_an_end_of_time_is_an_end(
    quick: DistillationConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = itertools.count()
    monkeypatch.setattr("engine.distill.asking.time.monotonic", lambda: float(next(seconds)))
    watching = Watching()
    # Half of what the clock takes for seconds is for asking, one a step.
    done = distil(dataclasses.replace(quick, width=2, minutes=470 / 60), watching)
    assert done.folder.is_dir()
    assert 2 < watching.asked[-1][0] < 24
    with pytest.raises(ConfigError, match=r"\d+ of 24 prompts were answered in .* --minutes 0\.01"):
        distil(
            dataclasses.replace(quick, out=quick.out.with_name("late"), minutes=0.01), Watching()
        )


def test_a_folder_that_exists_is_left_alone(quick: DistillationConfig) -> None:
    quick.out.mkdir()
    with pytest.raises(ConfigError, match=r"--out .*draft: exists already"):
        distil(quick, Watching())
    assert list(quick.out.iterdir()) == []
    with pytest.raises(ConfigError, match=r"there is no folder .*nowhere"):
        distil(dataclasses.replace(quick, out=quick.out.parent / "nowhere" / "draft"), Watching())


def test_what_is_there_of_another_distillation_is_not_gone_on_with(
    quick: DistillationConfig,
) -> None:
    with pytest.raises(Interrupted):
        distil(quick, Watching(stop_asking_at=4))
    with pytest.raises(ConfigError, match=r"another distillation, whose vocabulary was 320"):
        distil(dataclasses.replace(quick, vocabulary=100), Watching())


def test_a_full_disk_leaves_nothing_half_written(
    quick: DistillationConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(SampleStore, "append", full)
        with pytest.raises(OSError, match="No space left"):
            distil(quick, Watching())
    with monkeypatch.context() as patched:
        patched.setattr("engine.distill.folder.shutil.copyfile", full)
        with pytest.raises(OSError, match="No space left"):
            distil(quick, Watching())
    assert sorted(path.name for path in quick.out.parent.iterdir()) == ["draft.work", "few.jsonl"]
    assert distil(quick, Watching()).folder.is_dir()


def test_two_processes_do_not_share_a_folder(quick: DistillationConfig) -> None:
    class Second(Watching):
        refused = ""

        def asking(self, done: int, total: int, num_labels: int) -> None:
            super().asking(done, total, num_labels)
            if not self.refused:
                with pytest.raises(ConfigError) as refused:
                    distil(quick, Watching())
                self.refused = str(refused.value)

    watching = Second()
    distil(quick, watching)
    assert "another process is at work" in watching.refused


def test_a_target_that_does_not_fit_is_refused_before_it_is_loaded(
    quick: DistillationConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.memory.available_bytes", lambda _: 1000)
    with pytest.raises(ConfigError, match=r"its weights take .* GiB, and 0\.0 GiB are free"):
        distil(quick, Watching())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompts": ()}, "--prompts or --text must name at least one file"),
        ({"vocabulary": 1}, "--vocabulary must be at least 2, got 1"),
        ({"minutes": 0.0}, "--minutes must be above 0"),
        ({"layers": 0}, "--layers must be at least 1, got 0"),
    ],
)
def test_bad_values_are_named(
    changes: dict[str, object], message: str, quick: DistillationConfig
) -> None:
    with pytest.raises(ConfigError, match=message):
        dataclasses.replace(quick, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (9, "--layers must be at most 4"),
        ((0, 4), "--layers must be different ones from 0 to 3"),
        ((1, 1), "--layers must be different ones from 0 to 3"),
    ],
)
def test_layers_must_be_the_targets(
    layers: int | tuple[int, ...], message: str, quick: DistillationConfig
) -> None:
    with pytest.raises(ConfigError, match=message):
        learning._cut(dataclasses.replace(quick, layers=layers))


def test_a_targets_pickled_weights_are_refused_unread(
    quick: DistillationConfig, tmp_path: Path
) -> None:
    folder, trace = tmp_path / "target", tmp_path / "trace"
    shutil.copytree(quick.target, folder)
    pickle_weights(folder, trace)
    with pytest.raises(ConfigError, match=r"pytorch_model\.bin holds pickled weights"):
        learning._cut(dataclasses.replace(quick, target=folder))
    assert not trace.exists()


def test_a_targets_own_code_is_not_run(quick: DistillationConfig, tmp_path: Path) -> None:
    folder, trace = tmp_path / "target", tmp_path / "trace"
    shutil.copytree(quick.target, folder)
    told = json.loads((folder / "config.json").read_text())
    told["model_type"] = "of_its_own"
    told["auto_map"] = {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}
    (folder / "config.json").write_text(json.dumps(told))
    (folder / "own.py").write_text(f"import pathlib; pathlib.Path({str(trace)!r}).touch()")
    with pytest.raises(ConfigError, match="contains custom code"):
        learning._cut(dataclasses.replace(quick, target=folder))
    assert not trace.exists()
