"""An engine of thousands on a virtual clock: what `Engine.step` does, in a fraction of its time.

Most steps of a simulation only move decoding sequences on. Such a step is computed here in one
loop, without the plan, drafts and answers as data that a real target and drafter need. Whatever
has to be decided is still decided by the engine's own code: admission, shares of prompts, probes,
tables and budgets, and steps for which blocks might run out. That both ways come to the same, to
the last bit of every count and second, is what `tests/engine/test_quick_engine.py` holds.
"""

from collections import Counter
from typing import NamedTuple

from engine.config import EngineConfig
from engine.core import Engine
from engine.costed import TEXTS, CostedDrafter, CostedTarget, PassCosts
from engine.draft_record import DraftRecord
from engine.grammar import GrammarCompiler
from engine.luck import Luck
from engine.plan import NO_DRAFT, SeqSlice, SliceResult
from engine.request import TokenDelta
from engine.sequence import Sequence
from engine.shares import fair_shares
from engine.simulate import EOS, VOCAB_SIZE, VirtualClock
from policy.stats import Fate, StatsWindow, StepShape, batch_bucket
from policy.table import SpeculationTable


class Told(NamedTuple):
    """What a step comes to, as far as anybody outside waits for it."""

    first: list[TokenDelta]
    """First tokens of requests."""
    ended: list[str]
    first_s: list[float]
    """When each of the first tokens came, where it was more than a step."""


