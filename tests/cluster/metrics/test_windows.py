"""What steps came to: the engine's own counts, to the token."""

from collections.abc import Iterator

from cluster.metrics import definitions as defined
from cluster.metrics.windows import WindowMetrics
from policy.stats import StatsWindow
from tests.cluster.metrics.fake_instruments import FakeInstruments


def window(*rounds: tuple[int, int]) -> StatsWindow:
    """A step, in which drafts of so many tokens had so many accepted."""
    found = StatsWindow(steps=1, target_seconds=0.5, draft_seconds=0.25, verify_seconds=0.125)
    found.steps_without_draft = int(not any(drafted for drafted, _ in rounds))
    for drafted, accepted in rounds:
        found.record_rounds(drafted, accepted, accepted + 1)
    return found


def test_windows_add_up_to_what_the_engine_counted() -> None:
    windows = [window((4, 2), (4, 4), (0, 0)), window((0, 0)), window((1, 0))]
    sums, told = StatsWindow(), FakeInstruments()
    metrics = WindowMetrics(told)
    for each in windows:
        sums.merge(each)
        metrics.count(each)
    assert told.total(defined.STEPS) == 3
    assert told.total(defined.STEPS_WITHOUT_DRAFT) == 1
    assert told.total(defined.ROUNDS) == sums.rounds == 5
    assert told.total(defined.GENERATION_TOKENS) == sums.emitted_tokens == 11
    assert told.total(defined.NUM_DRAFTS) == 3
    assert told.total(defined.NUM_DRAFT_TOKENS) == sums.drafted_tokens == 9
    assert told.total(defined.NUM_ACCEPTED_TOKENS) == sums.accepted_tokens == 6
    assert told.total(defined.TARGET_SECONDS) == 1.5
    assert told.total(defined.DRAFT_SECONDS) == 0.75
    assert told.total(defined.VERIFY_SECONDS) == 0.375
    drafted = told.by_label(defined.NUM_DRAFT_TOKENS_PER_POS)
    assert drafted == {"0": 3, "1": 2, "2": 2, "3": 2}
    assert told.by_label(defined.NUM_ACCEPTED_TOKENS_PER_POS) == {"0": 2, "1": 2, "2": 1, "3": 1}


def test_probes_are_counted() -> None:
    told = FakeInstruments()
    WindowMetrics(told).count(StatsWindow(steps=7, probes=2, probe_seconds=0.5))
    assert told.total(defined.PROBES) == 2
    assert told.total(defined.PROBE_SECONDS) == 0.5


def test_whoever_drains_gets_the_windows_as_they_are() -> None:
    windows: Iterator[StatsWindow] = iter([window((2, 1)), window((2, 2))])
    told = FakeInstruments()
    drain = WindowMetrics(told).counted(lambda: next(windows))
    assert (drain().accepted_tokens, drain().accepted_tokens) == (1, 2)
    assert told.total(defined.NUM_ACCEPTED_TOKENS) == 3
