"""The engine: one synchronous object that turns requests into tokens, a step at a time."""

import time
from collections import Counter
from collections.abc import Callable
from collections.abc import Sequence as ReadOnly
from dataclasses import dataclass

from engine.admission import Bounds, Load, Throughput
from engine.blocks import BlockPool
from engine.config import EngineConfig
from engine.drafters.base import Drafter
from engine.entry import Entry
from engine.errors import RequestError
from engine.executor import Executor
from engine.grammar import GrammarCompiler, GrammarCursor
from engine.hindsight import Hindsight
from engine.plan import Draft, SeqSlice, StepPlan, StepResult
from engine.probing import Prober
from engine.request import Request, TokenDelta
from engine.scheduler import Scheduler
from engine.sequence import Sequence
from policy.stats import Fate, Occupancy, StatsWindow, StepShape
from policy.table import SpeculationTable


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """A snapshot between two steps."""

    num_running: int
    num_waiting: int
    num_decoding: int
    num_blocks: int
    num_free_blocks: int
    """Blocks that no running sequence holds."""
    table_version: int
    draft_len: int
    """Length in force at the present number of decoding sequences."""
    steps: int
    """Steps done since the start."""
    num_cached_blocks: int = 0
    """Free blocks whose content the prefix cache still finds."""
    prefix_cache_queries: int = 0
    """Prompt tokens that were looked up in the prefix cache, since the start."""
    prefix_cache_hits: int = 0
    """Of them, those that were found."""
    num_waiting_tokens: int = 0
    """Of the requests that wait: prompts, and all new tokens that may come."""
    num_prompt_tokens: int = 0
    """Of the sequences that were admitted, since the start."""
    num_preemptions: int = 0
    """Times that a running sequence gave its blocks back, since the start."""

    @property
    def occupancy(self) -> Occupancy:
        return Occupancy(
            running=self.num_running,
            waiting=self.num_waiting,
            decoding=self.num_decoding,
            draft_len=self.draft_len,
            kv_use=1.0 - self.num_free_blocks / self.num_blocks,
        )


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
        grammars: GrammarCompiler,
        table: SpeculationTable,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`clock`: seconds, for whatever is timed."""
        self.max_model_len = min(max_model_len, num_blocks * config.block_size)
        """Tokens of a sequence, prompt included: the model's limit, the config's, the pool's."""
        self.vocab_size = vocab_size
        self.eos_token_ids = eos_token_ids
        # Requests wait for the next step even when there is room, so both count together.
        self._bounds = Bounds(
            config.max_num_seqs + config.max_num_waiting,
            Load(config.max_num_waiting, config.max_waiting_tokens),
        )
        self._throughput = Throughput()
        self.max_step_tokens = config.max_step_tokens
        """Known tokens of a step, at most."""
        self.stall_s = config.stall_s
        """How long a step may take at least, for whoever watches over them."""
        self.step_tokens = 0
        """Known tokens of the step under way, or of the last one."""
        self.grammars = grammars
        """Thread-safe: a grammar compiled here beforehand costs the engine's thread no time."""
        self._entry = Entry(self.max_model_len, vocab_size, eos_token_ids, grammars, clock)
        self._executor = executor
        self._drafter = drafter
        self._table = table
        self._clock = clock
        self._prober = Prober()
        self._hindsight = Hindsight()
        self._pool = BlockPool(num_blocks, config.block_size)
        self._scheduler = Scheduler(
            self._pool,
            max_num_seqs=config.max_num_seqs,
            max_step_tokens=config.max_step_tokens,
            max_draft_len=config.max_draft_len,
        )
        self._stats = StatsWindow(table_version=table.version)
        self._steps = 0

    def add(self, *requests: Request) -> None:
        """Queue requests, all or none.

        Raises EngineFull, PromptTooLong, RequestError or GrammarError, and has changed nothing.
        The requests are of one tenant.
        """
        most = self._bounds.in_flight
        if len(requests) > most:
            raise RequestError(
                "n",
                f"n must be at most {most}, as many as this engine takes at once, "
                f"got {len(requests)}",
            )
        self._check_room(requests)
        sequences: list[Sequence] = []
        for request in requests:
            if any(seq.request_id == request.request_id for seq in sequences):
                raise RequestError("request_id", f"request_id {request.request_id!r} stands twice")
            if request.request_id in self._scheduler:
                raise RequestError("request_id", f"request_id {request.request_id!r} is in flight")
            sequences.append(self._entry.sequence(request))
        for seq in sequences:
            self._scheduler.add(seq)

    def _check_room(self, requests: ReadOnly[Request]) -> None:
        """Raises EngineFull."""
        if not requests:
            return
        tenant = requests[0].tenant
        self._bounds.check(
            Load(len(requests), sum(map(self._entry.max_len, requests))),
            num_running=self._scheduler.num_running,
            waiting=self._scheduler.waiting_load,
            own=self._scheduler.waiting_load_of(tenant),
            tenant=tenant,
            retry_s=lambda: self._throughput.retry_s(self._scheduler.num_outstanding),
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
        started = self._clock()
        table, further = self._table, 0
        if table.budget is not None:
            further = self._prober.further(table.budget.probe_share)
            if self._prober.is_plain_due:
                table, further = SpeculationTable(table.version, ()), 0
        plan = self._scheduler.plan(table, further, started)
        if not plan.slices:
            return []
        self.step_tokens = sum([part.num_tokens for part in plan.slices])
        self._prober.planned(has_drafts=plan.draft_len > 0, is_probe=plan.probed is not None)
        drafts, draft_seconds = self._propose(plan)
        result = self._executor.execute(plan, drafts)
        deltas = self._scheduler.commit(plan, drafts, result)
        self._record(plan, deltas, draft_seconds, result)
        seconds = self._clock() - started
        self._throughput.note(self.step_tokens + _num_accepted(deltas), seconds)
        self._count(plan, drafts, result, seconds, draft_seconds)
        return deltas

    def _propose(self, plan: StepPlan) -> tuple[list[Draft], float]:
        started = self._clock()
        drafts = [
            draft if part.grammar is None else _within(part.grammar, part, draft)
            for part, draft in zip(plan.slices, self._drafter.propose(plan.slices), strict=True)
        ]
        return drafts, self._clock() - started

    def _record(
        self,
        plan: StepPlan,
        deltas: list[TokenDelta],
        draft_seconds: float,
        result: StepResult,
    ) -> None:
        self._steps += 1
        self._stats.steps += 1
        self._stats.steps_without_draft += not plan.asks_for_drafts
        self._stats.draft_seconds += draft_seconds
        self._stats.target_seconds += result.target_seconds
        self._stats.verify_seconds += result.verify_seconds
        rounds = Counter(
            [
                (delta.num_drafted, delta.num_accepted, len(delta.token_ids))
                for delta in deltas
                if delta.token_ids  # else only prompt logprobs, or an error
            ]
        )
        for (num_drafted, num_accepted, num_emitted), times in rounds.items():
            self._stats.record_rounds(num_drafted, num_accepted, num_emitted, times)

    def _count(
        self,
        plan: StepPlan,
        drafts: list[Draft],
        result: StepResult,
        seconds: float,
        draft_seconds: float,
    ) -> None:
        """For the policy: what the step cost, and what became of its drafts."""
        stats, batch_size = self._stats, plan.num_decoding
        is_probe = plan.probed is not None
        has_drafts = plan.asks_for_drafts
        if has_drafts:
            fates = Counter(
                [
                    Fate(
                        len(draft.token_ids),
                        len(outcome.new_tokens) - 1,
                        draft.looked_up,
                        part.draft_len > 0,
                        part.lookup_len > 0,
                    )
                    for part, draft, outcome in zip(plan.slices, drafts, result.slices, strict=True)
                    if (part.draft_len or part.lookup_len) and outcome.new_tokens
                ]
            )
            for fate, times in fates.items():
                stats.record_drafts(batch_size, fate, times)
        if self._table.budget is not None:
            self._hindsight.note(plan, drafts, result, stats)
        if not plan.all_decode:
            return
        context = sum([part.start for part in plan.slices]) / batch_size
        num_drafted = sum([len(draft.token_ids) for draft in drafts]) if has_drafts else 0
        # What a probe's draft costs says nothing of drafting for all.
        asked = 0 if is_probe or not has_drafts else max([part.draft_len for part in plan.slices])
        shape = StepShape(batch_size, asked, num_drafted)
        stats.record_step(shape, context, seconds - draft_seconds, draft_seconds)
        if self._table.budget is None:
            return
        if plan.probed is None:
            tokens = sum([len(outcome.new_tokens) for outcome in result.slices])
            self._prober.record(batch_size, plan.draft_len, seconds, tokens)
        else:
            own_tokens = len(result.slices[plan.probed].new_tokens)
            stats.probes += 1
            stats.probe_seconds += self._prober.record_probe(
                batch_size, plan.draft_len, seconds, own_tokens
            )

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
            num_cached_blocks=self._pool.cache.num_idle,
            prefix_cache_queries=self._scheduler.prefix_cache_queries,
            prefix_cache_hits=self._scheduler.prefix_cache_hits,
            num_waiting_tokens=self._scheduler.waiting_load.tokens,
            num_prompt_tokens=self._scheduler.num_prompt_tokens,
            num_preemptions=self._scheduler.num_preemptions,
        )

    def check_integrity(self) -> None:
        """Assert the invariants of the books (for tests)."""
        self._scheduler.check_integrity()

    def parts(self) -> tuple[Executor, Drafter, BlockPool]:
        """What a calibration or a rehearsal drives by itself, between two steps of an engine
        without requests.

        Blocks taken out of the pool must go back into it. Raises RuntimeError while there are
        requests: they would be written over.
        """
        if self.has_work:
            raise RuntimeError(
                f"{self._scheduler.num_running + self._scheduler.num_waiting} requests are in "
                "flight; an engine is driven by others while it has none"
            )
        return self._executor, self._drafter, self._pool

    @property
    def failure(self) -> str | None:
        """Why no step can succeed any more, where that is known before one is tried."""
        return self._executor.failure

    def close(self) -> None:
        self._executor.close()


def _num_accepted(deltas: list[TokenDelta]) -> int:
    return sum([delta.num_accepted for delta in deltas])


def _within(grammar: GrammarCursor, part: SeqSlice, draft: Draft) -> Draft:
    """The draft up to where the grammar refuses it: the rest would be for nothing."""
    if not draft.token_ids:
        return draft
    num_valid = grammar.valid_len(part.output(), draft.token_ids)
    if num_valid == len(draft.token_ids):
        return draft
    return Draft(draft.token_ids[:num_valid], draft.num_computed, draft.looked_up)
