"""What became of requests, and what is told of many: latency, TTFT, TPOT, goodput."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Answer:
    """One request's. Times are seconds after its segment began."""

    due_s: float
    """When it was to be sent."""
    sent_s: float
    """When it was."""
    first_s: float | None = None
    """First token; None: there was none."""
    last_s: float | None = None
    """End of the answer; None: it has none."""
    prompt_tokens: int = 0
    new_tokens: int = 0
    error: str | None = None
    """Why there is no whole answer."""
    ended_s: float | None = None
    """When the request was over, whatever became of it; None: as it had its last token."""

    @property
    def over_s(self) -> float:
        """When nobody waited for it any more."""
        known = (self.sent_s, self.last_s, self.ended_s)
        return max(time_s for time_s in known if time_s is not None)

    @property
    def late_s(self) -> float:
        """How far the client itself was behind."""
        return self.sent_s - self.due_s

    @property
    def latency_s(self) -> float:
        """From when it was due, so that a client that is late hides nothing. Of whole ones only."""
        assert self.last_s is not None
        return self.last_s - self.due_s

    @property
    def ttft_s(self) -> float:
        """Time to the first token, from when it was due."""
        assert self.first_s is not None
        return self.first_s - self.due_s

    @property
    def tpot_s(self) -> float:
        """Time per output token after the first; 0 where there is only one."""
        assert self.first_s is not None
        assert self.last_s is not None
        return (self.last_s - self.first_s) / max(1, self.new_tokens - 1)


@dataclass(frozen=True, slots=True)
class Slo:
    """What an answer must keep to count as good. None: anything goes."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    latency_s: float | None = None

    def holds(self, answer: Answer) -> bool:
        """A request without a whole answer never does."""
        return answer.error is None and all(
            limit is None or value <= limit
            for limit, value in (
                (self.ttft_s, answer.ttft_s),
                (self.tpot_s, answer.tpot_s),
                (self.latency_s, answer.latency_s),
            )
        )

    def __str__(self) -> str:
        limits = (("TTFT", self.ttft_s), ("TPOT", self.tpot_s), ("latency", self.latency_s))
        told = [f"{name} <= {1e3 * value:g} ms" for name, value in limits if value is not None]
        return ", ".join(told) or "none"


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Of seconds. Interpolated between the nearest two."""

    mean: float
    p50: float
    p95: float
    p99: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Percentiles":
        p50, p95, p99 = (float(p) for p in np.percentile(values, (50, 95, 99)))
        return cls(statistics.fmean(values), p50, p95, p99)


@dataclass(frozen=True, slots=True)
class Summary:
    """Of one arm under one traffic."""

    requests: int
    failed: int
    errors: dict[str, int]
    """How often each was seen."""
    latency: Percentiles | None
    """Of whole answers, like the next two; None: there were none."""
    ttft: Percentiles | None
    tpot: Percentiles | None
    late: Percentiles | None
    """Of the client: how long after it was due a request was sent."""
    tokens_per_second: float
    requests_per_second: float
    good_share: float
    """Of all requests: those that kept the SLO."""
    goodput: float
    """Those, a second."""
    prompt_tokens: float
    """Mean, as the server counted."""
    new_tokens: float

    @classmethod
    def of(cls, segments: Sequence[Sequence[Answer]], slo: Slo) -> "Summary":
        """Rates are over the time from a segment's begin until its last request was over, one that
        failed included."""
        answers = [answer for segment in segments for answer in segment]
        whole = [answer for answer in answers if answer.error is None]
        seconds = sum(
            max((answer.over_s for answer in segment), default=0.0) for segment in segments
        )
        good = sum(map(slo.holds, answers))
        errors = [answer.error for answer in answers if answer.error is not None]

        def told(values: list[float]) -> Percentiles | None:
            return Percentiles.of(values) if values else None

        def per_second(amount: float) -> float:
            return amount / seconds if seconds else 0.0

        return cls(
            requests=len(answers),
            failed=len(errors),
            errors={error: errors.count(error) for error in sorted(set(errors))},
            latency=told([answer.latency_s for answer in whole]),
            ttft=told([answer.ttft_s for answer in whole]),
            tpot=told([answer.tpot_s for answer in whole if answer.new_tokens > 1]),
            late=told([answer.late_s for answer in answers]),
            tokens_per_second=per_second(sum(answer.new_tokens for answer in whole)),
            requests_per_second=per_second(len(whole)),
            good_share=good / len(answers) if answers else 0.0,
            goodput=per_second(good),
            prompt_tokens=statistics.fmean([a.prompt_tokens for a in whole] or [0]),
            new_tokens=statistics.fmean([a.new_tokens for a in whole] or [0]),
        )

    def as_json(self) -> dict[str, Any]:
        return asdict(self)
