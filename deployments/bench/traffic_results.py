"""What turns of several arms under several kinds of traffic say: summaries, ratios, goals."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deployments.bench.answers import Answer, Slo, Summary
from deployments.bench.arms import ADAPTIVE, FIXED, OFF
from deployments.bench.arrivals import Setting
from deployments.bench.results import Goal, Spread

MOST_OVER_BEST = 1.02
LEAST_OVER_OFF_AT_LOW_LOAD = 1.15


@dataclass(frozen=True, slots=True)
class SettingResult:
    """One kind of traffic. Only segments that all arms have answered count."""

    setting: Setting
    answers: Mapping[str, Sequence[Sequence[Answer]]]
    """By arm; its segments in order."""

    @classmethod
    def of(
        cls, setting: Setting, by_arm: Mapping[str, Mapping[int, Sequence[Answer]]]
    ) -> "SettingResult | None":
        """None where no segment is complete."""
        common = sorted(set.intersection(*(set(found) for found in by_arm.values())))
        if not common:
            return None
        return cls(setting, {arm: [found[i] for i in common] for arm, found in by_arm.items()})

    @property
    def fixed_arms(self) -> list[str]:
        """Those of one draft length, off among them."""
        return [arm for arm in self.answers if arm == OFF or arm.startswith(FIXED)]

    def mean_latency(self, arm: str) -> float | None:
        """Seconds, over all whole answers."""
        return _mean_latency([answer for part in self.answers[arm] for answer in part])

    def num_failed(self, arm: str) -> int:
        """Requests without a whole answer, whose time is in no mean."""
        return sum(answer.error is not None for part in self.answers[arm] for answer in part)

    def latency_ratio(self, arm: str, other: str) -> Spread | None:
        """Of mean latencies, segment by segment; its `median` is that over all segments. None where
        they have whole answers in no segment together."""
        whole = _ratio(self.mean_latency(arm), self.mean_latency(other))
        parts = [
            ratio
            for a, b in zip(self.answers[arm], self.answers[other], strict=True)
            if (ratio := _ratio(_mean_latency(a), _mean_latency(b))) is not None
        ]
        return Spread(whole, min(parts), max(parts)) if whole is not None and parts else None

    @property
    def best_fixed(self) -> str | None:
        """The fixed arm with the least mean latency, picked after the fact. One that failed with
        requests is not it, unless all did: its slowest may be what its mean lacks."""
        known = {arm: mean for arm in self.fixed_arms if (mean := self.mean_latency(arm))}
        whole = [arm for arm in known if not self.num_failed(arm)]
        return min(whole or known, key=lambda arm: known[arm], default=None)

    def as_json(self, slo: Slo) -> dict[str, Any]:
        return {
            "name": self.setting.name,
            "digest": self.setting.digest,
            "interval_s": self.setting.interval_s,
            "cv": self.setting.cv,
            "num_segments": len(self.setting.segments),
            "arms": {
                arm: {
                    **Summary.of(parts, slo).as_json(),
                    "segments": [
                        {"mean_latency_s": _mean_latency(part), "requests": len(part)}
                        for part in parts
                    ],
                }
                for arm, parts in self.answers.items()
            },
        }


def lower_by(results: Sequence[SettingResult], arm: str, other: str) -> float | None:
    """By what share `arm`'s mean latency is below `other`'s: the geometric mean over settings."""
    ratios = [ratio.median for one in results if (ratio := one.latency_ratio(arm, other))]
    return 1.0 - statistics.geometric_mean(ratios) if ratios else None


def goals(results: Sequence[SettingResult]) -> list[Goal]:
    """As far as there are arms for them. Low load is the largest mean interval, and of several the
    least CV. No goal of a latency holds where adaptive failed with requests: its name says so."""
    results = [one for one in results if ADAPTIVE in one.answers]
    found = [
        Goal(f"{one.setting.name}: requests that adaptive failed with", "0", num_failed, False)
        for one in results
        if (num_failed := one.num_failed(ADAPTIVE))
    ]
    for one in results:
        best = one.best_fixed
        ratio = one.latency_ratio(ADAPTIVE, best) if best is not None else None
        if ratio is not None:
            found.append(
                _of_latency(
                    [one],
                    f"{one.setting.name}: adaptive over {best}, the best fixed, mean latency",
                    f"<= {MOST_OVER_BEST}",
                    ratio.median,
                    ratio.median <= MOST_OVER_BEST,
                )
            )
    for arm in results[0].fixed_arms if results else ():
        share = lower_by(results, ADAPTIVE, arm)
        if share is not None:
            name = f"all settings: adaptive below {arm}, %"
            found.append(_of_latency(results, name, "> 0", 100 * share, share > 0))
    steady = [one for one in results if one.setting.interval_s is not None and OFF in one.answers]
    if steady:
        low = max(steady, key=lambda one: (one.setting.interval_s or 0, -(one.setting.cv or 0)))
        gain = low.latency_ratio(OFF, ADAPTIVE)
        if gain is not None:
            found.append(
                _of_latency(
                    [low],
                    f"low load ({low.setting.name}): off over adaptive, mean latency",
                    f">= {LEAST_OVER_OFF_AT_LOW_LOAD}",
                    gain.median,
                    gain.median >= LEAST_OVER_OFF_AT_LOW_LOAD,
                )
            )
    return found


def _of_latency(
    results: Sequence[SettingResult], name: str, goal: str, measured: float, holds: bool
) -> Goal:
    num_failed = sum(one.num_failed(ADAPTIVE) for one in results)
    if num_failed:
        name += f" (without {num_failed} requests that adaptive failed with)"
    return Goal(name, goal, measured, holds and not num_failed)


def _mean_latency(answers: Sequence[Answer]) -> float | None:
    whole = [answer.latency_s for answer in answers if answer.error is None]
    return statistics.fmean(whole) if whole else None


def _ratio(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b else None
