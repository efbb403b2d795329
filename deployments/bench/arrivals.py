"""When requests come: Gamma intervals as in the paper, alternating phases, and files of both.

The paper (Su, Giannoula, Pekhimenko 2023, arXiv 2310.18813) draws the intervals between requests
from a Gamma distribution and varies its mean and its coefficient of variation (CV): 0 is a clock,
1 a Poisson process, more are bursts.
"""

import csv
import hashlib
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engine.errors import ConfigError
from engine.files import replacing

_LEAST_CV = 1e-6
"""Below it, intervals are those of a clock."""
_LEAST_SUM = 1e-200
"""Of intervals before they are scaled: of a large CV nearly all are less than the least number that
there is, and a few of them may be nought together. Those are drawn again."""
_COLUMNS = ("segment", "at_s", "prompt", "prompt_tokens", "new_tokens")


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request, before anybody is asked."""

    at_s: float
    """After its segment began."""
    prompt: int
    """Which of the prompts, counted from 0 and round again; of a fitted one, where it begins."""
    new_tokens: int
    prompt_tokens: int | None = None
    """How long the prompt is to be; None: as it is."""


Segment = tuple[Arrival, ...]
"""What comes without a pause. Each arm answers one to its end before the next arm begins."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One kind of traffic."""

    name: str
    segments: tuple[Segment, ...]
    interval_s: float | None = None
    """Mean time between requests; None: it varies."""
    cv: float | None = None
    phases: tuple[tuple[float, float], ...] = ()
    """(length in seconds, mean interval) one after the other, where they alternate."""

    @property
    def digest(self) -> str:
        """Of all arrivals: equal ones are the same traffic."""
        return hashlib.sha256(_written(self.segments).encode()).hexdigest()[:16]

    @property
    def seconds(self) -> float:
        """From the first segment's begin to the last arrival, pauses left out."""
        return sum(segment[-1].at_s for segment in self.segments if segment)


def gamma_times(
    generator: np.random.Generator, interval_s: float, cv: float, until_s: float
) -> list[float]:
    """As many arrival times as intervals fit into `until_s`, one at least; the last one at its end.

    Intervals of shape 1 / cv^2 have that CV. They are scaled to the mean that was asked for: of a
    few bursty ones the mean would be anything, and two settings would not differ as they say.
    """
    count = max(1, round(until_s / interval_s))
    intervals = np.ones(count)
    if cv >= _LEAST_CV:
        intervals = generator.gamma(1 / cv**2, size=count)
        while intervals.sum() < _LEAST_SUM:
            intervals = generator.gamma(1 / cv**2, size=count)
    times = np.cumsum(intervals)
    return [float(t) for t in times * (min(count * interval_s, until_s) / times[-1])]


def gamma_setting(
    interval_s: float,
    cv: float,
    *,
    seconds: float,
    segments: int,
    new_tokens: int,
    seed: int,
    first_prompt: int = 0,
) -> Setting:
    """Segments of `seconds` each, which all begin anew; other prompts in each of them."""
    generator = np.random.default_rng([seed, round(1e6 * interval_s), round(1e6 * cv)])
    drawn: list[Segment] = []
    prompt = first_prompt
    for _ in range(segments):
        times = gamma_times(generator, interval_s, cv, seconds)
        drawn.append(tuple(Arrival(t, prompt + i, new_tokens) for i, t in enumerate(times)))
        prompt += len(times)
    return Setting(f"every {interval_s:g} s, CV {cv:g}", tuple(drawn), interval_s, cv)


def phased_setting(
    intervals_s: Sequence[float],
    cv: float,
    *,
    phase_s: float,
    cycles: int,
    new_tokens: int,
    seed: int,
    first_prompt: int = 0,
) -> Setting:
    """The paper's timeline: phases of these mean intervals in turn, `cycles` times, in one go."""
    generator = np.random.default_rng([seed, round(1e6 * phase_s), round(1e6 * cv)])
    phases = tuple((phase_s, interval_s) for _ in range(cycles) for interval_s in intervals_s)
    times: list[float] = []
    for number, (length_s, interval_s) in enumerate(phases):
        times += [number * phase_s + t for t in gamma_times(generator, interval_s, cv, length_s)]
    arrivals = tuple(Arrival(t, first_prompt + i, new_tokens) for i, t in enumerate(times))
    name = "timeline, every " + " / ".join(f"{interval_s:g}" for interval_s in intervals_s)
    return Setting(f"{name} s in turn", (arrivals,), None, cv, phases)


def write_arrivals(path: Path, setting: Setting) -> None:
    """As CSV, to the microsecond. Raises OSError."""
    with replacing(path) as file:
        file.write(_written(setting.segments).encode())


def read_arrivals(path: Path) -> Setting:
    """What `write_arrivals` wrote, or somebody else in its form. Raises ConfigError that names the
    line."""
    try:
        lines = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))
    except (OSError, ValueError, csv.Error) as error:
        raise ConfigError(f"--arrivals: can't read {path}: {error}") from None
    segments: dict[int, list[Arrival]] = {}
    for number, line in enumerate(lines, start=2):
        try:
            arrival = Arrival(
                float(line["at_s"]),
                int(line["prompt"]),
                int(line["new_tokens"]),
                int(line["prompt_tokens"]) if line["prompt_tokens"] else None,
            )
            if not (0 <= arrival.at_s < math.inf and arrival.prompt >= 0):
                raise ValueError("at_s and prompt must be finite, from 0 on")
            if arrival.new_tokens < 1 or (arrival.prompt_tokens or 1) < 1:
                raise ValueError("numbers of tokens must be at least 1")
            segments.setdefault(int(line["segment"]), []).append(arrival)
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                f"--arrivals {path}, line {number}: must have {', '.join(_COLUMNS)}: {error}"
            ) from None
    if not segments:
        raise ConfigError(f"--arrivals {path}: the file holds no arrivals")
    ordered = (sorted(segments[number], key=lambda one: one.at_s) for number in sorted(segments))
    return Setting(path.stem, tuple(map(tuple, ordered)))


def _written(segments: Sequence[Segment]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for number, segment in enumerate(segments):
        for one in segment:
            length = "" if one.prompt_tokens is None else one.prompt_tokens
            writer.writerow((number, f"{one.at_s:.6f}", one.prompt, length, one.new_tokens))
    return text.getvalue()
