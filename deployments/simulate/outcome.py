"""What became of the requests of a run, and the figures that are drawn from that."""

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deployments.simulate.traffic import Arrival

NEVER = math.inf
PERCENTILES = (50, 95, 99)


@dataclass(frozen=True, slots=True)
class Slo:
    """What a request must keep to be counted as served well."""

    ttft_s: float
    tpot_s: float
    """From its first token to its last, for each token after the first."""
    share: float
    """Of all requests, that must keep both for the objective to hold."""


class Outcomes:
    """By a request's number, in order of arrival. `NEVER`: has not happened."""

    def __init__(self, arrivals: Sequence[Arrival]) -> None:
        self.arrivals = arrivals
        self.first_s = array("d", [NEVER]) * len(arrivals)
        self.end_s = array("d", [NEVER]) * len(arrivals)
        self.num_arrived = 0
        self.num_first = 0
        self.num_ended = 0
        self.num_refused = 0

    def first(self, number: int, at_s: float) -> None:
        assert self.first_s[number] == NEVER, f"request {number} began twice"
        self.first_s[number] = at_s
        self.num_first += 1

    def ended(self, number: int, at_s: float) -> None:
        assert self.first_s[number] <= at_s < self.end_s[number], f"request {number} ended twice"
        self.end_s[number] = at_s
        self.num_ended += 1

    @property
    def num_open(self) -> int:
        """Requests that came and have neither ended nor been refused."""
        return self.num_arrived - self.num_ended - self.num_refused

    def latencies(self) -> list[float]:
        """Seconds from arrival to end, of those that ended, in order of arrival."""
        return [
            end_s - arrival.at_s
            for arrival, end_s in zip(self.arrivals, self.end_s, strict=True)
            if end_s != NEVER
        ]

    def points(self) -> list[tuple[float, float]]:
        """(seconds of arrival, latency) of those that ended, in order of arrival."""
        return [
            (arrival.at_s, end_s - arrival.at_s)
            for arrival, end_s in zip(self.arrivals, self.end_s, strict=True)
            if end_s != NEVER
        ]

    def keeps(self, number: int, slo: Slo) -> bool:
        arrival, first_s, end_s = self.arrivals[number], self.first_s[number], self.end_s[number]
        later = max(1, arrival.new_tokens - 1)
        return first_s - arrival.at_s <= slo.ttft_s and end_s - first_s <= later * slo.tpot_s

    def attainment(self, slo: Slo) -> float:
        """Share of all that came, refused ones included, that keep the objective."""
        kept = sum(self.keeps(number, slo) for number in range(self.num_arrived))
        return kept / max(1, self.num_arrived)

    def as_json(self, slo: Slo) -> dict[str, Any]:
        ended = [number for number, end_s in enumerate(self.end_s) if end_s != NEVER]
        arrivals, first_s, end_s = self.arrivals, self.first_s, self.end_s
        kept = [number for number in ended if self.keeps(number, slo)]
        last_s = max((end_s[number] for number in ended), default=0.0)
        seconds = max(1e-9, last_s - (arrivals[0].at_s if arrivals else 0.0))
        tokens = sum(arrivals[number].new_tokens for number in ended)
        attainment = len(kept) / max(1, self.num_arrived)
        return {
            "arrived": self.num_arrived,
            "answered": self.num_ended,
            "refused": self.num_refused,
            "unanswered": self.num_open,
            "seconds": seconds,
            "new_tokens": tokens,
            "tokens_per_s": tokens / seconds,
            "latency_s": figures([end_s[n] - arrivals[n].at_s for n in ended]),
            "ttft_s": figures([first_s[n] - arrivals[n].at_s for n in ended]),
            "tpot_s": figures(
                [
                    (end_s[n] - first_s[n]) / (arrivals[n].new_tokens - 1)
                    for n in ended
                    if arrivals[n].new_tokens > 1
                ]
            ),
            "slo_attainment": attainment,
            "slo_holds": attainment >= slo.share,
            "goodput_per_s": len(kept) / seconds,
        }


def figures(values: Sequence[float]) -> dict[str, float] | None:
    """Mean and percentiles (nearest rank); None of nothing.

    >>> figures([4.0, 1.0, 2.0, 3.0])
    {'mean': 2.5, 'p50': 2.0, 'p95': 4.0, 'p99': 4.0}
    """
    if not values:
        return None
    ordered = sorted(values)
    found = {"mean": math.fsum(ordered) / len(ordered)}
    for percent in PERCENTILES:
        found[f"p{percent}"] = ordered[math.ceil(percent * len(ordered) / 100) - 1]
    return found
