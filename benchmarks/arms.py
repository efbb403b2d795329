"""Fixed draft lengths and the adaptive policy, which take turns on one engine.

What the policy's board takes (adaptation.py) is not counted as the engine's time, as it has a
process of its own in service.
"""

import itertools
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from benchmarks.adaptation import Adaptation, put_in_force
from engine.core import Engine
from engine.drafters.base import Drafter
from engine.drafters.cascade import CascadeDrafter
from engine.request import Request, SamplingParams
from policy.board import PolicyBoard
from policy.stats import StatsWindow
from policy.table import SpeculationTable, fixed_rungs

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
    """Owns the engine's table; nobody else may use the engine."""

    def __init__(
        self,
        engine: Engine,
        board: PolicyBoard,
        new_tokens: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`board` from `introduced_board`; `new_tokens` of each request; `clock` in seconds."""
        self._engine = engine
        self._adaptation = Adaptation(engine, board, clock)
        self._new_tokens = new_tokens
        self._clock = clock
        self._numbers = itertools.count()

    @property
    def board_seconds(self) -> list[float]:
        """What each report took the board, its decision included."""
        return self._adaptation.board_seconds

    def warm_up(self, load: Load) -> None:
        """Leave the prompts' KV, the target's and the draft model's, in the prefix cache: all arms
        find the same then, whichever comes first."""
        drafter = self._engine._drafter
        # A cascade asks its model only where the text itself offers nothing.
        model: Drafter = drafter.model if isinstance(drafter, CascadeDrafter) else drafter
        self._engine._drafter = model
        try:
            put_in_force(self._engine, SpeculationTable(0, fixed_rungs(1)))
            self._decode(load, _WARM_UP_TOKENS)
        finally:
            self._engine._drafter = drafter

    def fixed(self, load: Load, draft_len: int) -> float:
        """Tokens per second at one draft length."""
        put_in_force(self._engine, SpeculationTable(0, fixed_rungs(draft_len)))
        return self._decode(load, self._new_tokens)

    def adaptive(self, load: Load) -> AdaptiveTurn:
        """The same under the board's table, which may change meanwhile."""
        engine, rounds = self._engine, Counter[int]()

        def after_step() -> float:
            status = engine.status()
            rounds[status.draft_len] += status.num_decoding
            return self._adaptation.after_step()

        self._adaptation.begin()
        rate = self._decode(load, self._new_tokens, after_step)
        self._adaptation.end()
        return AdaptiveTurn(rate, +rounds, self._adaptation.turn)

    def adapt(self, loads: Iterable[Load], reports: int) -> None:
        """Adaptive turns, one at least, until the board has had so many more reports."""
        enough = len(self.board_seconds) + reports
        for load in loads:
            self.adaptive(load)
            if len(self.board_seconds) >= enough:
                return

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