class QuickEngine(Engine):
    """An engine for requests of plain text, of one priority and of no tenant, each with
    `ignore_eos`. Its steps are taken by `quick_step`, or by `step`, in any order."""

    def __init__(
        self,
        config: EngineConfig,
        clock: VirtualClock,
        costs: PassCosts,
        luck: Luck,
        *,
        num_blocks: int,
        max_model_len: int,
        table: SpeculationTable,
    ) -> None:
        super().__init__(
            config,
            executor=CostedTarget(clock, costs),
            drafter=CostedDrafter(clock, costs, luck),
            num_blocks=num_blocks,
            max_model_len=max_model_len,
            vocab_size=VOCAB_SIZE,
            eos_token_ids=frozenset({EOS}),
            grammars=GrammarCompiler(config.model, VOCAB_SIZE, frozenset({EOS})),
            table=table,
            clock=clock,
        )
        self._virtual = clock
        self._costs = costs
        self._luck = luck
        self._max_step_tokens = config.max_step_tokens
        self._fates: Counter[tuple[int, int, int, bool, bool]] = Counter()
        """Rounds with drafts allowed that are not in the window yet: (batch, drafted, right,
        whether a model was asked, and the text). Sums of whole numbers come in any order."""
        self._has_drafted = False
        """Whether the draft model's KV can be in any block."""
        self._most_growth = -(-(config.max_draft_len + 1) // config.block_size)
        """Blocks that a sequence takes in a step, at most."""

    def output_lengths(self) -> list[tuple[str, int]]:
        """New tokens so far, of each running request."""
        running = self._scheduler._queues.running
        return [(seq.request_id, len(seq.tokens) - seq.num_prompt) for seq in running]

    def advance(self, until_s: float) -> Told:
        """Take the steps that begin at `until_s` or before, one after the other, as far as the
        first in which a request ends. The clock is then where the last of them ends."""
        told = Told([], [], [])
        while not told.ended and self._virtual() <= until_s and self.has_work:
            step = self.quick_step()
            told.ended.extend(step.ended)
            if step.first:
                told.first.extend(step.first)
                told.first_s.extend([self._virtual()] * len(step.first))
        return told

    def least_seconds_to_end(self) -> float:
        """From now on, before any request in flight can end; others may come meanwhile, and
        another table that asks for no longer drafts."""
        queues = self._scheduler._queues
        longest = self.longest_draft
        least_rounds = self._luck.least_rounds
        rounds = min(
            [
                least_rounds(
                    seq.request_id,
                    len(seq.tokens) - seq.num_prompt,
                    longest,
                    seq.max_len - seq.num_prompt,
                )
                for seq in (*queues.running, *queues.waiting)
            ]
        )
        # While none ends there are no fewer, unless one is preempted for want of blocks.
        growth = -(-rounds * (longest + 1) // self._pool.block_size) + 1
        size = self._scheduler.num_decoding
        if not size or growth * len(queues.running) > self._pool.num_free or queues.waiting:
            size = 1
        return rounds * self._costs.least_seconds(size)

    @property
    def longest_draft(self) -> int:
        """That the table in force, and its probes, may come to."""
        longest = self._table.max_draft_len
        if self._table.budget is not None:
            return self._scheduler._max_draft_len
        return min(longest, self._scheduler._max_draft_len)

    def drain_stats(self) -> StatsWindow:
        for (batch, length, right, asks_model, asks_text), times in self._fates.items():
            self._stats.record_rounds(length, right, right + 1, times)
            if asks_model or asks_text:
                fate = Fate(length, right, False, asks_model, asks_text)
                self._stats.record_drafts(batch, fate, times)
        self._fates.clear()
        return super().drain_stats()

    def quick_step(self) -> Told:
        """As `step`, of which it tells first tokens and ends alone."""
        table, further, budget = self._table, 0, self._table.budget
        if budget is not None:
            further = self._prober.further(budget.probe_share)
            if self._prober.is_plain_due:
                table, further = SpeculationTable(table.version, ()), 0
        scheduler = self._scheduler
        queues = scheduler._queues
        # Beyond these lie the cases that need more thought than time.
        num_running = len(queues.running) + len(queues.waiting)
        most_running = min(num_running, scheduler._max_num_seqs)
        has_room = self._pool.num_free >= self._most_growth * len(queues.running)
        if further or not has_room or most_running > self._max_step_tokens:
            return self._long_step()
        if queues.waiting:
            scheduler._admit(self._clock())
            if self._pool.num_free < self._most_growth * len(queues.running):
                return self._long_step()  # which admits nobody more
        running = queues.running
        decoding = [seq for seq in running if 0 < seq.num_computed == len(seq.tokens) - 1]
        parts: list[SeqSlice] = []
        if len(decoding) < len(running):
            prefilling = queues.prefilling
            pending = [seq.num_pending for seq in prefilling]
            shares = fair_shares(pending, self._max_step_tokens - len(decoding))
            parts = [
                scheduler._slice(seq, share, 0, 0)
                for seq, share in zip(prefilling, shares, strict=True)
                if share > 0
            ]
        elif not decoding:
            return Told([], [], [])
        return self._quick(table, decoding, parts)

    def _long_step(self) -> Told:
        by_id = dict(self._scheduler._queues._by_id)
        deltas = self.step()
        ended = [delta.request_id for delta in deltas if delta.finish_reason is not None]
        for request_id in ended:
            self._luck.forget(request_id)
        first = [
            delta
            for delta in deltas
            if 0 < len(delta.token_ids) == len(by_id[delta.request_id].output)
        ]
        return Told(first, ended, [])

    def _quick(
        self, table: SpeculationTable, decoding: list[Sequence], parts: list[SeqSlice]
    ) -> Told:
        scheduler, stats, pool = self._scheduler, self._stats, self._pool
        block_size, has_draft = pool.block_size, pool.cache._has_draft
        num_decoding = len(decoding)
        started = self._virtual()
        # plan: see Scheduler.plan
        rung = table.rung(num_decoding) if decoding else None
        lengths = table.lengths_of(rung)
        if max(lengths) > scheduler._max_draft_len:
            lengths = scheduler._capped(lengths)
        draft_len = max(lengths)
        budget = table.budget if draft_len and rung is not None else None
        modelled, looked_up = lengths
        if budget is not None and rung is not None:
            share, other = budget.modelled, budget.looked_up
            acceptance, break_even = share.acceptance, share.break_even[rung]
            longest = scheduler._max_draft_len
            # Nothing is looked up here, so that all records of it are as new.
            looked_up = DraftRecord().draft_len(other.acceptance, other.break_even[rung], longest)
        asked: list[tuple[int, int]] = []
        num_drafted = num_drafting = num_behind = draft_context = most_asked = 0
        for seq in decoding:
            num_tokens = len(seq.tokens)
            if draft_len:
                if budget is not None:
                    modelled = seq.modelled.draft_len(acceptance, break_even, longest)
                granted = modelled if modelled > looked_up else looked_up
                if granted:
                    granted = seq.useful_draft(granted)
                length = modelled if modelled < granted else granted
                asked.append((length, looked_up if looked_up < granted else granted))
                if num_tokens + granted > len(seq.block_ids) * block_size:
                    pool.grow(seq.block_ids, num_tokens + granted)
            elif num_tokens > len(seq.block_ids) * block_size:
                pool.grow(seq.block_ids, num_tokens)
            if self._has_drafted and has_draft[seq.block_ids[seq.draft_computed // block_size]]:
                scheduler._count_shared_draft_kv(seq)
            if draft_len and length:
                num_drafting += 1
                num_drafted += length
                num_behind += num_tokens - seq.draft_computed - 1
                draft_context += seq.draft_computed
                if length > most_asked:
                    most_asked = length
        num_prompt = sum([part.num_tokens for part in parts])
        self.step_tokens = num_decoding + num_prompt
        self._prober.planned(has_drafts=draft_len > 0, is_probe=False)
        # propose and execute
        now = started
        if num_drafting:
            self._has_drafted = True
            now += self._costs.draft_seconds(num_drafting, most_asked, num_behind, draft_context)
        draft_seconds = now - started
        starts = sum([seq.num_computed for seq in decoding])
        num_slices = num_decoding + len(parts)
        context = (starts + sum([part.start for part in parts])) / num_slices
        target_seconds = self._costs.target_seconds(num_decoding, num_drafted, num_prompt, context)
        now += target_seconds
        seconds = now - started
        self._virtual.advance_to(now)
        # commit and count: see Scheduler._book, Engine._record and Engine._count
        fates, rolls_of = self._fates, self._luck.of
        bucket = batch_bucket(num_decoding) if decoding else 0
        first: list[TokenDelta] = []
        ended: list[str] = []
        num_accepted = 0
        for index, seq in enumerate(decoding):
            tokens, start = seq.tokens, seq.num_computed
            length = right = 0
            if draft_len:
                length, lookup_len = asked[index]
                if length:
                    rolls, chances = rolls_of(seq.request_id, seq.request.sampling.max_tokens)
                    place = len(tokens) - seq.num_prompt
                    while right < length and rolls[place + right] < chances[right]:
                        right += 1
                    num_accepted += right
                    behind = seq.draft_computed
                    # The last token of a draft is never computed by its model.
                    computed = start + length if right == length else start + 1 + right
                    if computed > behind:
                        seq.draft_computed = computed
                seq.modelled.note(length, right)
                fates[bucket, length, right, length > 0, lookup_len > 0] += 1
            if len(tokens) == seq.num_prompt:  # all but its last token was found in the cache
                cached = seq.num_cached_tokens or 0
                first.append(TokenDelta(seq.request_id, TEXTS[right + 1], num_cached_tokens=cached))
            tokens += TEXTS[right + 1]
            seq.num_computed = end = start + 1 + right
            if start // block_size < end // block_size:
                scheduler._publish(seq, start // block_size)
            if length and behind // block_size < seq.draft_computed // block_size:
                scheduler._publish_draft(seq, behind // block_size)
            if len(tokens) >= seq.max_len:
                scheduler._queues.remove(seq)
                ended.append(seq.request_id)
        begun = {part.request_id for part in parts if len(part.tokens) == part.num_prompt}
        told = self._book_prompts(parts, notes_drafts=draft_len > 0)
        first += [delta for delta in told if delta.request_id in begun]
        ended += [delta.request_id for delta in told if delta.finish_reason is not None]
        for request_id in ended:
            self._luck.forget(request_id)
        self._steps += 1
        stats.steps += 1
        stats.steps_without_draft += not draft_len
        stats.draft_seconds += draft_seconds
        stats.target_seconds += target_seconds
        plain_rounds = len(told) if draft_len else len(told) + num_decoding
        if plain_rounds:
            stats.record_rounds(0, 0, 1, plain_rounds)
        self._throughput.note(self.step_tokens + num_accepted, seconds)
        if not parts:
            shape = StepShape(num_decoding, most_asked, num_drafted)
            stats.record_step(shape, context, seconds - draft_seconds, draft_seconds)
            if self._table.budget is not None:
                emitted = num_decoding + num_accepted
                self._prober.record(num_decoding, draft_len, seconds, emitted)
        return Told(first, ended, [])

    def _book_prompts(self, parts: list[SeqSlice], *, notes_drafts: bool) -> list[TokenDelta]:
        """First tokens, and those of sequences that go on after they were preempted."""
        scheduler, told = self._scheduler, []
        for part in parts:
            seq = scheduler._queues[part.request_id]
            outcome = SliceResult(TEXTS[1]) if part.samples else SliceResult()
            delta = scheduler._book(seq, part, NO_DRAFT, outcome, notes_drafts)
            if delta is not None:
                told.append(delta)
        return told
