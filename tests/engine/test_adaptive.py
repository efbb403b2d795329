"""The whole loop on the virtual clock: an engine counts, a board learns, a table comes back."""

from dataclasses import replace
from itertools import pairwise

import pytest

from engine.request import Request, SamplingParams
from engine.simulate import AcceptanceOf, VirtualClock, simulated_config, simulated_engine
from policy.acceptance import PRIOR_ACCEPTANCE
from policy.cost import Calibration
from policy.table import Budget, Share, SpeculationTable, fixed_rungs
from tests.engine.adaptive import MAX_DRAFT_LEN, PLAIN, Lab, fixed

EDGE = 0.58
"""Acceptance at which drafts pay for seven sequences and don't for nine."""


class Level:
    """Acceptance at all positions alike, until it is set to another."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __call__(self, request_id: str, position: int) -> float:
        return self.value


def unlike(request_id: str, position: int) -> float:
    """Every other client's drafts are hardly ever right."""
    return 0.9 if int(request_id.split("-")[0]) % 2 else 0.05


def copied(request_id: str, position: int) -> float:
    """Whether text is copied is uncertain; if so, it goes on for long."""
    return 0.6 if position == 0 else 0.97


def worth(batch_size: int, draft_len: int, acceptance: float, steeper: float = 1.0) -> float:
    """Tokens per second of a fixed length, by the formulas."""
    tokens = sum(acceptance**kept for kept in range(draft_len + 1))
    plain = PLAIN.target(batch_size, 0, 0, 0.0)
    whole = PLAIN.target(batch_size, batch_size * draft_len, 0, 0.0)
    seconds = plain + steeper * (whole - plain) + PLAIN.drafting(batch_size, draft_len)
    return batch_size * tokens / seconds


def best_length(batch_size: int, acceptance: float, steeper: float = 1.0) -> int:
    lengths = range(MAX_DRAFT_LEN + 1)
    return max(lengths, key=lambda length: worth(batch_size, length, acceptance, steeper))


def share_of_best(lab: Lab, batch_size: int, acceptance: float) -> float:
    """What the length in force is worth."""
    best = worth(batch_size, best_length(batch_size, acceptance), acceptance)
    return worth(batch_size, lab.length(batch_size), acceptance) / best


def throughput(
    policy: SpeculationTable | Calibration,
    clients: int,
    acceptance: AcceptanceOf,
    *,
    warm_up_s: float = 5.0,
    seconds: float = 10.0,
) -> float:
    """Tokens per second, on the same texts for every policy."""
    lab = Lab(policy, clients=clients, acceptance=acceptance)
    lab.run(warm_up_s)
    return lab.run(seconds)


def changes(lab: Lab, batch_size: int, after_step: int) -> int:
    """How often the length at a batch size changed."""
    return sum(
        before.draft_len(batch_size) != after.draft_len(batch_size)
        for (_, before), (step, after) in pairwise(lab.tables)
        if step > after_step
    )


