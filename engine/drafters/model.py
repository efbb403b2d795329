"""A small model as drafter, with a KV cache of its own in the target's blocks."""

from collections.abc import Sequence as ReadOnly

import torch
from torch import Tensor

from engine.adjust import adjusted, may_change_logits
from engine.errors import GrammarError
from engine.place import Place
from engine.plan import NO_DRAFT, Draft, SeqSlice
from engine.runner import ModelRunner, RunnerInput


class ModelDrafter:
    """Drafts with the target's sampling rule and the target's noise on the draft model's logits.

    Before it drafts for a sequence it computes whatever tokens its cache lacks: after the prompt,
    after a spell without drafts and after a draft that was kept whole, by the same code.
    """

    def __init__(
        self,
        runner: ModelRunner,
        *,
        max_len: int,
        draft_vocab: int,
        target_vocab: int,
        vocabulary: ReadOnly[int] | None,
        max_step_tokens: int,
    ) -> None:
        """`vocabulary`: the tokens that the draft's logits stand for; None: all, in order."""
        self._runner = runner
        self._max_len = max_len
        self._draft_vocab = draft_vocab
        self._shared_vocab = min(draft_vocab, target_vocab)
        self._vocabulary: Tensor | None = None
        if vocabulary is not None:
            shared = [token for token in vocabulary if token < self._shared_vocab]
            self._vocabulary = torch.tensor(shared, device=runner.device)
        self._max_step_tokens = max_step_tokens

    def propose(self, slices: ReadOnly[SeqSlice]) -> list[Draft]:
        lengths = [self._draft_len(part) for part in slices]
        drafted: list[list[int]] = [[] for _ in slices]
        active = [i for i, length in enumerate(lengths) if length > 0]
        inputs = self._catch_up([slices[i] for i in active])
        while active:
            tokens = self._choose(inputs, [slices[i] for i in active], [drafted[i] for i in active])
            for i, token in zip(active, tokens, strict=True):
                drafted[i].append(token)
            active = [i for i in active if len(drafted[i]) < lengths[i]]
            inputs = [
                RunnerInput(
                    token_ids=(drafted[i][-1],),
                    start=slices[i].end + len(drafted[i]) - 1,
                    block_ids=slices[i].block_ids,
                    num_logits=1,
                )
                for i in active
            ]
        return [
            Draft(tuple(tokens), part.end + len(tokens) - 1) if tokens else NO_DRAFT
            for part, tokens in zip(slices, drafted, strict=True)
        ]

    def _draft_len(self, part: SeqSlice) -> int:
        """The last draft token itself is never computed by the draft, hence the one more."""
        return max(0, min(part.draft_len, self._max_len - part.end + 1))

    def _catch_up(self, parts: list[SeqSlice]) -> list[RunnerInput]:
        """Compute missing tokens in chunks; what is left is the input whose last row is wanted."""
        starts = [part.draft_computed for part in parts]
        budget = max(1, self._max_step_tokens // max(1, len(parts)))
        while True:
            chunks = [
                self._known(part, start, start + budget, num_logits=0)
                for part, start in zip(parts, starts, strict=True)
                if part.end - start > budget
            ]
            if not chunks:
                break
            self._runner.forward(chunks)
            starts = [
                start + budget if part.end - start > budget else start
                for part, start in zip(parts, starts, strict=True)
            ]
        return [
            self._known(part, start, part.end, num_logits=1)
            for part, start in zip(parts, starts, strict=True)
        ]

    def _known(self, part: SeqSlice, start: int, end: int, num_logits: int) -> RunnerInput:
        # A token that the draft's embedding lacks is replaced: its guess suffers, nothing else.
        token_ids = [min(token, self._draft_vocab - 1) for token in part.tokens[start:end]]
        return RunnerInput(token_ids, start, part.block_ids, num_logits)

    def _choose(
        self, inputs: list[RunnerInput], parts: list[SeqSlice], drafted: list[list[int]]
    ) -> list[int]:
        logits = self._runner.forward(inputs)
        places = [Place(part, tuple(tokens)) for part, tokens in zip(parts, drafted, strict=True)]
        masks = [self._mask(place) for place in places]
        if self._vocabulary is not None:
            logits = logits[:, : len(self._vocabulary)]
            if not any(
                mask is not None or may_change_logits(place) or not place.sampling.is_greedy
                for mask, place in zip(masks, places, strict=True)
            ):
                chosen: list[int] = self._vocabulary[logits.argmax(dim=1)].tolist()
                return chosen
            # Noise, penalties and masks go by a token's id.
            whole = logits.new_full((len(logits), self._draft_vocab), -torch.inf)
            logits = whole.index_copy_(1, self._vocabulary, logits)
        rows = zip(logits[:, : self._shared_vocab].unbind(), places, masks, strict=True)
        return self._runner.choose([adjusted(*row) for row in rows], places)

    def _mask(self, place: Place) -> Tensor | None:
        grammar = place.part.grammar
        if grammar is None:
            return None
        try:
            mask = grammar.mask(place.output())
        except GrammarError:
            return None  # the guess will be refused; what is wrong is told by the target's pass
        return None if mask is None else mask[: self._shared_vocab]
