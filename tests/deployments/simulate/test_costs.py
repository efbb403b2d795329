"""Seconds of passes: against figures reckoned by hand, and against the policy's own cost model."""

import json
from pathlib import Path

import pytest

from deployments.simulate.costs import BLOCK_SIZE, MeasuredCosts, profile_of
from deployments.simulate.hardware import A100, MACHINES, MODELS, Assumptions
from deployments.simulate.roofline import Passes, RooflineCosts
from engine.errors import ConfigError
from policy.cost import CostModel
from tests.engine.adaptive import PLAIN

PLAINLY = Assumptions(
    bandwidth_share=1.0, flops_share=1.0, link_share=1.0, layer_s=0.0, all_reduce_s=0.0, step_s=0.0
)


def test_weights_are_those_of_the_models() -> None:
    # Without the input embedding, 131 M, Llama-2-7B's 6.74 G are 6.61 G.
    assert MODELS["llama-2-7b"].num_weights == pytest.approx(6.607e9, rel=1e-3)
    assert MODELS["llama-3-70b"].num_weights == pytest.approx(69.5e9, rel=1e-3)
    assert MODELS["llama-160m"].num_weights == pytest.approx(137.8e6, rel=2e-3)
    # 2 (keys, values) x 32 layers x 32 heads x 128 x 2 bytes: half a MiB a token.
    assert MODELS["llama-2-7b"].kv_bytes_per_token == 524_288
    assert MODELS["llama-3-70b"].kv_bytes_per_token == 327_680


def test_memory_holds_the_embedding_too_unless_it_is_the_head() -> None:
    for name, parameters in (
        ("llama-2-7b", 6.738e9),
        ("llama-3-70b", 70.55e9),
        ("llama-160m", 162.4e6),
        ("llama-3-1b", 1.2358e9),
        ("llama-3-8b", 8.03e9),
    ):
        assert MODELS[name].memory_bytes == pytest.approx(2 * parameters, rel=1e-3)


@pytest.mark.parametrize("cost", MACHINES)
def test_the_gpu_with_the_draft_is_full_to_the_brim(cost: str) -> None:
    machine, profile = MACHINES[cost], profile_of(cost)
    target, draft, parts = machine.target, machine.draft, machine.num_gpus
    tokens = profile.num_blocks * BLOCK_SIZE

    def held(num_tokens: int) -> float:
        shared = target.memory_bytes + num_tokens * target.kv_bytes_per_token
        return shared / parts + draft.memory_bytes + num_tokens * draft.kv_bytes_per_token

    assert held(tokens) <= 0.9 * 80e9 < held(tokens + BLOCK_SIZE)


def test_one_sequence_takes_as_long_as_reading_the_weights() -> None:
    passes = Passes(MODELS["llama-2-7b"], A100, 1, PLAINLY)
    assert passes.seconds(1, 0.0, 0.0) == pytest.approx(13.214e9 / 2039e9, rel=1e-3)  # 6.5 ms
    # A thousand tokens of context more are 524 MB.
    more = passes.seconds(1, 1000.0, 1000.0) - passes.seconds(1, 0.0, 0.0)
    assert more == pytest.approx(524.288e6 / 2039e9)


def test_many_tokens_take_as_long_as_their_arithmetic() -> None:
    passes = Passes(MODELS["llama-2-7b"], A100, 1, PLAINLY)
    # 2 x 6.607 G for each of 2048 tokens at 312 T a second: 86.7 ms.
    assert passes.seconds(2048, 0.0, 0.0) == pytest.approx(0.08674, rel=1e-3)


def test_four_gpus_share_the_work_and_reduce_what_comes_of_it() -> None:
    machine = MACHINES["h100-70b-tp4"]
    alone = Passes(machine.target, machine.gpu, 1, PLAINLY).seconds(1, 0.0, 0.0)
    assert alone == pytest.approx(139e9 / 3350e9, rel=1e-3)  # 41.5 ms
    # 160 times 2 x 3/4 x 8192 values of 2 bytes for a token at 450 GB/s: 8.7 us.
    together = Passes(machine.target, machine.gpu, 4, PLAINLY).seconds(1, 0.0, 0.0)
    assert together - alone / 4 == pytest.approx(160 * 1.5 * 16384 / 450e9, rel=1e-6)


