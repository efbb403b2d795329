"""Probes on a simulated clock: what they may cost, and that they never cease."""

import random

import pytest

from engine.probing import Prober

SHARE = 0.01
PLAIN_S = 0.02


class Steps:
    """An engine whose table says 0: it asks, steps and books."""

    own_tokens = 1
    """Of a probe."""

    def __init__(self, share: float = SHARE, probe_s: float = 0.03, noise: float = 0.0) -> None:
        self.prober = Prober()
        self.share, self.probe_s, self.noise = share, probe_s, noise
        self.chance = random.Random(3)
        self.now_s = self.spent_s = self.booked_s = 0.0
        self.probes_at: list[int] = []

    def run(self, steps: int, batch_size: int = 1) -> None:
        for step in range(steps):
            probes = self.prober.further(self.share) > 0
            self.prober.planned(has_drafts=False, is_probe=probes)
            noise = 1.0 + self.noise * self.chance.uniform(-1, 1)
            seconds = noise * (self.probe_s if probes else PLAIN_S)
            self.now_s += seconds
            if probes:
                self.booked_s += self.prober.record_probe(batch_size, 0, seconds, self.own_tokens)
                self.probes_at.append(step)
                self.spent_s += self.probe_s - PLAIN_S
            else:
                self.prober.record(batch_size, 0, seconds, batch_size)


@pytest.mark.parametrize("noise", [0.0, 0.2])
@pytest.mark.parametrize("probe_s", [0.0201, 0.021, 0.03, 0.1, 2.0])
def test_probes_stay_within_their_share_and_use_it(probe_s: float, noise: float) -> None:
    steps = Steps(probe_s=probe_s, noise=noise)
    steps.run(40_000)
    one = probe_s - PLAIN_S
    assert steps.spent_s <= 1.2 * SHARE * steps.now_s + one
    assert len(steps.probes_at) >= min(
        40_000 / 9 - 2, (0.8 if noise == 0.0 else 0.4) * SHARE * steps.now_s / one
    )


def test_what_is_booked_is_what_a_probe_takes_beyond_a_plain_step() -> None:
    steps = Steps()
    steps.run(1000)
    assert steps.booked_s == pytest.approx(steps.spent_s)


def test_cheap_probes_are_eight_steps_apart() -> None:
    steps = Steps(probe_s=PLAIN_S)
    steps.run(100)
    apart = [b - a for a, b in zip(steps.probes_at, steps.probes_at[1:], strict=False)]
    assert set(apart) == {9}


def test_none_without_a_share_or_before_any_step() -> None:
    assert Prober().further(SHARE) == 0
    steps = Steps(share=0.0)
    steps.run(10_000)
    assert steps.probes_at == []


def test_a_probe_that_took_very_long_is_not_the_last() -> None:
    steps = Steps()
    steps.run(100)
    steps.prober.record_probe(1, 0, 10.0, own_tokens=1)
    before = len(steps.probes_at)
    steps.run(40_000)
    assert len(steps.probes_at) == before, "800 s have not earned 10 s"
    steps.run(20_000)
    assert len(steps.probes_at) > before


def test_a_long_quiet_time_is_followed_by_no_burst() -> None:
    steps = Steps(probe_s=0.1)
    prober = steps.prober
    prober.further(SHARE)
    for _ in range(100_000):
        prober.planned(has_drafts=False, is_probe=False)
        prober.record(1, 0, PLAIN_S, 1)
    assert prober.further(SHARE) > 0
    steps.run(200)
    # A tenth of a second was saved at most, in probes of 80 ms beyond a plain step.
    assert 1 <= len(steps.probes_at) <= 3


def test_a_probe_that_pays_for_itself_is_free() -> None:
    """It takes half a step more, and emits a token more: as soon as may be, the next."""
    costly, free = Steps(), Steps()
    free.own_tokens = 2
    for steps in (costly, free):
        steps.run(2000)
    assert len(costly.probes_at) < 60
    assert len(free.probes_at) > 200


@pytest.mark.parametrize("own_tokens", [1, 3])
def test_what_a_probe_wins_is_reckoned_at_the_usual_pace(own_tokens: int) -> None:
    """Four sequences that usually get two tokens each in 0.08 s: a token is worth 10 ms."""
    prober = Prober()
    prober.further(SHARE)
    for _ in range(333):
        prober.record(4, 1, 0.08, 8)  # earns 0.3 % where there are drafts, 0.08 s in all
    prober.record_probe(4, 1, 0.155, own_tokens)
    for _ in range(9):
        prober.planned(has_drafts=False, is_probe=False)
    # One token too few makes it 0.085 s, one too many 0.065 s.
    assert (prober.further(SHARE) > 0) == (own_tokens == 3)


def test_batch_sizes_and_lengths_are_compared_with_their_own_steps() -> None:
    prober = Prober()
    prober.record(1, 0, 0.02, 1)
    prober.record(8, 0, 0.05, 8)
    prober.record(8, 1, 0.055, 12)
    assert prober.record_probe(8, 0, 0.06, 1) == pytest.approx(0.01)
    assert prober.record_probe(8, 1, 0.06, 1) == pytest.approx(0.005)
    assert prober.record_probe(1, 0, 0.06, 1) == pytest.approx(0.04)
    assert prober.record_probe(4, 0, 0.06, 1) == pytest.approx(0.06), "never seen: all of it"


def test_a_probe_quicker_than_a_plain_step_took_nothing_beyond_it() -> None:
    prober = Prober()
    prober.record(1, 0, 0.02, 1)
    assert prober.record_probe(1, 0, 0.01, 1) == 0.0


def test_a_probe_among_prompts_is_not_repeated_at_once() -> None:
    """Such steps are not booked, and there may be many in a row."""
    prober = Prober()
    prober.further(SHARE)
    prober.record(1, 0, 0.02, 1)
    due = []
    for step in range(30):
        is_probe = prober.further(SHARE) > 0
        prober.planned(has_drafts=False, is_probe=is_probe)
        due += [step] if is_probe else []
    assert due == [8, 17, 26]
