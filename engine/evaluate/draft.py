"""A drafter's worth for a target: acceptance by position, cost by batch size, speed-up."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

from engine.core import Engine
from engine.distill.shares import Share
from engine.evaluate.decoding import Decoded, Decoding

REPEATS = 3
ACCEPTANCE_BATCH = 8

Prompts = Sequence[Sequence[int]]
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Of drafts by position: entry i counts the drafts that had a token at position i, and those
    of which it and all before it were kept."""

    by_position: tuple[Share, ...]
    rounds: int

    def tokens_per_round(self, draft_len: int) -> float:
        """What a round emits on average, those that the drafter has nothing for included. A draft
        that the answer's end cut short says nothing of the positions behind."""
        if not self.by_position or not self.rounds:
            return 1.0
        has_draft = self.by_position[0].tried / self.rounds
        return 1.0 + has_draft * sum(share.value for share in self.by_position[:draft_len])


@dataclass(slots=True)
class BatchResult:
    """At one batch size."""

    batch_size: int
    step_seconds: dict[int, float] = field(default_factory=dict)
    """By draft length: the median of a round, drafting included."""
    best: int = 0
    """Draft length that should be fastest."""
    projected: float = 1.0
    """Tokens/s at that length over those without drafts, from acceptance and cost."""
    measured: list[float] = field(default_factory=list)
    """The same as it came, once for each repeat, in turns."""


@dataclass(slots=True)
class Evaluation:
    acceptance: Acceptance = Acceptance((), 0)
    batches: list[BatchResult] = field(default_factory=list)
    complete: bool = False


def num_runs(prompts: int, batch_sizes: Sequence[int], lengths: Sequence[int]) -> int:
    """How often `evaluate` reports."""
    return -(-prompts // ACCEPTANCE_BATCH) + len(batch_sizes) * (len(lengths) + 2) * REPEATS


def evaluate(
    engine: Engine,
    prompts: Prompts,
    *,
    batch_sizes: Sequence[int],
    lengths: Sequence[int],
    new_tokens: int,
    temperature: float,
    report: Report,
    result: Evaluation,
) -> None:
    """Measure the engine's drafter. `lengths` holds 0; `report` is told each run as it begins, and
    `result` holds what is measured so far.

    What is projected comes from cost measured on other runs than those that measure it.
    """
    decoding = Decoding(engine, temperature=temperature)
    result.acceptance = _acceptance(decoding, prompts, max(lengths), new_tokens, report)
    for batch_size in batch_sizes:
        batch = BatchResult(batch_size)
        result.batches.append(batch)
        runs: dict[int, list[Decoded]] = {length: [] for length in lengths}
        for repeat in range(REPEATS):
            for length in lengths:
                report(f"batch {batch_size}, length {length}")
                some = _batch(prompts, batch_size, repeat)
                runs[length].append(decoding.run(some, length, new_tokens))
        batch.step_seconds = {
            length: median(one.seconds_per_step for one in some) for length, some in runs.items()
        }
        batch.best = max(lengths, key=lambda length: _speed(result.acceptance, batch, length))
        batch.projected = _speed(result.acceptance, batch, batch.best) / _speed(
            result.acceptance, batch, 0
        )
        for repeat in range(REPEATS):
            some = _batch(prompts, batch_size, REPEATS + repeat)
            speeds = {}
            for length in (0, batch.best):
                report(f"batch {batch_size}, length {length} against 0")
                speeds[length] = decoding.run(some, length, new_tokens).tokens_per_second
            batch.measured.append(speeds[batch.best] / speeds[0])
    result.complete = True


def _acceptance(
    decoding: Decoding, prompts: Prompts, longest: int, new_tokens: int, report: Report
) -> Acceptance:
    rounds = 0
    drafted, accepted = [0] * longest, [0] * longest
    for at in range(0, len(prompts), ACCEPTANCE_BATCH):
        report(f"acceptance, prompt {at + 1} of {len(prompts)}")
        batch = prompts[at : at + ACCEPTANCE_BATCH]
        window = decoding.answer(batch, longest, new_tokens)
        rounds += window.rounds - len(batch)  # a prompt's first token comes without a draft
        for position, times in enumerate(window.drafted_by_position):
            drafted[position] += times
        for position, times in enumerate(window.accepted_by_position):
            accepted[position] += times
    return Acceptance(tuple(map(Share, accepted, drafted)), rounds)


def _batch(prompts: Prompts, batch_size: int, repeat: int) -> list[Sequence[int]]:
    """Other prompts in each repeat, as far as there are others."""
    first = repeat * batch_size
    return [prompts[(first + i) % len(prompts)] for i in range(batch_size)]


def _speed(acceptance: Acceptance, batch: BatchResult, length: int) -> float:
    return acceptance.tokens_per_round(length) / batch.step_seconds[length]