def test_what_is_assumed_is_in_the_figures() -> None:
    machine = MACHINES["h100-70b-tp4"]
    costs = RooflineCosts(machine, machine.draft, Assumptions())
    reading = machine.target.weight_bytes / (4 * 3350e9 * 0.8)
    fixed = 80 * 15e-6 + 160 * 10e-6 + 1e-3
    reduced = 160 * 1.5 * 16384 / (450e9 * 0.7)
    assert costs.target_seconds(1, 0, 0, 0.0) == pytest.approx(reading + fixed + reduced)


def test_drafts_take_a_pass_for_each_token_and_catch_up_in_the_first() -> None:
    machine = MACHINES["a100-7b"]
    costs = RooflineCosts(machine, machine.draft, PLAINLY)
    one = costs.draft_seconds(1, 1, 0, 0)
    assert one == pytest.approx(2 * 137.8e6 / 2039e9, rel=2e-3)
    assert costs.draft_seconds(1, 4, 0, 0) == pytest.approx(4 * one)
    assert costs.draft_seconds(1, 1, 4000, 0) > 5 * one


@pytest.mark.parametrize("cost", MACHINES)
def test_no_pass_is_quicker_than_the_least(cost: str) -> None:
    costs = profile_of(cost).costs
    for size in (1, 3, 20, 64):
        least = costs.least_seconds(size)
        for drafted, prompt, context, more in ((0, 0, 1.0, 0), (9, 0, 900.0, 2), (0, 600, 0.0, 1)):
            assert costs.target_seconds(size + more, drafted, prompt, context) >= least


def test_measured_costs_are_those_of_the_policys_model() -> None:
    calibration = PLAIN.calibration()
    costs, model = MeasuredCosts(calibration), CostModel(calibration)
    for size, drafted, context in ((1, 0, 64.0), (3, 7, 200.0), (16, 128, 512.0), (20, 5, 5000.0)):
        assert costs.target_seconds(size, drafted, 0, context) == pytest.approx(
            model.target_seconds(size, drafted, context)
        )
    assert costs.draft_seconds(4, 3, 0, 400) == pytest.approx(model.draft_seconds(4, 3, 100.0))
    alone = costs.target_seconds(0, 0, 101, 64.0)
    assert alone == pytest.approx(PLAIN.target(1, 0, 0, 64.0) + 100 * PLAIN.per_token)


def test_prompts_that_were_measured_take_what_they_took() -> None:
    calibration = PLAIN.calibration()
    costs = MeasuredCosts(calibration, {11: 0.015, 101: 0.042})
    assert costs.target_seconds(0, 0, 11, 64.0) == pytest.approx(0.015)
    assert costs.target_seconds(0, 0, 56, 64.0) == pytest.approx(0.0285)
    # Beside three sequences that decode they are tokens 4 to 13: eight of those that take
    # 0.5 ms each, as the first ten after the first, and two of those that take 0.3 ms.
    beside = costs.target_seconds(3, 0, 10, 64.0) - costs.target_seconds(3, 0, 0, 64.0)
    assert beside == pytest.approx(8 * 0.0005 + 2 * 0.0003)


def test_a_calibration_is_read_as_it_is_kept_and_as_it_is_told(tmp_path: Path) -> None:
    told = PLAIN.calibration().as_json()
    for name, about in (("about", "about"), ("kind", "kind")):
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps({about: {"cpu": "a"}, "calibration": told}))
        profile = profile_of(str(file))
        assert profile.calibration == PLAIN.calibration()
        assert profile.about["measured"] == {"cpu": "a"}
        assert profile.max_num_seqs == 16


@pytest.mark.parametrize(
    ("cost", "draft", "said"),
    [
        pytest.param("b200", None, "--cost must be a100-7b", id="unknown"),
        pytest.param("a100-7b", "gpt", "--draft must be one of", id="draft"),
        pytest.param("{}", None, "it has no calibration", id="empty"),
        pytest.param("[", None, "not a calibration", id="no JSON"),
        pytest.param('{"calibration": {"cells": []}}', None, "no draft_len", id="no cells"),
    ],
)
def test_what_cannot_be_is_refused(cost: str, draft: str | None, said: str, tmp_path: Path) -> None:
    if not cost[0].isalnum():
        file = tmp_path / "measured.json"
        file.write_text(cost)
        cost = str(file)
    with pytest.raises(ConfigError, match=said):
        profile_of(cost, draft=draft)
