"""What is asked, and when: Gamma intervals, recorded traces, and the hours of a day."""

import math
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

from deployments.recorded_trace import read_rows


class Arrival(NamedTuple):
    at_s: float
    prompt_tokens: int
    new_tokens: int


def gamma(
    mean_s: float, cv: float, count: int, prompt_tokens: int, new_tokens: int, seed: int
) -> list[Arrival]:
    """So many requests alike, with intervals of a Gamma distribution, as in the paper."""
    draw, at_s, found = Random(f"arrivals {seed}"), 0.0, []
    shape = 1 / cv**2
    for _ in range(count):
        at_s += draw.gammavariate(shape, mean_s / shape)
        found.append(Arrival(at_s, prompt_tokens, new_tokens))
    return found


def read_trace(file: Path) -> list[Arrival]:
    """A recorded trace, from its first request on; a request has a token each way at least. Raises
    ConfigError."""
    return [
        Arrival(row.at_s, max(1, row.prompt_tokens), max(1, row.new_tokens))
        for row in read_rows(file, "--trace")
    ]


def repeated(trace: Sequence[Arrival], count: int) -> list[Arrival]:
    """The first `count` of a trace that begins anew where it ends."""
    period_s = trace[-1].at_s * len(trace) / max(1, len(trace) - 1)
    found = []
    for number in range(count):
        turn, index = divmod(number, len(trace))
        one = trace[index]
        found.append(one._replace(at_s=one.at_s + turn * period_s))
    return found


def at_rate(arrivals: Sequence[Arrival], per_s: float) -> list[Arrival]:
    """The same requests, faster or slower."""
    factor = len(arrivals) / per_s / max(arrivals[-1].at_s, 1e-9)
    return [one._replace(at_s=one.at_s * factor) for one in arrivals]


def fitting(arrivals: Sequence[Arrival], max_model_len: int) -> tuple[list[Arrival], int]:
    """The same with prompts, and then answers, cut to a context limit; and how many were."""
    found, num_cut = [], 0
    for one in arrivals:
        if one.prompt_tokens + one.new_tokens > max_model_len:
            num_cut += 1
            new = min(one.new_tokens, max_model_len // 2)
            one = one._replace(prompt_tokens=min(one.prompt_tokens, max_model_len - new))
            one = one._replace(new_tokens=new)
        found.append(one)
    return found, num_cut


def over_a_day(arrivals: Sequence[Arrival], swing: float) -> list[Arrival]:
    """The same requests in the same time, which is to be a day from its quietest hour on: the rate
    is (1 - swing cos) times the mean, so that the least is (1 - swing) / (1 + swing) of the most.

    Arrivals come at t where as much of the day's whole has come as had at a steady rate:
    t - swing sin(2 pi t) / 2 pi of it, solved by halving.
    """
    whole_s = max(arrivals[-1].at_s, 1e-9)
    return [one._replace(at_s=whole_s * _when(one.at_s / whole_s, swing)) for one in arrivals]


def _when(share: float, swing: float) -> float:
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        if middle - swing * math.sin(2 * math.pi * middle) / (2 * math.pi) < share:
            low = middle
        else:
            high = middle
    return (low + high) / 2
