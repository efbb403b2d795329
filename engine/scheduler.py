"""Decides what each step computes and books what came of it: sequences and blocks are its own."""

import operator
from collections.abc import Sequence as ReadOnly

from engine.admission import Load
from engine.blocks import BlockPool
from engine.plan import Draft, SeqSlice, SliceResult, StepPlan, StepResult
from engine.prefix_cache import extend_digests
from engine.queues import Queues
from engine.request import FinishReason, TokenDelta
from engine.sequence import Sequence
from engine.shares import fair_shares
from policy.table import Budget, Lengths, SpeculationTable


class Scheduler:
    """Continuous batching: computed tokens catch up with known tokens plus drafts.

    There are no phases. First the waiting are admitted, as far as slots, blocks and the step's
    token budget go; what the prefix cache holds of them counts as computed. Then decoding sequences
    get one token each, plus a draft, and those with more pending tokens share what is left of the
    budget. Everywhere the lower rank (priority, arrival) goes first, but that among waiting ones of
    equal priority the tenant that was served least does (`turns.py`).

    When blocks run out, drafts are dropped first, then the running sequence of the highest rank is
    preempted: its blocks are let go, and its tokens, kept, are computed again later unless they are
    still found. A waiting sequence of a better priority makes its way in by the same means.
    """

    def __init__(
        self,
        pool: BlockPool,
        *,
        max_num_seqs: int,
        max_step_tokens: int,
        max_draft_len: int,
    ) -> None:
        self._pool = pool
        self._max_num_seqs = max_num_seqs
        self._max_step_tokens = max_step_tokens
        self._max_draft_len = max_draft_len
        self._queues = Queues(pool)
        self._num_probes = 0
        self.prefix_cache_queries = 0
        """Prompt tokens that were looked up in the prefix cache, since the start."""
        self.prefix_cache_hits = 0
        """Of them, those found."""
        self.num_prompt_tokens = 0
        """Of the sequences that were admitted, since the start."""

    # ---- what is where

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._queues

    @property
    def num_waiting(self) -> int:
        return len(self._queues.waiting)

    @property
    def num_running(self) -> int:
        return len(self._queues.running)

    @property
    def num_decoding(self) -> int:
        return len(self._queues.decoding)

    @property
    def num_preemptions(self) -> int:
        """Since the start."""
        return self._queues.num_preemptions

    @property
    def waiting_load(self) -> Load:
        """What waits."""
        return self._queues.load

    def waiting_load_of(self, tenant: str) -> Load:
        """A tenant's part of it."""
        return self._queues.load_of(tenant)

    @property
    def num_outstanding(self) -> int:
        """Tokens to compute until all in flight have ended, if none ends early."""
        running = sum(seq.max_len - seq.num_computed for seq in self._queues.running)
        return running + self._queues.load.tokens

    def check_integrity(self) -> None:
        """Assert that every block's owners are known and every counter is in range."""
        self._queues.check_integrity()

    # ---- in and out

    def add(self, seq: Sequence) -> None:
        self._queues.add(seq)

    def abort(self, request_id: str) -> bool:
        """Forget a request and free its blocks; False if it is not in flight."""
        if request_id not in self._queues:
            return False
        self._queues.remove(self._queues[request_id])
        return True

    # ---- admit

    def _admit(self, now_s: float) -> None:
        """Let the waiting in, in turn, until one finds no room.

        One whose next block a running sequence is about to compute stays out for this step: so
        requests with the same prompt, sent together, compute it once.
        """
        block_size = self._pool.block_size
        if not self._queues.waiting:
            return
        prefilling = self._queues.prefilling
        under_way = self._under_way(prefilling)
        lines = self._queues.lines
        turns = lines.turns()
        while (seq := turns.next()) is not None:
            extend_digests(seq.digests, seq.tokens, block_size, seq.request.cache_salt)
            if self._awaits(seq, under_way):
                turns.pass_over(seq)
                continue
            found = self._pool.cache.find(seq.digests, seq.num_reusable // block_size)
            if not self._has_share(seq, prefilling) or not (
                self._has_room(seq, found) or self._make_way(seq, found)
            ):
                break
            self._queues.start(seq, found)
            if seq.num_cached_tokens is None:
                # Of one that another engine began, more than the prompt may be there.
                seq.num_cached_tokens = min(seq.num_computed, seq.num_prompt)
                seq.queue_seconds = now_s - seq.came_at_s
                self.num_prompt_tokens += seq.num_prompt
                lines.charge_prompt(seq, seq.num_prompt - seq.num_cached_tokens)
                if not seq.wants_prompt_logprobs:
                    self.prefix_cache_queries += seq.num_prompt
                    self.prefix_cache_hits += seq.num_cached_tokens
            prefilling = self._queues.prefilling
            under_way = self._under_way(prefilling)

    def _under_way(self, prefilling: list[Sequence]) -> dict[int, dict[bytes, tuple[int, int]]]:
        """The blocks that prefilling sequences are at and that nobody can find yet: for each index
        within a sequence, their digests, with the lowest rank of those at them."""
        found: dict[int, dict[bytes, tuple[int, int]]] = {}
        for seq in prefilling:
            index = seq.num_computed // self._pool.block_size
            if index < len(seq.digests) and seq.digests[index] not in self._pool.cache:
                found.setdefault(index, {}).setdefault(seq.digests[index], seq.rank)
        return found

    def _awaits(self, seq: Sequence, under_way: dict[int, dict[bytes, tuple[int, int]]]) -> bool:
        """Whether a sequence of a lower rank is at a block that `seq` needs."""
        limit = seq.num_reusable // self._pool.block_size
        return any(
            index < limit and ranks.get(seq.digests[index], seq.rank) < seq.rank
            for index, ranks in under_way.items()
        )

    def _has_share(self, seq: Sequence, prefilling: list[Sequence]) -> bool:
        """Whether the step's token budget would leave something for `seq`."""
        before = [other.num_pending for other in prefilling if other.rank < seq.rank]
        budget = max(0, self._max_step_tokens - (self.num_running - len(prefilling)))
        return fair_shares([*before, seq.num_pending], budget)[-1] > 0

    def _has_room(self, seq: Sequence, found: list[int]) -> bool:
        """Whether there are a slot and blocks for `seq`, which shares the `found` ones."""
        num_running = self.num_running
        needed = self._pool.blocks_for(len(seq.tokens) + 1) - self._pool.num_in_use(found)
        # One block is left over for each running sequence, so that an admission is not undone by
        # this step's growth. An idle engine has room for any sequence.
        fits = num_running == 0 or needed + num_running <= self._pool.num_free
        return num_running < self._max_num_seqs and fits

    def _make_way(self, seq: Sequence, found: list[int]) -> bool:
        """Preempt running sequences of a worse priority if `seq` has room then, else none."""
        running = self._queues.running
        staying = [other for other in running if other.request.priority <= seq.request.priority]
        if len(staying) == len(running):
            return False
        kept = {block for other in staying for block in other.block_ids}
        needed = self._pool.blocks_for(len(seq.tokens) + 1) - len(kept.intersection(found))
        if staying and needed + len(staying) > self._pool.num_blocks - len(kept):
            return False
        while not self._has_room(seq, found):
            self._queues.preempt()
        return True

    # ---- plan

    def plan(self, table: SpeculationTable, further: int = 0, now_s: float = 0.0) -> StepPlan:
        """The next step; no slices when there is nothing to do. `further`: so many tokens more than
        the table's length one sequence may draft. `now_s`: on the clock of `came_at_s`."""
        self._admit(now_s)
        decoding = self._queues.decoding
        rung = table.rung(len(decoding)) if decoding else None
        lengths = self._capped(table.lengths_of(rung))
        draft_len = lengths.longest
        probed = self._probed(decoding, draft_len) if decoding and further else None
        probed_slice = None
        all_decode = len(decoding) == self.num_running
        slices: list[SeqSlice] = []
        block_size = self._pool.block_size
        for seq in decoding[: self._max_step_tokens]:
            own = lengths
            if draft_len and rung is not None and table.budget is not None:
                own = self._own(seq, table.budget, rung)
            usual = own
            # One whose drafts fare ill has its answer; the next step asks another.
            if seq is probed and all(map(operator.ge, own, lengths)):
                own = self._capped(Lengths(own.modelled + further, own.looked_up + further))
            granted = seq.useful_draft(own.longest) if own.longest else 0
            if len(seq.tokens) + granted > len(seq.block_ids) * block_size:
                granted = self._make_room(seq, granted)
                if not seq.is_running:
                    break  # preempted, and so is whoever comes behind
            own = Lengths(min(own.modelled, granted), min(own.looked_up, granted))
            if any(map(operator.gt, own, usual)):
                probed_slice = len(slices)
            slices.append(self._slice(seq, 1, *own))
        prefilling = [] if all_decode else self._queues.prefilling
        budget = self._max_step_tokens - len(slices)
        shares = fair_shares([seq.num_pending for seq in prefilling], budget)
        slices += [
            self._slice(seq, share, 0, 0)
            for seq, share in zip(prefilling, shares, strict=True)
            if share > 0
        ]
        return StepPlan(table.version, len(decoding), draft_len, tuple(slices), probed_slice)

    def _own(self, seq: Sequence, budget: Budget, rung: int) -> Lengths:
        """What its own drafts are worth."""
        modelled, looked_up = budget.modelled, budget.looked_up
        longest = self._max_draft_len
        return Lengths(
            seq.modelled.draft_len(modelled.acceptance, modelled.break_even[rung], longest),
            seq.looked_up.draft_len(looked_up.acceptance, looked_up.break_even[rung], longest),
        )

    def _capped(self, lengths: Lengths) -> Lengths:
        """A table may ask for longer drafts than the engine makes."""
        return Lengths(*(min(length, self._max_draft_len) for length in lengths))

    def _probed(self, decoding: list[Sequence], draft_len: int) -> Sequence:
        """Each in turn where all draft. Else the one whose draft costs least to make: the draft
        model has read more of it than of others; each in turn where it has read none, or there is
        no model."""
        self._num_probes += 1
        best = max(decoding, key=lambda seq: seq.draft_computed)
        if best.draft_computed and not draft_len:
            return best
        return decoding[self._num_probes % len(decoding)]

    def _make_room(self, seq: Sequence, draft_len: int) -> int:
        """Give a decoding sequence blocks, unless it is preempted: the draft length granted.

        Only decoding sequences grow, the lowest rank first, so no slice is ever planned in vain.
        """
        if seq.is_running and self._pool.grow(seq.block_ids, len(seq.tokens) + draft_len):
            return draft_len
        while seq.is_running and not self._pool.grow(seq.block_ids, len(seq.tokens)):
            self._queues.preempt()
        return 0

    def _slice(self, seq: Sequence, num_tokens: int, draft_len: int, lookup_len: int) -> SeqSlice:
        if self._pool.cache.has_draft(seq.block_ids[seq.draft_computed // self._pool.block_size]):
            self._count_shared_draft_kv(seq)
        start, sampling = seq.num_computed, seq.request.sampling
        end = start + num_tokens
        samples = end == len(seq.tokens)
        logits_from = end - samples
        if sampling.prompt_logprobs is not None and seq.wants_prompt_logprobs:
            logits_from = min(logits_from, max(start, seq.num_prompt_logprobs))
        # Made for every sequence at every step, and so in a third of the constructor's time.
        return SeqSlice._make(
            (
                seq.request_id,
                seq.tokens,
                seq.num_prompt,
                start,
                num_tokens,
                seq.block_ids,
                draft_len,
                lookup_len,
                seq.draft_computed,
                samples,
                logits_from,
                sampling,
                seq.seed,
                seq.stop_ids,
                seq.grammar,
            )
        )

    def _count_shared_draft_kv(self, seq: Sequence) -> None:
        """Move `draft_computed` past blocks that the draft computed, for whichever sequence."""
        index = seq.draft_computed // self._pool.block_size
        while index < len(seq.block_ids) and self._pool.cache.has_draft(seq.block_ids[index]):
            index += 1
            seq.draft_computed = index * self._pool.block_size

    # ---- commit

    def commit(
        self, plan: StepPlan, drafts: ReadOnly[Draft], result: StepResult
    ) -> list[TokenDelta]:
        """Book a step. A rejected draft is forgotten by not counting it; its KV is overwritten."""
        notes_drafts = plan.asks_for_drafts
        booked = [
            self._book(self._queues[part.request_id], part, draft, outcome, notes_drafts)
            for part, draft, outcome in zip(plan.slices, drafts, result.slices, strict=True)
        ]
        return [delta for delta in booked if delta is not None]

    def _book(
        self,
        seq: Sequence,
        part: SeqSlice,
        draft: Draft,
        outcome: SliceResult,
        notes_drafts: bool,
    ) -> TokenDelta | None:
        """Book one sequence's part of a step: what there is to tell of it, if anything."""
        is_first = len(seq.tokens) == seq.num_prompt
        emitted, reason = seq.extend(outcome.new_tokens)
        # Of what is emitted, the last token is the target's own, or the last of all.
        num_accepted = len(emitted) - 1 if emitted else 0
        seq.num_computed = part.start + part.num_tokens + num_accepted
        if notes_drafts and emitted:
            seq.note_draft(len(draft.token_ids), num_accepted, looked_up=draft.looked_up)
        if draft.num_computed > seq.draft_computed:
            seq.draft_computed = min(draft.num_computed, seq.num_computed)
        if emitted and self._queues.lines.are_counted:
            self._queues.lines.charge_output(seq, len(emitted))
        if outcome.prompt_logprobs:
            seq.num_prompt_logprobs += len(outcome.prompt_logprobs)
        size = self._pool.block_size
        if part.start // size < seq.num_computed // size:
            self._publish(seq, part.start // size)
        if part.draft_computed < seq.draft_computed:
            self._publish_draft(seq, part.draft_computed // size)
        if outcome.error is not None:
            reason = FinishReason.ERROR
        if reason is not None:
            self._queues.remove(seq)
        elif not emitted and not outcome.prompt_logprobs:
            return None
        return TokenDelta._make(  # as in `_slice`
            (
                seq.request_id,
                emitted,
                reason,
                len(draft.token_ids) if emitted else 0,
                num_accepted,
                outcome.logprobs and outcome.logprobs[: len(emitted)],
                outcome.prompt_logprobs,
                (seq.num_cached_tokens or 0) if is_first and emitted else 0,
                outcome.error,
                reason is not None and not seq.stop_ids.isdisjoint(emitted[-1:]),
                seq.queue_seconds if is_first and emitted else 0.0,
            )
        )

    def _publish(self, seq: Sequence, first: int) -> None:
        """Make findable the blocks from `first` on that the target has filled. Rejected drafts are
        not counted in it."""
        size = self._pool.block_size
        extend_digests(seq.digests, seq.tokens, size, seq.request.cache_salt)
        for index in range(first, seq.num_computed // size):
            self._pool.cache.publish(seq.block_ids[index], seq.digests[index])

    def _publish_draft(self, seq: Sequence, first: int) -> None:
        """The same for those that the draft model has filled, after the target."""
        for index in range(first, seq.draft_computed // self._pool.block_size):
            self._pool.cache.publish_draft(seq.block_ids[index])
