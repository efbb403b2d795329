"""The parts of the benchmarks that do not measure: arithmetic, and the day without a model."""

from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.day import SECONDS_PER_STEP, simulate
from benchmarks.roofline import Machine, ModelCost, Work, model_cost
from benchmarks.scheduling import where_time_goes
from benchmarks.simulation import decoding_bench
from benchmarks.steps import BLOCK_SIZE, Cell, StepBench
from tests.tiny import load_reference, save_tiny_llama

COST = ModelCost(num_weights=100, hidden_size=4, kv_values=2, query_values=3)


@pytest.mark.parametrize(
    ("work", "seconds"),
    [(Work(50, 100), 5.0), (Work(50, 1000), 10.0)],
    ids=["bound by memory", "bound by products"],
)
def test_the_roofline_is_the_longer_of_reading_and_computing(work: Work, seconds: float) -> None:
    assert Machine(bytes_per_second=10, flops_per_second=100).seconds(work) == seconds


def test_a_step_reads_the_weights_once_and_every_context() -> None:
    one = COST.step([10, 20], num_tokens=1, itemsize=2)
    two = COST.step([10, 20], num_tokens=2, itemsize=2)

    assert one.num_bytes == 2 * (100 + 2 * 4 + (10 + 20) * 2)
    assert two.num_bytes - one.num_bytes == 2 * (2 * 4)  # two embedding rows more
    assert one.flops == 2 * 2 * 100 + 4 * (10 + 20) * 3
    assert two.flops == 2 * one.flops


@pytest.mark.parametrize("tied", [True, False])
def test_the_cost_of_a_model_counts_all_but_an_untied_input_embedding(
    tmp_path: Path, tied: bool
) -> None:
    folder = save_tiny_llama(tmp_path, tie_word_embeddings=tied)
    model = load_reference(folder)
    config = model.config
    embedding = config.vocab_size * config.hidden_size

    cost = model_cost(folder)

    num_weights = sum(weight.numel() for weight in model.parameters())
    assert cost.num_weights == num_weights - (0 if tied else embedding)
    assert cost.kv_values == (
        2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim
    )
    assert cost.query_values == (
        config.num_hidden_layers * config.num_attention_heads * config.head_dim
    )


def test_cells_that_do_not_fit_are_named_and_left_out(tmp_path: Path) -> None:
    folder = save_tiny_llama(tmp_path, max_position_embeddings=64)
    cells = [Cell(3, 50), Cell(1, 64), Cell(1, 65), Cell(2**40, 64)]

    bench = StepBench(folder, "float32", cells, compile_folder=None)

    assert bench.cells == [Cell(3, 50), Cell(1, 64)]
    assert [*bench.skipped] == [Cell(1, 65), Cell(2**40, 64)]
    assert "limit is 64" in bench.skipped[Cell(1, 65)]
    assert "GiB" in bench.skipped[Cell(2**40, 64)]
    assert Cell(3, 50).num_blocks == 3 * (50 // BLOCK_SIZE + 1)
    for cell in bench.cells:
        bench.seconds(cell)


@pytest.mark.parametrize("draft_len", [0, 4])
def test_sequences_decode_for_as_many_steps_as_are_measured(draft_len: int) -> None:
    bench = decoding_bench(num_seqs=5, draft_len=draft_len, num_prompt=20, num_steps=30)
    for _ in range(30):
        assert bench.engine.status().num_decoding == 5
        bench.step()

    window = bench.engine.drain_stats()
    assert (window.drafted_tokens > 0) == (draft_len > 0)
    assert 0 <= window.accepted_tokens <= window.drafted_tokens
    bench.engine.check_integrity()


def test_a_profile_names_functions_of_the_engine() -> None:
    lines = where_time_goes(num_seqs=4, draft_len=0)

    assert any("scheduler.py" in name for name, _ in lines)
    assert all(share >= later for (_, share), (_, later) in pairwise(lines))


def test_a_simulated_day_is_told_in_tenths_and_depends_on_its_seed_alone() -> None:
    seconds = 20.0

    first, second, other = (
        [(part.steps, part.requests, part.running) for part in simulate(seconds, seed)]
        for seed in (1, 1, 2)
    )

    assert len(first) == 10
    assert first == second != other
    # Nearly always there is work, so nearly every step of the clock is one of the engine.
    assert 0.9 * seconds / SECONDS_PER_STEP < sum(steps for steps, _, _ in first)
    assert sum(steps for steps, _, _ in first) <= seconds / SECONDS_PER_STEP + 1
    assert all(requests > 0 for _, requests, _ in first)


def test_a_simulated_day_reaches_a_steady_number_of_running_requests() -> None:
    parts = [*simulate(40.0)]

    running = [part.running / part.steps for part in parts[2:]]
    assert min(running) > 5
    assert max(running) < 100  # of 128: none waits long
