"""Probes on a simulated clock: what they may cost, and that they never cease."""

import random

import pytest

from engine.probing import Prober

SHARE = 0.01
PLAIN_S = 0.02


class Steps:
    """An engine whose table says 0: it asks, steps and books."""

    def __init__(self, share: float = SHARE, probe_s: float = 0.03, noise: float = 0.0) -> None:
        self.prober = Prober()
        self.share, self.probe_s, self.noise = share, probe_s, noise
        self.chance = random.Random(3)
        self.now_s = self.spent_s = self.booked_s = 0.0
        self.probes_at: list[int] = []

    def run(self, steps: int, batch_size: int = 1) -> None:
        for step in range(steps):
            probes = self.prober.draft_len(self.share) > 0
            noise = 1.0 + self.noise * self.chance.uniform(-1, 1)
            seconds = noise * (self.probe_s if probes else PLAIN_S)
            self.now_s += seconds
            self.booked_s += self.prober.record(batch_size, seconds, probes)
            if probes:
                self.probes_at.append(step)
                self.spent_s += self.probe_s - PLAIN_S


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
    assert Prober().draft_len(SHARE) == 0
    steps = Steps(share=0.0)
    steps.run(10_000)
    assert steps.probes_at == []


def test_a_probe_that_took_very_long_is_not_the_last() -> None:
    steps = Steps()
    steps.run(100)
    steps.prober.record(1, 10.0, is_probe=True)
    before = len(steps.probes_at)
    steps.run(40_000)
    assert len(steps.probes_at) == before, "800 s have not earned 10 s"
    steps.run(20_000)
    assert len(steps.probes_at) > before


def test_a_long_quiet_time_is_followed_by_no_burst() -> None:
    steps = Steps(probe_s=0.1)
    prober = steps.prober
    prober.draft_len(SHARE)
    for _ in range(100_000):
        prober.record(1, PLAIN_S, is_probe=False)
    assert prober.draft_len(SHARE) > 0
    steps.run(200)
    # A quarter of a second was saved at most, in probes of 80 ms beyond a plain step.
    assert 1 <= len(steps.probes_at) <= 5


def test_batch_sizes_are_compared_with_their_own_steps() -> None:
    prober = Prober()
    prober.record(1, 0.02, is_probe=False)
    prober.record(8, 0.05, is_probe=False)
    assert prober.record(8, 0.06, is_probe=True) == pytest.approx(0.01)
    assert prober.record(1, 0.06, is_probe=True) == pytest.approx(0.04)
    assert prober.record(4, 0.06, is_probe=True) == pytest.approx(0.06), "never seen: all of it"


def test_a_probe_quicker_than_a_plain_step_earns_nothing() -> None:
    prober = Prober()
    prober.record(1, 0.02, is_probe=False)
    assert prober.record(1, 0.01, is_probe=True) == 0.0
