"""How often each point is measured, in what order, and where the answer is clear already.

Nothing here knows an engine: points are measured by a function, time is told by another.
"""

import time
from collections.abc import Callable

from engine.calibrate.grid import Grid
from engine.calibrate.samples import LEAST_REPEATS, Point, Samples, Seconds
from engine.errors import PacelineError
from policy.cost import Calibration, CostCell

MOST_REPEATS = 7
DISTURBED = 1.25
"""A point that costs so many times what a point costs that computes more was measured while
something else had the machine."""
MOST_REPAIRS = 3
_EXTRA_SHARE = 0.25
"""Of the time there is, for all that is measured more often than `LEAST_REPEATS`."""
_REPAIR_SHARE = 0.15
"""Of the time there is, for what is measured again after each part of the grid."""


class CalibrationStopped(PacelineError):
    """The caller wanted an end; nothing was measured that could be used."""


Measure = Callable[[Point], Seconds]
Report = Callable[[int, int, str], None]
"""(work done, all of it, what comes now); all of it shrinks as points prove needless."""


class _TimeIsUp(Exception):
    pass


class Survey:
    """Measures a grid within a time.

    First lengths 0 and 1 at every batch size, so that whatever ends the time leaves something for
    each; then the other lengths; then the further contexts. At a batch size lengths take turns, so
    that a noisy moment meets all of them, and what seems to cost more than a larger step does is
    measured again. Left out is what can't win:

    - Lengths above two in a row that cost more for a token than length 0 even if every draft token
      were kept. Cost is convex in the length from there on, as the target computes more tokens than
      it has idle arithmetic for.
    - Lengths above 1 at batch sizes above two in a row at which length 1 does.
    """

    def __init__(
        self,
        grid: Grid,
        measure: Measure,
        *,
        max_seconds: float,
        report: Report,
        stopped: Callable[[], bool],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._grid = grid
        self._measure = measure
        self._max_seconds = max_seconds
        self._report = report
        self._stopped = stopped
        self._clock = clock
        self._started = clock()
        self._samples: dict[Point, Samples] = {}
        self._planned: dict[tuple[int, int], tuple[int, ...]] = {
            (size, context): grid.draft_lens if context == grid.contexts[0] else _few(grid)
            for context in grid.contexts
            for size in grid.batch_sizes
        }
        """Lengths by batch size and context: those that are or will be measured."""
        self._confirmed: set[Point] = set()
        """What was measured again because it seemed disturbed."""

    def run(self) -> Calibration:
        """Raises CalibrationStopped."""
        try:
            self._outline()
            for context in self._grid.contexts:
                for batch_size in self._grid.batch_sizes:
                    self._fill(batch_size, context)
                self._repair()
        except _TimeIsUp:
            pass
        self._tell("")
        return Calibration(tuple(self._cells()))

    def _cells(self) -> list[CostCell]:
        """Those of batch sizes whose length 0 has another to be compared with, and of contexts that
        have all batch sizes: what is interpolated between contexts needs both."""
        lengths: dict[tuple[int, int], set[int]] = {}
        for point, one in self._samples.items():
            if one.measured:
                lengths.setdefault((point.batch_size, point.context), set()).add(point.draft_len)
        rows = {row for row, found in lengths.items() if 0 in found and len(found) > 1}
        first = self._grid.contexts[0]
        whole = {
            context
            for context in self._grid.contexts
            if all((size, context) in rows for size, other in rows if other == first)
        }
        return [
            CostCell(*point, *self._seconds(point))
            for point, one in sorted(self._samples.items())
            if one.measured and point.context in whole and (point.batch_size, point.context) in rows
        ]

    def _outline(self) -> None:
        context = self._grid.contexts[0]
        by_sequence: list[float] = []
        for batch_size in self._grid.batch_sizes:
            if by_sequence:
                # A step takes at most as many times longer as there are more sequences.
                self._require_time(2 * batch_size * min(by_sequence))
            points = [Point(batch_size, draft_len, context) for draft_len in (0, 1)]
            for point in points:
                self._begin(point)
            seconds = sum(self._samples[point].quickest for point in points)
            by_sequence.append(seconds / batch_size)
        self._repair()
        beaten = 0
        for batch_size in self._grid.batch_sizes:
            if beaten >= 2:
                for other in self._grid.contexts:
                    self._planned[batch_size, other] = (0, 1)
            elif self._cannot_win(Point(batch_size, 1, context)):
                beaten += 1
            else:
                beaten = 0

    def _fill(self, batch_size: int, context: int) -> None:
        points = self._begin_all(batch_size, context)
        share = _EXTRA_SHARE * self._max_seconds / len(self._planned)
        extra_until = None
        while unsettled := [point for point in points if self._wants_more(point)]:
            if all(len(self._samples[point].measured) >= LEAST_REPEATS for point in unsettled):
                extra_until = extra_until or self._clock() + share
                if self._clock() >= extra_until:
                    break
            for point in unsettled:
                self._again(point)

    def _repair(self) -> None:
        """Measure anew what was disturbed, some times at most: a machine may be jagged for good."""
        until = self._clock() + _REPAIR_SHARE * self._max_seconds
        for _ in range(MOST_REPAIRS):
            for point in [point for point in self._samples if self._is_disturbed(point)]:
                expected = (1 + LEAST_REPEATS) * self._samples[point].quickest
                if self._clock() + expected > until or not self._has_time(expected):
                    continue
                warm_up, *measured = (self._take(point) for _ in range(1 + LEAST_REPEATS))
                anew = Samples(warm_up, measured)
                self._confirmed.add(point)
                if sum(anew.typical) < sum(self._samples[point].typical):
                    self._samples[point] = anew

    def _seconds(self, point: Point) -> Seconds:
        """What was measured, but no more than a larger step took where time was up before a point
        that was disturbed could be measured again."""
        seconds = self._samples[point].typical
        if point in self._confirmed or not self._is_disturbed(point):
            return seconds
        more_tokens, more_of_all = self._larger(point)
        return Seconds(
            min([seconds.target, *(one.typical.target for one in more_tokens)]),
            min([seconds.draft, *(one.typical.draft for one in more_of_all)]),
        )

    def _is_disturbed(self, point: Point) -> bool:
        seconds = self._samples[point].typical
        more_tokens, more_of_all = self._larger(point)
        return any(seconds.target > DISTURBED * one.typical.target for one in more_tokens) or any(
            sum(seconds) > DISTURBED * sum(one.typical) for one in more_of_all
        )

    def _larger(self, point: Point) -> tuple[list[Samples], list[Samples]]:
        """Of steps whose target pass computes more than the point's: more tokens of more sequences
        at longer contexts; and of those of them that draft as many tokens of each or more."""
        tokens = point.batch_size * (point.draft_len + 1)
        more_tokens = {
            other: samples
            for other, samples in self._samples.items()
            if other.batch_size >= point.batch_size
            and other.context >= point.context
            and other.batch_size * (other.draft_len + 1) >= tokens
            and other != point
        }
        more_of_all = [one for at, one in more_tokens.items() if at.draft_len >= point.draft_len]
        return list(more_tokens.values()), more_of_all

    def _begin_all(self, batch_size: int, context: int) -> list[Point]:
        """All lengths once, up to where they can't win."""
        lengths = self._planned[batch_size, context]
        points: list[Point] = []
        for draft_len in lengths:
            point = Point(batch_size, draft_len, context)
            if point not in self._samples:
                self._require_time(self._expected(point))
                self._begin(point)
            points.append(point)
            if len(points) > 2 and all(self._cannot_win(one) for one in points[-2:]):
                break
        # What does not win here does not at longer contexts, whose lengths go by the longest here.
        kept = lengths[: len(points)]
        self._planned[batch_size, context] = kept
        if context == self._grid.contexts[0]:
            for other in self._grid.contexts[1:]:
                few = (*(length for length in _few(self._grid) if length < kept[-1]), kept[-1])
                self._planned[batch_size, other] = few
        return points

    def _begin(self, point: Point) -> None:
        self._samples[point] = Samples(self._take(point))
        self._again(point, is_limited=False)

    def _again(self, point: Point, *, is_limited: bool = True) -> None:
        samples = self._samples[point]
        if is_limited:
            self._require_time(samples.quickest)
        samples.measured.append(self._take(point))

    def _take(self, point: Point) -> Seconds:
        if self._stopped():
            raise CalibrationStopped("calibration was stopped")
        self._tell(f"batch {point.batch_size}, length {point.draft_len}, context {point.context}")
        return self._measure(point)

    def _wants_more(self, point: Point) -> bool:
        samples = self._samples[point]
        return len(samples.measured) < MOST_REPEATS and not samples.is_settled

    def _cannot_win(self, point: Point) -> bool:
        if not point.draft_len:
            return False
        without = self._samples[point._replace(draft_len=0)]
        return self._samples[point].quickest / (point.draft_len + 1) >= without.quickest

    def _expected(self, point: Point) -> float:
        """Seconds of a warm-up and a sample, at most: with as much idle arithmetic as none."""
        without = self._samples.get(Point(point.batch_size, 0, self._grid.contexts[0]))
        return 2 * (point.draft_len + 1) * without.quickest if without else 0.0

    def _require_time(self, seconds: float) -> None:
        if not self._has_time(seconds):
            raise _TimeIsUp

    def _has_time(self, seconds: float) -> bool:
        return self._clock() - self._started + seconds <= self._max_seconds

    def _tell(self, what: str) -> None:
        total = done = 0
        for (batch_size, context), lengths in self._planned.items():
            for draft_len in lengths:
                # In tokens: so the work goes on at an even pace. Few take as long as eight.
                work = LEAST_REPEATS * max(8, batch_size * (draft_len + 1))
                samples = self._samples.get(Point(batch_size, draft_len, context))
                total += work
                if samples is not None:
                    done += work * min(LEAST_REPEATS, len(samples.measured)) // LEAST_REPEATS
        self._report(total if not what else done, total, what)


def _few(grid: Grid) -> tuple[int, ...]:
    """Lengths of further contexts: a line from 0 through 2 to the longest tells the rest."""
    return tuple(sorted({0, *(n for n in grid.draft_lens if n == 2), grid.draft_lens[-1]}))
