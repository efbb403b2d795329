"""Decides what each step computes and books what came of it: sequences and blocks are its own."""

from collections import deque
from collections.abc import Sequence as ReadOnly

from engine.blocks import BlockPool
from engine.plan import Draft, SeqSlice, SliceResult, StepPlan, StepResult
from engine.request import FinishReason, TokenDelta
from engine.sequence import Sequence
from policy.table import SpeculationTable


class Scheduler:
    """Continuous batching: computed tokens catch up with known tokens plus drafts.

    There are no phases. Decoding sequences go first (one pending token each, plus a draft), then
    the rest of the step's token budget goes to sequences with more pending tokens, oldest first,
    then to new ones. When blocks run out, drafts are dropped first, then the newest sequence is
    preempted: its blocks are freed and its tokens, kept, are computed again later.
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
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []  # in order of admission
        self._by_id: dict[str, Sequence] = {}

    # ---- what is where

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._by_id

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_decoding(self) -> int:
        return sum(seq.is_decoding for seq in self._running)

    def check_integrity(self) -> None:
        """Assert that every block has exactly one owner and every counter is in range."""
        owned = [block for seq in self._running for block in seq.block_ids]
        assert len(owned) == len(set(owned)), "a block has two owners"
        assert len(owned) + self._pool.num_free == self._pool.num_blocks, "blocks leaked"
        assert set(self._by_id) == {seq.request_id for seq in (*self._waiting, *self._running)}
        for seq in self._running:
            assert 0 <= seq.num_computed < len(seq.tokens) < seq.max_len
            assert 0 <= seq.draft_computed <= len(seq.tokens)
            assert len(seq.block_ids) >= self._pool.blocks_for(seq.num_computed)
        for seq in self._waiting:
            assert not seq.block_ids
            assert seq.num_computed == seq.draft_computed == 0

    # ---- in and out

    def add(self, seq: Sequence) -> None:
        self._by_id[seq.request_id] = seq
        self._waiting.append(seq)

    def abort(self, request_id: str) -> bool:
        """Forget a request and free its blocks; False if it is not in flight."""
        seq = self._by_id.get(request_id)
        if seq is None:
            return False
        if seq in self._running:
            self._finish(seq)
        else:
            self._waiting.remove(seq)
            del self._by_id[request_id]
        return True

    # ---- plan

    def plan(self, table: SpeculationTable) -> StepPlan:
        """The next step; no slices when there is nothing to do."""
        decoding = [seq for seq in self._running if seq.is_decoding]
        prefilling = [seq for seq in self._running if not seq.is_decoding]
        draft_len = min(table.draft_len(len(decoding)), self._max_draft_len) if decoding else 0
        budget = self._max_step_tokens
        slices: list[SeqSlice] = []
        preempted = False
        for seq in (*decoding, *prefilling):
            if budget == 0:
                break
            if seq not in self._running:
                continue  # preempted a moment ago to make room
            wanted = min(draft_len, seq.max_useful_draft()) if seq.is_decoding else 0
            num_tokens = min(seq.num_pending, budget)
            granted = self._make_room(seq, num_tokens, wanted, planned=slices)
            preempted = preempted or granted != wanted
            if granted is None:
                continue
            slices.append(self._slice(seq, num_tokens, granted))
            budget -= num_tokens
        if not preempted:
            self._admit(slices, budget)
        return StepPlan(table.version, len(decoding), draft_len, tuple(slices))

    def _make_room(
        self, seq: Sequence, num_tokens: int, draft_len: int, planned: list[SeqSlice]
    ) -> int | None:
        """Give `seq` blocks for the step: the draft length granted, or None if it was preempted."""
        computed = seq.num_computed + num_tokens
        if self._pool.grow(seq.block_ids, computed + draft_len):
            return draft_len
        while not self._pool.grow(seq.block_ids, computed):
            victim = self._running[-1]
            self._preempt(victim)
            planned[:] = [part for part in planned if part.request_id != victim.request_id]
            if victim is seq:
                return None
        return 0

    def _preempt(self, seq: Sequence) -> None:
        self._running.remove(seq)
        self._pool.release(seq.block_ids)
        seq.num_computed = seq.draft_computed = 0
        self._waiting.appendleft(seq)

    def _admit(self, slices: list[SeqSlice], budget: int) -> None:
        while self._waiting and budget > 0 and len(self._running) < self._max_num_seqs:
            seq = self._waiting[0]
            # One block is left over for each running sequence, so that an admission is not
            # undone by the next step's growth.
            needed = self._pool.blocks_for(len(seq.tokens) + 1)
            if self._running and needed + len(self._running) > self._pool.num_free:
                break
            self._pool.grow(seq.block_ids, len(seq.tokens))
            self._waiting.popleft()
            self._running.append(seq)
            num_tokens = min(seq.num_pending, budget)
            slices.append(self._slice(seq, num_tokens, 0))
            budget -= num_tokens

    def _slice(self, seq: Sequence, num_tokens: int, draft_len: int) -> SeqSlice:
        end = seq.num_computed + num_tokens
        samples = num_tokens == seq.num_pending
        logits_from = end - samples
        if seq.wants_prompt_logprobs:
            logits_from = min(logits_from, max(seq.num_computed, seq.num_prompt_logprobs))
        return SeqSlice(
            request_id=seq.request_id,
            tokens=seq.tokens,
            num_prompt=seq.num_prompt,
            start=seq.num_computed,
            num_tokens=num_tokens,
            block_ids=seq.block_ids,
            draft_len=draft_len,
            draft_computed=seq.draft_computed,
            samples=samples,
            logits_from=logits_from,
            sampling=seq.request.sampling,
            seed=seq.seed,
            stop_ids=seq.stop_ids,
            grammar=seq.grammar,
        )

    # ---- commit

    def commit(
        self, plan: StepPlan, drafts: ReadOnly[Draft], result: StepResult
    ) -> list[TokenDelta]:
        """Book a step. A rejected draft is forgotten by not counting it; its KV is overwritten."""
        deltas: list[TokenDelta] = []
        for part, draft, outcome in zip(plan.slices, drafts, result.slices, strict=True):
            seq = self._by_id[part.request_id]
            seq.num_computed = part.end
            seq.num_prompt_logprobs += len(outcome.prompt_logprobs)
            if outcome.error is not None:
                self._finish(seq)
                deltas.append(
                    TokenDelta(seq.request_id, (), FinishReason.ERROR, error=outcome.error)
                )
            elif part.samples:
                deltas.append(self._advance(seq, part, draft, outcome))
            elif outcome.prompt_logprobs:
                deltas.append(
                    TokenDelta(seq.request_id, (), prompt_logprobs=outcome.prompt_logprobs)
                )
        return deltas

    def _advance(
        self, seq: Sequence, part: SeqSlice, draft: Draft, outcome: SliceResult
    ) -> TokenDelta:
        """Book the new tokens of one sequence, up to its end, wherever in the block that is."""
        num_accepted = len(outcome.new_tokens) - 1
        seq.num_computed += num_accepted
        seq.draft_computed = max(
            seq.draft_computed, min(draft.num_computed, part.end + num_accepted)
        )
        emitted: list[int] = []
        reason = None
        for token in outcome.new_tokens:
            seq.tokens.append(token)
            emitted.append(token)
            reason = self._end(seq, token)
            if reason is not None:
                self._finish(seq)
                break
        return TokenDelta(
            request_id=seq.request_id,
            token_ids=tuple(emitted),
            finish_reason=reason,
            num_drafted=len(draft.token_ids),
            # Of what is emitted, the last token is the target's own.
            num_accepted=len(emitted) - 1,
            logprobs=outcome.logprobs[: len(emitted)],
            prompt_logprobs=outcome.prompt_logprobs,
            ends_with_stop_token=reason is not None and emitted[-1] in seq.stop_ids,
        )

    def _end(self, seq: Sequence, token: int) -> FinishReason | None:
        """Why the sequence ends with `token`, its last; None if it goes on."""
        if token in seq.stop_ids:
            return FinishReason.STOP
        if seq.grammar is not None and seq.grammar.has_ended(seq.output):
            return FinishReason.STOP
        return FinishReason.LENGTH if len(seq.tokens) >= seq.max_len else None

    def _finish(self, seq: Sequence) -> None:
        self._running.remove(seq)
        self._pool.release(seq.block_ids)
        del self._by_id[seq.request_id]
