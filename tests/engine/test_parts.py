"""The small parts: block pool, n-gram look-up, packed linear layers, attention variants."""

import random
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import Gemma2Config, Gemma2ForCausalLM, MistralConfig, MistralForCausalLM

from engine.blocks import BlockPool
from engine.config import DrafterConfig
from engine.drafters.ngram import NgramDrafter
from engine.linear import PackedLinear
from engine.plan import SeqSlice
from engine.request import SamplingParams
from tests.engine.harness import greedy, run, texts, tiny_engine
from tests.tiny import NO_EOS, VOCAB_SIZE, reference_greedy
from tests.tiny_tokenizer import byte_level_tokenizer


@given(st.integers(1, 40), st.integers(1, 5), st.integers(0, 2**32))
def test_block_pool_against_a_plain_set(num_blocks: int, block_size: int, seed: int) -> None:
    chance = random.Random(seed)
    pool = BlockPool(num_blocks, block_size)
    owned: list[list[int]] = [[], [], []]
    for _ in range(60):
        blocks = chance.choice(owned)
        if chance.random() < 0.3:
            pool.release(blocks)
        else:
            before = list(blocks)
            wanted = (len(blocks) + chance.randrange(4)) * block_size
            fits = pool.blocks_for(wanted) - len(blocks) <= pool.num_free
            assert pool.grow(blocks, wanted) == fits
            assert blocks[: len(before)] == before
            assert len(blocks) == (pool.blocks_for(wanted) if fits else len(before))
        flat = [block for each in owned for block in each]
        assert len(flat) == len(set(flat)) == num_blocks - pool.num_free
        assert all(0 <= block < num_blocks for block in flat)


def test_a_lone_sequence_gets_consecutive_blocks() -> None:
    pool = BlockPool(10, 2)
    blocks: list[int] = []
    for tokens in range(1, 21):
        assert pool.grow(blocks, tokens)
    assert blocks == list(range(10))


def part_of(tokens: list[int], draft_len: int) -> SeqSlice:
    return SeqSlice(
        request_id="a",
        tokens=tokens,
        start=len(tokens) - 1,
        num_tokens=1,
        block_ids=[],
        draft_len=draft_len,
        draft_computed=0,
        samples=True,
        sampling=SamplingParams(),
        seed=0,
    )


@pytest.mark.parametrize(
    ("tokens", "draft_len", "draft"),
    [
        ([1, 2, 3, 9, 1, 2, 3], 2, (9, 1)),
        ([1, 2, 3, 9, 1, 2, 3], 9, (9, 1, 2, 3)),
        ([5, 1, 2, 7, 8, 1, 2, 6, 1, 2], 3, (6, 1, 2)),  # the latest occurrence
        ([4, 1, 2, 3, 7, 1, 2, 8, 1, 2, 3], 1, (7,)),  # the longest suffix first
        ([7, 7, 7, 7], 4, (7,)),  # an occurrence may overlap the suffix
        ([1, 2, 3, 4], 4, ()),
        ([1, 2], 4, ()),
        ([1], 4, ()),
        ([2**31 - 1, 256, 2**31 - 1, 256], 1, (2**31 - 1,)),
        ([1, 65536, 256, 1, 65536], 1, (256,)),
        # bytes of [256, 0] hold those of [1, 0] at an odd offset: no occurrence of the token
        ([256, 0, 0, 5, 1, 0], 3, ()),
    ],
)
def test_ngram_look_up(tokens: list[int], draft_len: int, draft: tuple[int, ...]) -> None:
    drafter = NgramDrafter(max_ngram=3, min_ngram=2)
    ((found),) = drafter.propose([part_of(tokens, draft_len)])
    assert found.token_ids == draft


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(1, 4))
def test_ngram_look_up_against_a_plain_search(tokens: list[int], length: int) -> None:
    def plain() -> tuple[int, ...]:
        for size in range(min(length, len(tokens) - 1), 0, -1):
            for start in range(len(tokens) - size - 1, -1, -1):
                if tokens[start : start + size] == tokens[-size:]:
                    return tuple(tokens[start + size : start + size + 3])
        return ()

    (found,) = NgramDrafter(max_ngram=length, min_ngram=1).propose([part_of(tokens, 3)])
    assert found.token_ids == plain()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [0, 1, 2, 7, 65])
def test_packed_linear_is_the_linear_layer(dtype: torch.dtype, bias: bool, rows: int) -> None:
    torch.manual_seed(0)
    linear = torch.nn.Linear(48, 80, bias=bias).to(dtype)
    x = torch.randn(1, rows, 48).to(dtype)
    with torch.inference_mode():
        exact = x.double() @ linear.weight.double().T + (linear.bias.double() if bias else 0)
        packed = PackedLinear(linear)(x)
    assert packed.dtype == dtype
    assert packed.shape == (1, rows, 80)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-2
    torch.testing.assert_close(packed.double(), exact, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("arch", ["mistral", "gemma2"])
def test_windows_and_softcaps(arch: str, tmp_path: Path) -> None:
    """Windows shorter than the prompt, and Gemma 2's capped scores, against transformers."""
    common = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 128,
        "initializer_range": 0.25,
        "sliding_window": 7,
        **NO_EOS,
    }
    torch.manual_seed(3)
    model = (
        MistralForCausalLM(MistralConfig(**common))
        if arch == "mistral"
        else Gemma2ForCausalLM(Gemma2Config(attn_logit_softcapping=5.0, **common))
    )
    model.save_pretrained(tmp_path)
    byte_level_tokenizer(VOCAB_SIZE).save_pretrained(tmp_path)
    model.train(False)
    prompts = {"short": [3, 4], "long": [(7 * i) % 300 + 3 for i in range(40)]}
    expected = {name: reference_greedy(model, prompt, 24) for name, prompt in prompts.items()}
    engine = tiny_engine(
        tmp_path,
        draft_len=4,
        drafter=DrafterConfig(kind="model", model=tmp_path),
        max_step_tokens=16,
    )
    outcomes = run(engine, [greedy(name, prompt, 24) for name, prompt in prompts.items()])
    assert texts(outcomes) == expected
    assert outcomes["long"].num_accepted > 12
