"""Azure's traces of LLM inference, 2023: when chats and code requests came, and how long they were,
made to fit a machine."""

from dataclasses import dataclass
from pathlib import Path

from deployments.bench.arrivals import Arrival, Segment, Setting
from deployments.recorded_trace import read_rows
from engine.errors import ConfigError


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
    for row in read_rows(path, "the trace"):
        at_s = (row.at_s - part.start_s) * part.slowdown
        if at_s < 0:
            continue
        if not at_s < part.segments * part.seconds:
            break
        if row.prompt_tokens < 1 or row.new_tokens < 1:
            raise ConfigError(
                f"the trace {path}, line {row.line}: numbers of tokens must be at least 1, got "
                f"{row.prompt_tokens} and {row.new_tokens}"
            )
        if row.prompt_tokens + row.new_tokens > part.max_tokens:
            left_out += 1
            continue
        # A hair below the end it may round to a segment more.
        segment = min(int(at_s // part.seconds), part.segments - 1)
        prompt = sum(map(len, drawn))
        at_s = max(0.0, at_s - segment * part.seconds)
        drawn[segment].append(Arrival(at_s, prompt, row.new_tokens, row.prompt_tokens))
    segments: tuple[Segment, ...] = tuple(tuple(one) for one in drawn if one)
    if not segments:
        raise ConfigError(
            f"the trace {path} has no request between {part.start_s:g} s and "
            f"{part.start_s + part.segments * part.seconds / part.slowdown:g} s of at most "
            f"{part.max_tokens} tokens"
        )
    return Setting(f"{path.stem}, time x {part.slowdown:g}", segments), left_out