@pytest.mark.parametrize("batch_size", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("acceptance", [0.05, 0.3, 0.6, 0.9])
def test_it_is_never_worse_than_the_best_fixed_length_or_than_off(
    batch_size: int, acceptance: float
) -> None:
    level = Level(acceptance)
    warm_up_s = 25.0 if batch_size == 1 else 5.0  # the fewer texts, the more they must be the same

    adaptive = throughput(PLAIN.calibration(), batch_size, level, warm_up_s=25.0)
    off = throughput(fixed(0), batch_size, level, warm_up_s=warm_up_s)
    best = best_length(batch_size, acceptance)
    best_fixed = throughput(fixed(best), batch_size, level, warm_up_s=warm_up_s) if best else off
    assert adaptive >= 0.97 * best_fixed
    assert adaptive >= 0.98 * off


@pytest.mark.parametrize(
    ("batch_size", "acceptance", "steeper"),
    [
        pytest.param(8, 0.7, 0.5, id="draft tokens cost twice what was calibrated"),
        pytest.param(8, 0.7, 2.0, id="draft tokens cost half of what was calibrated"),
        pytest.param(1, 0.9, 1.0, id="drafts are better than expected"),
        pytest.param(1, 0.05, 1.0, id="drafts are worse than expected"),
    ],
)
def test_a_wrong_prior_recovers(batch_size: int, acceptance: float, steeper: float) -> None:
    believed = PRIOR_ACCEPTANCE if steeper == 1.0 else acceptance
    best = best_length(batch_size, acceptance)
    assert best_length(batch_size, believed, steeper) != best, "not wrong"
    wrong = Lab(
        PLAIN.calibration(steeper=steeper), clients=batch_size, acceptance=Level(acceptance)
    )
    wrong.run(90.0)
    best_fixed = throughput(fixed(best), batch_size, Level(acceptance))
    assert wrong.run(10.0) >= 0.97 * best_fixed


@pytest.mark.parametrize("seed", range(3))
def test_drift_is_followed(seed: int) -> None:
    level = Level(0.2)
    lab = Lab(PLAIN.calibration(), clients=1, acceptance=level, seed=seed)
    lab.run_steps(1000)
    assert share_of_best(lab, 1, 0.2) >= 0.97
    for level.value in (0.8, 0.2, 0.8):
        assert share_of_best(lab, 1, level.value) < 0.9, "no drift"
        lab.run_steps(300)  # of them, up to 200 are those of one report
        assert share_of_best(lab, 1, level.value) >= 0.92
        lab.run_steps(200)
        assert share_of_best(lab, 1, level.value) >= 0.94


@pytest.mark.parametrize(("batch_size", "acceptance"), [(1, 0.6), (1, 0.9), (4, 0.7), (8, 0.65)])
def test_noise_does_not_flap(batch_size: int, acceptance: float) -> None:
    lab = Lab(
        PLAIN.calibration(), clients=batch_size, acceptance=Level(acceptance), noise=0.1, seed=1
    )
    lab.run_steps(5000)
    assert changes(lab, batch_size, after_step=500) <= 2
    assert share_of_best(lab, batch_size, acceptance) >= 0.95


@pytest.mark.parametrize(("batch_size", "seconds"), [(1, 20.0), (4, 30.0), (16, 120.0)])
def test_zero_is_no_trap_and_costs_next_to_nothing(batch_size: int, seconds: float) -> None:
    level = Level(0.0)
    lab = Lab(PLAIN.calibration(), clients=batch_size, acceptance=level)
    lab.run(20.0)
    assert lab.length(batch_size) == 0
    assert lab.run(10.0) >= 0.985 * throughput(fixed(0), batch_size, level)
    assert 0.0 < lab.window.probe_seconds <= 0.015 * 2.0, "of the last report's 2 s"
    level.value = 0.9
    started_s = lab.clock()
    while lab.length(batch_size) == 0:
        lab.step()
        assert lab.clock() - started_s < seconds


def test_a_short_length_is_no_trap() -> None:
    """A first token as likely as here is worth a draft of one; that those behind it are likelier is
    not known until longer drafts were tried."""
    slow_drafter = replace(PLAIN, draft=0.0038)

    def rate(policy: SpeculationTable | Calibration, warm_up_s: float = 25.0) -> float:
        lab = Lab(policy, clients=1, acceptance=copied, machine=slow_drafter)
        lab.run(warm_up_s)
        return lab.run(60.0)

    begun = Lab(slow_drafter.calibration(), clients=1, acceptance=copied, machine=slow_drafter)
    assert begun.length(1) <= 1
    by_length = {length: rate(fixed(length)) for length in (1, 4, 5, 6)}
    best = max(by_length.values())
    assert by_length[1] < 0.93 * best
    assert rate(slow_drafter.calibration()) >= 0.96 * best


def test_drafts_that_are_looked_up_need_no_probes_to_become_longer() -> None:
    """How they go on is known, and soon whether that was right: two reports are enough."""
    slow_drafter = replace(PLAIN, draft=0.0038)
    lab = Lab(
        slow_drafter.calibration(), clients=1, acceptance=copied, machine=slow_drafter, foresight=8
    )
    assert lab.length(1) <= 1
    lab.run(4.1)
    assert lab.length(1) >= 4
    stats = lab.window.positions[1]
    assert stats.asked == stats.looked_up.reached[0], "in hindsight no draft is counted twice"


@pytest.mark.parametrize(("modelled", "looked_up"), [(1, MAX_DRAFT_LEN), (MAX_DRAFT_LEN, 1)])
def test_a_probe_of_the_shorter_length_is_one_too(modelled: int, looked_up: int) -> None:
    """It is the longest draft by which a table is known; probes of the other kind cost as much."""
    shares = [Share((length,), (0.4**length,), 0.4) for length in (modelled, looked_up)]
    table = SpeculationTable(1, ((16, MAX_DRAFT_LEN),), Budget(shares[0], shares[1]))
    lab = Lab(table, clients=1, acceptance=Level(0.4), max_tokens=16_000)
    lab.run_steps(1000)
    stats = lab.engine.drain_stats()
    longer = stats.drafted_by_position[modelled] if modelled < MAX_DRAFT_LEN else stats.probes
    assert 0 < longer == stats.probes < 120


def test_a_step_without_drafts_now_and_then_tells_their_cost() -> None:
    """Only where the table learns: a fixed length stays as it is."""
    lab = Lab(PLAIN.calibration(), clients=1, acceptance=Level(0.9))
    lab.run(10.0)
    table = lab.engine.table
    for kept, least, most in ((table, 7, 8), (replace(table, budget=None), 0, 0)):
        lab = Lab(kept, clients=1, acceptance=Level(0.9), max_tokens=16_000)
        lab.run_steps(1024)
        # One computed the prompt.
        assert least <= lab.engine.drain_stats().steps_without_draft - 1 <= most


def test_around_an_edge_of_the_table_it_is_as_fast_as_the_better_fixed_length() -> None:
    """Seven to nine sequences decode, where drafts hardly pay, or hardly don't."""

    def edge(policy: SpeculationTable | Calibration) -> tuple[float, Lab]:
        lab = Lab(policy, clients=9, acceptance=Level(EDGE), max_tokens=60)
        rates = []
        for turn in range(160):
            lab.set_clients((9, 8, 7, 8)[turn % 4])
            rates.append(lab.run(0.5))
        return sum(rates[80:]), lab

    assert (best_length(7, EDGE), best_length(9, EDGE)) == (1, 0)
    adaptive, lab = edge(PLAIN.calibration())
    assert adaptive >= 0.99 * max(edge(fixed(0))[0], edge(fixed(1))[0])
    assert sum(changes(lab, size, after_step=3000) for size in (7, 8, 9)) <= 3


@pytest.mark.parametrize("clients", [2, 4])
def test_a_budget_gives_a_mixed_batch_more_than_one_length_for_all(clients: int) -> None:
    lab = Lab(PLAIN.calibration(), clients=clients, acceptance=unlike)
    lab.run(20.0)
    table = lab.engine.table
    with_budget = throughput(table, clients, unlike)
    without = throughput(replace(table, budget=None), clients, unlike)
    assert with_budget >= 1.04 * without


@pytest.mark.parametrize(("clients", "acceptance"), [(1, 0.3), (4, 0.6), (8, 0.9)])
def test_a_budget_takes_nothing_from_a_batch_that_is_alike(clients: int, acceptance: float) -> None:
    """Luck sets nobody apart."""
    lab = Lab(PLAIN.calibration(), clients=clients, acceptance=Level(acceptance))
    lab.run(30.0)
    table = lab.engine.table
    with_budget = throughput(table, clients, Level(acceptance))
    without = throughput(replace(table, budget=None), clients, Level(acceptance))
    assert with_budget >= 0.975 * without


def test_texts_depend_on_the_seed_and_on_no_policy() -> None:
    def texts(draft_len: int, seed: int = 0, max_num_seqs: int = 4) -> dict[str, list[int]]:
        engine = simulated_engine(
            simulated_config(max_num_seqs=max_num_seqs),
            VirtualClock(),
            target_seconds=PLAIN.target,
            draft_seconds=PLAIN.drafting,
            acceptance=Level(0.6),
            has_draft=0.8,
            seed=seed,
            table=SpeculationTable(1, fixed_rungs(draft_len)),
        )
        found: dict[str, list[int]] = {}
        for index in range(6):
            engine.add(Request(str(index), (1, 2, index), SamplingParams(max_tokens=50)))
        while engine.has_work:
            for delta in engine.step():
                found.setdefault(delta.request_id, []).extend(delta.token_ids)
            engine.check_integrity()
        return found

    expected = texts(0)
    assert all(len(tokens) == 50 for tokens in expected.values())
    assert texts(1) == texts(4) == texts(8, max_num_seqs=2) == expected
    assert texts(4, seed=1) != expected


def test_as_many_drafts_are_right_as_they_should_be() -> None:
    lab = Lab(fixed(3), clients=4, acceptance=Level(0.7), has_draft=0.5)
    lab.run(60.0)
    stats = lab.engine.drain_stats()
    drafts, kept = stats.drafted_by_position, stats.accepted_by_position
    assert drafts[0] / stats.rounds == pytest.approx(0.5, abs=0.02)
    assert kept[0] / drafts[0] == pytest.approx(0.7, abs=0.02)
    assert kept[2] / drafts[2] == pytest.approx(0.7**3, abs=0.02)


def test_a_clock_does_not_go_back() -> None:
    with pytest.raises(ValueError, match=r"seconds must be 0 or more, got -1\.0"):
        VirtualClock().advance(-1.0)
