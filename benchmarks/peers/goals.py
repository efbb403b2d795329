"""What was to be reached against each peer, and what was."""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from benchmarks.peers.contenders import OURS, Contender
from benchmarks.peers.measuring import Cell, Results
from benchmarks.peers.workloads import CHAT, FIRST_TOKEN, FIRST_TOKEN_PROMPT, REWRITING
from deployments.bench.results import Goal, Spread

SLACK_BYTES = 600_000_000
"""Of memory, for what is neither weights nor KV cache."""

Choice = Callable[[Contender], bool]


@dataclass(frozen=True, slots=True)
class Aim:
    """Tokens/s of ours over theirs, the best of those chosen, at each batch size."""

    against: str
    workload: str
    least: dict[int, float]
    """By batch size."""
    theirs: Choice
    plain: bool = False
    """Ours without speculation, instead of adaptive."""


@dataclass(frozen=True, slots=True)
class NotMeasured:
    """A goal without a figure."""

    name: str
    goal: str
    reason: str
    holds: bool = False


def _one(peer: str, mode: str) -> Choice:
    return lambda contender: (contender.peer, contender.mode) == (peer, mode)


def _everywhere(least: float) -> dict[int, float]:
    return {1: least, 4: least, 16: least}


AIMS = (
    Aim("openvino, plain", CHAT, _everywhere(1.0), _one("openvino", "plain"), plain=True),
    Aim(
        "openvino at its best",
        CHAT,
        {1: 1.2, 4: 1.0, 16: 1.0},
        lambda contender: contender.peer == "openvino",
    ),
    Aim(
        "openvino at its best",
        REWRITING,
        {1: 1.5, 4: 1.2, 16: 1.0},
        lambda contender: contender.peer == "openvino",
    ),
    *(
        Aim(f"{peer}, {mode}", workload, _everywhere(least), _one(peer, mode))
        for peer, mode, least in (
            ("vllm", "compiled", 1.3),
            ("transformers", "generate", 2.0),
            ("transformers", "lookup", 2.0),
            ("transformers", "assisted", 2.0),
            ("transformers", "generate_batch", 2.0),
        )
        for workload in (CHAT, REWRITING)
    ),
)


def judge(
    results: Results, weights_and_kv_bytes: int | None
) -> tuple[list[Goal], list[NotMeasured]]:
    """Every goal whose contenders were asked for, with its figure or with why there is none."""
    goals: list[Goal] = []
    missing: list[NotMeasured] = []

    def add(name: str, goal: str, outcome: float | str, holds: Callable[[float], bool]) -> None:
        if isinstance(outcome, str):
            missing.append(NotMeasured(name, goal, outcome))
        else:
            goals.append(Goal(name, goal, outcome, holds(outcome)))

    for aim in AIMS:
        for batch_size, least in aim.least.items():
            theirs = _asked(results, aim.workload, batch_size, aim.theirs)
            ours = _asked(results, aim.workload, batch_size, _plain if aim.plain else _adaptive)
            if not theirs or not ours:
                continue
            who = "length 0" if aim.plain else "adaptive"
            add(
                f"{who} against {aim.against}: tokens/s, {aim.workload}, batch {batch_size}",
                f">= {least}",
                _ratio(results, theirs, ours),
                partial(operator.le, least),
            )
    theirs = _asked(results, FIRST_TOKEN, 1, lambda contender: contender.peer != OURS)
    ours = _asked(results, FIRST_TOKEN, 1, _plain)
    if theirs and ours:
        add(
            f"time to the first token of {FIRST_TOKEN_PROMPT}, over the best peer's",
            "<= 1.0",
            _ratio(results, ours, theirs),
            lambda ratio: ratio <= 1.0,
        )
    rss_bytes = results.largest_rss_bytes.get(f"{OURS}-engine")
    if rss_bytes is not None and weights_and_kv_bytes is not None:
        most = weights_and_kv_bytes + SLACK_BYTES
        goal = f"<= {most / 1e6:.0f} (weights, KV cache, {SLACK_BYTES / 1e6:.0f})"
        add("resident memory, MB", goal, rss_bytes / 1e6, lambda megabytes: megabytes * 1e6 <= most)
    return goals, missing


def best(results: Results, cells: Sequence[Cell]) -> Cell | None:
    """The one with the least median time; None when nobody was measured."""
    measured = [cell for cell in cells if cell in results.seconds]
    return min(measured, key=lambda cell: Spread.of(results.seconds[cell]).median, default=None)


def paired_ratios(results: Results, slow: Cell, fast: Cell) -> Spread:
    """Seconds of `slow` over those of `fast`, repeat by repeat: how many times faster `fast` is."""
    pairs = zip(results.seconds[slow], results.seconds[fast], strict=False)
    return Spread.of([theirs / ours for theirs, ours in pairs])


def our_cell(results: Results, workload: str, batch_size: int) -> Cell | None:
    """What others are compared with: adaptive, or length 0 where nothing can be drafted."""
    chosen = _plain if workload == FIRST_TOKEN else _adaptive
    return best(results, _asked(results, workload, batch_size, chosen))


def _plain(contender: Contender) -> bool:
    return contender.peer == OURS and contender.plain


def _adaptive(contender: Contender) -> bool:
    return contender.peer == OURS and contender.adaptive


def _asked(results: Results, workload: str, batch_size: int, chosen: Choice) -> list[Cell]:
    cells = [*results.seconds, *results.failed]
    return [cell for cell in cells if cell[:2] == (workload, batch_size) and chosen(cell[2])]


def _ratio(results: Results, slow: list[Cell], fast: list[Cell]) -> float | str:
    """The median of paired ratios, or why there is none."""
    best_slow, best_fast = best(results, slow), best(results, fast)
    if best_slow is None or best_fast is None:
        return results.failed[(slow if best_slow is None else fast)[0]]
    return paired_ratios(results, best_slow, best_fast).median
