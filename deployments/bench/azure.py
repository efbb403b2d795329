"""Azure's traces of LLM inference, 2023: when chats and code requests came, and how long they were.

Patel et al. 2024, "Splitwise: Efficient Generative LLM Inference Using Phase Splitting",
arXiv 2311.18677; github.com/Azure/AzurePublicDataset, CC-BY-4.0. A line has a time, the tokens of
the prompt and those of the answer; there is no text.
"""

import csv
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from deployments.bench.arrivals import Arrival, Segment, Setting
from engine.errors import ConfigError

_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


@dataclass(frozen=True, slots=True)
class Slice:
    """Which part of a trace, and how it is made to fit a machine."""

    start_s: float
    """After the trace's first request, on its own clock."""
    slowdown: float
    """What times are multiplied by."""
    seconds: float
    """Of each segment, on ours."""
    segments: int
    max_tokens: int
    """Prompt and answer together: longer requests are left out."""


def read_trace(path: Path, part: Slice) -> tuple[Setting, int]:
    """The arrivals of a part, and how many requests were too long for it. Their lengths are kept.

    Segments lie one behind the other in the trace. Raises ConfigError that names the line.
    """
    drawn: list[list[Arrival]] = [[] for _ in range(part.segments)]
    left_out = 0
    first: datetime | None = None
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for number, line in enumerate(csv.DictReader(file), start=2):
                at, context, generated = _read_line(path, number, line)
                first = first or at
                at_s = ((at - first).total_seconds() - part.start_s) * part.slowdown
                segment = int(at_s // part.seconds)
                if segment < 0:
                    continue
                if segment >= part.segments:
                    break
                if context + generated > part.max_tokens:
                    left_out += 1
                    continue
                prompt = sum(map(len, drawn))
                arrival = Arrival(at_s - segment * part.seconds, prompt, generated, context)
                drawn[segment].append(arrival)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"the trace {path} can't be read: {error}") from None
    segments: tuple[Segment, ...] = tuple(tuple(one) for one in drawn if one)
    if not segments:
        raise ConfigError(
            f"the trace {path} has no request between {part.start_s:g} s and "
            f"{part.start_s + part.segments * part.seconds / part.slowdown:g} s of at most "
            f"{part.max_tokens} tokens"
        )
    return Setting(f"{path.stem}, time x {part.slowdown:g}", segments), left_out


def _read_line(path: Path, number: int, line: dict[str, str]) -> tuple[datetime, int, int]:
    try:
        # Seven digits of a second, of which Python reads six.
        at = datetime.fromisoformat(line["TIMESTAMP"].strip()[:26])
        context, generated = int(line["ContextTokens"]), int(line["GeneratedTokens"])
        if context < 1 or generated < 1:
            raise ValueError("numbers of tokens must be at least 1")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"the trace {path}, line {number}: must have {', '.join(_COLUMNS)}: {error}"
        ) from None
    return at, context, generated
