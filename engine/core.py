"""The engine: one synchronous object that turns requests into tokens, a step at a time."""

import secrets
import time
from dataclasses import dataclass

from engine.blocks import BlockPool
from engine.config import EngineConfig
from engine.drafters.base import Drafter
from engine.errors import EngineFull, PromptTooLong, RequestError
from engine.executor import Executor
from engine.plan import Draft, StepPlan
from engine.request import Request, TokenDelta
from engine.scheduler import Scheduler
from engine.sequence import Sequence
from policy.stats import StatsWindow
from policy.table import SpeculationTable


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """A snapshot between two steps."""

    num_running: int
    num_waiting: int
    num_decoding: int
    num_blocks: int
    num_free_blocks: int
    table_version: int
    draft_len: int
    """Length in force at the present number of decoding sequences."""
    steps: int
    """Steps done since the start."""


class Engine:
    """Plan, propose, execute, commit. Not thread-safe: one thread owns it (see EngineLoop)."""

    def __init__(
        self,
        config: EngineConfig,
        *,
        executor: Executor,
        drafter: Drafter,
        num_blocks: int,
        max_model_len: int,
        vocab_size: int,
        eos_token_ids: frozenset[int],
        table: SpeculationTable,
    ) -> None:
        self.max_model_len = min(max_model_len, num_blocks * config.block_size)
        """Tokens of a sequence, prompt included: the model's limit, the config's, the pool's."""
        self.vocab_size = vocab_size
        self.eos_token_ids = eos_token_ids
        # Requests wait for the next step even when there is room, so both count together.
        self._max_in_flight = config.max_num_seqs + config.max_num_waiting
        self._executor = executor
        self._drafter = drafter
        self._table = table
        self._pool = BlockPool(num_blocks, config.block_size)
        self._scheduler = Scheduler(
            self._pool,
            max_num_seqs=config.max_num_seqs,
            max_step_tokens=config.max_step_tokens,
            max_draft_len=config.max_draft_len,
            eos_token_ids=eos_token_ids,
        )
        self._stats = StatsWindow(table_version=table.version)
        self._steps = 0

    def add(self, request: Request) -> None:
        """Queue a request, or change nothing and raise EngineFull, PromptTooLong, RequestError."""
        prompt = request.prompt_token_ids
        if request.request_id in self._scheduler:
            raise RequestError("request_id", f"request_id {request.request_id!r} is in flight")
        if not prompt:
            raise RequestError("prompt", "prompt must hold at least one token, got none")
        if bad := next((t for t in prompt if not 0 <= t < self.vocab_size), None):
            raise RequestError(
                "prompt",
                f"prompt token {bad} is outside the vocabulary of {self.vocab_size} tokens",
            )
        if len(prompt) >= self.max_model_len:
            raise PromptTooLong(
                "prompt",
                f"the prompt has {len(prompt)} tokens; with at least one new token the context "
                f"limit of {self.max_model_len} tokens would be exceeded",
            )
        in_flight = self._scheduler.num_running + self._scheduler.num_waiting
        if in_flight >= self._max_in_flight:
            raise EngineFull(f"{in_flight} requests are running or waiting already")
        seed = request.sampling.seed
        self._scheduler.add(
            Sequence(
                request=request,
                seed=secrets.randbits(63) if seed is None else seed,
                max_len=min(len(prompt) + request.sampling.max_tokens, self.max_model_len),
                tokens=list(prompt),
            )
        )

    def abort(self, request_id: str) -> bool:
        """Forget a request and free its blocks; False if it is not in flight."""
        return self._scheduler.abort(request_id)

    def set_table(self, table: SpeculationTable) -> None:
        """Use `table` from the next step on."""
        self._table = table
        self._stats.table_version = table.version

    @property
    def table(self) -> SpeculationTable:
        """The table in force."""
        return self._table

    @property
    def has_work(self) -> bool:
        return self._scheduler.num_running + self._scheduler.num_waiting > 0

    def step(self) -> list[TokenDelta]:
        """Advance every sequence that fits: what each gained, or nothing when idle."""
        plan = self._scheduler.plan(self._table)
        if not plan.slices:
            return []
        drafts, draft_seconds = self._propose(plan)
        result = self._executor.execute(plan, drafts)
        deltas = self._scheduler.commit(plan, drafts, result)
        self._record(plan, deltas, draft_seconds, result.target_seconds)
        return deltas

    def _propose(self, plan: StepPlan) -> tuple[list[Draft], float]:
        started = time.perf_counter()
        drafts = self._drafter.propose(plan.slices)
        return drafts, time.perf_counter() - started

    def _record(
        self,
        plan: StepPlan,
        deltas: list[TokenDelta],
        draft_seconds: float,
        target_seconds: float,
    ) -> None:
        self._steps += 1
        self._stats.steps += 1
        self._stats.steps_without_draft += plan.draft_len == 0
        self._stats.draft_seconds += draft_seconds
        self._stats.target_seconds += target_seconds
        for delta in deltas:
            self._stats.record_round(delta.num_drafted, delta.num_accepted, len(delta.token_ids))

    def drain_stats(self) -> StatsWindow:
        """The counts since the last call."""
        window, self._stats = self._stats, StatsWindow(table_version=self._table.version)
        return window

    def status(self) -> EngineStatus:
        decoding = self._scheduler.num_decoding
        return EngineStatus(
            num_running=self._scheduler.num_running,
            num_waiting=self._scheduler.num_waiting,
            num_decoding=decoding,
            num_blocks=self._pool.num_blocks,
            num_free_blocks=self._pool.num_free,
            table_version=self._table.version,
            draft_len=self._table.draft_len(decoding) if decoding else 0,
            steps=self._steps,
        )

    def check_integrity(self) -> None:
        """Assert the invariants of the books (for tests)."""
        self._scheduler.check_integrity()

    def close(self) -> None:
        self._executor.close()
