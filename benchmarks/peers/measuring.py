"""Takes turns: in each repeat every contender is measured once, on the same prompts."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.peers.contenders import Contender
from benchmarks.peers.worker import Answer, Worker, WorkerError
from benchmarks.peers.workloads import Workload


@dataclass(frozen=True, slots=True)
class Task:
    """A workload at a batch size, and who is measured on it."""

    workload: Workload
    batch_size: int
    new_tokens: int
    contenders: tuple[Contender, ...]

    @property
    def key(self) -> tuple[str, int]:
        return self.workload.name, self.batch_size


ADAPTING_S = 5.0
"""How long a contender that learns decodes before it counts: two of its reports to the policy."""
Cell = tuple[str, int, Contender]
"""Workload, batch size, contender."""


@dataclass(slots=True)
class Results:
    """What was measured so far; each cell stands in `seconds` or in `failed`."""

    new_tokens: dict[tuple[str, int], int] = field(default_factory=dict)
    """By workload and batch size, for each prompt."""
    seconds: dict[Cell, list[float]] = field(default_factory=dict)
    """One per repeat, in order."""
    failed: dict[Cell, str] = field(default_factory=dict)
    largest_rss_bytes: dict[str, int] = field(default_factory=dict)
    """By worker."""

    def tokens_per_second(self, cell: Cell) -> list[float]:
        workload, batch_size, _ = cell
        tokens = batch_size * self.new_tokens[workload, batch_size]
        return [tokens / seconds for seconds in self.seconds[cell]]


def num_measurements(tasks: Sequence[Task], repeats: int) -> int:
    return sum(len(task.contenders) for task in tasks) * (repeats + 1)


def measure(
    tasks: Sequence[Task],
    workers: Mapping[str, Worker],
    unavailable: Mapping[str, str],
    repeats: int,
    results: Results,
    report: Callable[[Task, Contender], None],
) -> None:
    """Fill `results`. `unavailable`: why a worker is not among `workers`.

    A contender that fails once is left out of its task from then on, and so is what it measured.
    """
    marks = itertools.count()
    for task in tasks:
        results.new_tokens[task.key] = task.new_tokens
        for repeat in range(repeats + 1):  # the first warms up and does not count
            for contender in task.contenders:
                report(task, contender)
                cell = (*task.key, contender)
                if cell in results.failed:
                    continue
                try:
                    if repeat == 0 and contender.adaptive:
                        _adapt(task, contender, workers, unavailable, marks)
                    answer = _ask(task, contender, workers, unavailable, repeat, next(marks))
                except WorkerError as error:
                    results.failed[cell] = str(error)
                    results.seconds.pop(cell, None)
                    continue
                if repeat > 0:
                    results.seconds.setdefault(cell, []).append(answer.seconds)
                largest = results.largest_rss_bytes.get(contender.worker, 0)
                results.largest_rss_bytes[contender.worker] = max(largest, answer.rss_bytes)


def _adapt(
    task: Task,
    contender: Contender,
    workers: Mapping[str, Worker],
    unavailable: Mapping[str, str],
    marks: Iterator[int],
) -> None:
    """From the end of the workload backwards; prompts that count go forwards."""
    seconds = 0.0
    for turn in itertools.count(1):
        seconds += _ask(task, contender, workers, unavailable, -turn, next(marks)).seconds
        if seconds >= ADAPTING_S:
            return


def _ask(
    task: Task,
    contender: Contender,
    workers: Mapping[str, Worker],
    unavailable: Mapping[str, str],
    repeat: int,
    mark: int,
) -> Answer:
    worker = workers.get(contender.worker)
    if worker is None:
        raise WorkerError(unavailable[contender.worker])
    prompts = task.workload.batch(task.batch_size, repeat, mark)
    return worker.ask(prompts, task.new_tokens, contender.draft_len)


def tasks_of(
    workloads: Sequence[Workload],
    batch_sizes: Sequence[int],
    new_tokens: int,
    contenders: Sequence[Contender],
    first_token: str,
) -> list[Task]:
    """Every workload at every batch size; `first_token` is one prompt, one token, plain only."""
    tasks = []
    for workload in workloads:
        single = workload.name == first_token
        for batch_size in (1,) if single else batch_sizes:
            able = tuple(
                contender
                for contender in contenders
                if batch_size <= (contender.max_batch_size or batch_size)
                and (contender.plain or not single)
            )
            tasks.append(Task(workload, batch_size, 1 if single else new_tokens, able))
    return tasks
