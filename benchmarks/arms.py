"""Fixed draft lengths and the adaptive policy, which take turns on one engine.

The adaptive policy is a board with one replica: this engine. In its turns the engine's counts reach
the board every 2 s, and a new table the engine, as over a replica's channel; of the other turns the
board sees nothing. What the board itself takes is not counted as the engine's time, as it has a
process of its own in service.
"""

import itertools
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from engine.core import Engine
from engine.drafters.base import Drafter
from engine.drafters.cascade import CascadeDrafter
from engine.request import Request, SamplingParams
from policy.board import PolicyBoard
from policy.stats import StatsWindow
from policy.table import SpeculationTable, fixed_rungs

REPLICA = "benchmark"
REPORT_S = 2.0
_WARM_UP_TOKENS = 4
Prompts = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class Load:
    """So many requests at once: whenever one ends, the next prompt's begins."""

    prompts: Prompts
    concurrency: int


@dataclass(frozen=True, slots=True)
class AdaptiveTurn:
    tokens_per_second: float
    rounds_by_length: Counter[int]
    """Rounds of one sequence by the table's length for the batch at the time."""
    window: StatsWindow


class Arms:
    """Owns the engine's table; nobody else may use the engine. The board has been introduced to
    `REPLICA` already."""

    def __init__(
        self,
        engine: Engine,
        board: PolicyBoard,
        new_tokens: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`new_tokens` of each request; `clock` in seconds."""
        self._engine = engine
        self._board = board
        self._new_tokens = new_tokens
        self._clock = clock
        self._numbers = itertools.count()
        self._versions = itertools.count(engine.table.version + 1)
        self._held = board.published.table
        self._unsent = StatsWindow()
        self._unreported_s = 0.0
        self.board_seconds: list[float] = []
        """What each report took the board, its decision included."""

    def warm_up(self, load: Load) -> None:
        """Leave the prompts' KV, the target's and the draft model's, in the prefix cache: all arms
        find the same then, whichever comes first."""
        drafter = self._engine._drafter
        # A cascade asks its model only where the text itself offers nothing.
        model: Drafter = drafter.model if isinstance(drafter, CascadeDrafter) else drafter
        self._engine._drafter = model
        try:
            self._set_table(SpeculationTable(0, fixed_rungs(1)))
            self._decode(load, _WARM_UP_TOKENS)
        finally:
            self._engine._drafter = drafter

    def fixed(self, load: Load, draft_len: int) -> float:
        """Tokens per second at one draft length."""
        self._set_table(SpeculationTable(0, fixed_rungs(draft_len)))
        return self._decode(load, self._new_tokens)

    def adaptive(self, load: Load) -> AdaptiveTurn:
        """The same under the board's table, which may change meanwhile."""
        engine, rounds, whole = self._engine, Counter[int](), StatsWindow()
        engine.drain_stats()  # of other arms
        self._set_table(self._held)
        last_report = self._clock() - self._unreported_s

        def after_step() -> float:
            nonlocal last_report
            status = engine.status()
            rounds[status.draft_len] += status.num_decoding
            started = self._clock()
            if started - last_report < REPORT_S:
                return 0.0
            drained = engine.drain_stats()
            whole.merge_totals(drained)
            self._unsent.merge(drained)
            self._report()
            last_report = self._clock()
            self.board_seconds.append(last_report - started)
            return last_report - started

        rate = self._decode(load, self._new_tokens, after_step)
        self._unreported_s = self._clock() - last_report
        drained = engine.drain_stats()
        whole.merge_totals(drained)
        self._unsent.merge(drained)
        return AdaptiveTurn(rate, +rounds, whole)

    def adapt(self, loads: Iterable[Load], reports: int) -> None:
        """Adaptive turns, one at least, until the board has had so many more reports."""
        enough = len(self.board_seconds) + reports
        for load in loads:
            self.adaptive(load)
            if len(self.board_seconds) >= enough:
                return

    def _report(self) -> None:
        window, self._unsent = self._unsent, StatsWindow()
        window.table_version = self._held.version
        self._board.observe(REPLICA, window)
        newer = self._board.newer_than(self._held.version)
        if newer is not None:
            self._held = newer.table
            self._set_table(newer.table)

    def _set_table(self, table: SpeculationTable) -> None:
        """The engine's versions rise over all arms; the board's are its own."""
        self._engine.set_table(table.with_version(next(self._versions)))

    def _decode(
        self, load: Load, new_tokens: int, after_step: Callable[[], float] = lambda: 0.0
    ) -> float:
        """Tokens per second while so many requests run: from the first step until there is no
        prompt left to take the place of one that ended. What `after_step` says is not counted."""
        engine, waiting = self._engine, deque(load.prompts)
        running = set[str]()

        def begin(num_tokens: int) -> None:
            sampling = SamplingParams(max_tokens=num_tokens, temperature=0.0, ignore_eos=True)
            request = Request(f"{next(self._numbers)}", tuple(waiting.popleft()), sampling)
            running.add(request.request_id)
            engine.add(request)

        for index in range(load.concurrency):
            # Of unlike lengths, so that they do not end together.
            begin(-(-new_tokens * (index + 1) // load.concurrency))
        tokens, aside, started = 0, 0.0, self._clock()
        while len(running) == load.concurrency:
            for delta in engine.step():
                tokens += len(delta.token_ids)
                if delta.finish_reason is not None:
                    running.remove(delta.request_id)
                    if waiting:
                        begin(new_tokens)
            aside += after_step()
        seconds = self._clock() - started - aside
        for request_id in running:
            engine.abort(request_id)
        return tokens / seconds
