"""Decoding of one batch of prompts at one draft length, timed from where all of them decode."""

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass

from engine.core import Engine
from engine.errors import ConfigError
from engine.request import Request, SamplingParams
from policy.stats import StatsWindow
from policy.table import MAX_DRAFT_LEN, SpeculationTable, fixed_rungs


@dataclass(frozen=True, slots=True)
class Decoded:
    """So many steps of a batch."""

    steps: int
    seconds: float
    window: StatsWindow

    @property
    def seconds_per_step(self) -> float:
        return self.seconds / self.steps

    @property
    def tokens_per_second(self) -> float:
        return self.window.emitted_tokens / self.seconds


class Decoding:
    """Runs batches through an engine that nobody else uses."""

    def __init__(self, engine: Engine, *, temperature: float = 0.0) -> None:
        self._engine = engine
        self._temperature = temperature
        self._numbers = itertools.count()
        self._versions = itertools.count(engine.table.version + 1)

    def run(self, prompts: Sequence[Sequence[int]], draft_len: int, new_tokens: int) -> Decoded:
        """Decode all prompts together until one has `new_tokens` more; EOS ends none.

        Raises ConfigError when the engine is too small for so many at once.
        """
        engine = self._engine
        self._draft(0)
        # None may end while it is timed: those that come first decode while others are read.
        spare = len(prompts) + sum(map(len, prompts)) // 64 + 3 * MAX_DRAFT_LEN
        asked = self._add(prompts, new_tokens + spare, ignore_eos=True)
        for _ in range(spare):
            if engine.status().num_decoding == len(prompts):
                break
            engine.step()
        else:
            for request_id in asked:
                engine.abort(request_id)
            raise ConfigError(
                f"{len(prompts)} sequences can't decode at once here; try fewer, or shorter prompts"
            )
        self._draft(draft_len)
        engine.step()  # a draft model reads the prompts in its first step
        engine.drain_stats()
        left = dict.fromkeys(asked, new_tokens)
        steps, started = 0, time.perf_counter()
        while min(left.values()) > 0:
            for delta in engine.step():
                left[delta.request_id] -= len(delta.token_ids)
            steps += 1
        seconds = time.perf_counter() - started
        window = engine.drain_stats()
        for request_id in asked:
            engine.abort(request_id)
        return Decoded(steps, seconds, window)

    def answer(
        self, prompts: Sequence[Sequence[int]], draft_len: int, max_tokens: int
    ) -> StatsWindow:
        """What drafts did while all prompts were answered, each up to its own EOS."""
        self._draft(draft_len)
        self._engine.drain_stats()
        self._add(prompts, max_tokens, ignore_eos=False)
        while self._engine.has_work:
            self._engine.step()
        return self._engine.drain_stats()

    def _draft(self, draft_len: int) -> None:
        self._engine.set_table(SpeculationTable(next(self._versions), fixed_rungs(draft_len)))

    def _add(
        self, prompts: Sequence[Sequence[int]], max_tokens: int, *, ignore_eos: bool
    ) -> list[str]:
        asked = []
        for prompt in prompts:
            number = next(self._numbers)
            sampling = SamplingParams(
                max_tokens=max_tokens,
                temperature=self._temperature,
                seed=number,
                ignore_eos=ignore_eos,
            )
            room = max(1, self._engine.max_model_len - max_tokens - 1)
            self._engine.add(Request(f"{number}", tuple(prompt[:room]), sampling))
            asked.append(f"{number}")
        return asked
