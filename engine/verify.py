"""Which of the drafted tokens are kept.

Glossary: *accepted*, a draft token equal to what the target chooses at its position; *recovered*,
the target's token where the first draft token differs; *bonus*, the target's token behind a draft
that was accepted whole. Worked example: draft (5, 8, 2), the target chooses 5, 8, 9, 4: new tokens
(5, 8, 9), two accepted, 9 recovered; the 4 was computed behind a wrong token and means nothing.
"""

from collections.abc import Sequence as ReadOnly
from itertools import accumulate

from torch import Tensor

from engine.adjust import adjusted
from engine.errors import GrammarError
from engine.logprobs import token_logprobs
from engine.place import Place
from engine.plan import Draft, SeqSlice, SliceResult
from engine.request import TokenLogprobs
from engine.sampling import Choose


def verify(
    slices: ReadOnly[SeqSlice], drafts: ReadOnly[Draft], logits: Tensor, choose: Choose
) -> tuple[SliceResult, ...]:
    """What the target makes of each slice.

    `logits` [rows, vocab] holds, slice by slice, the rows of the known tokens from `logits_from`
    on, then one for each drafted token. The target's tokens are chosen place by place, for all
    sequences together, and no further than a sequence's draft is right: what stands behind a wrong
    token costs nothing.
    """
    first_rows = _first_rows(slices, drafts)
    chosen: list[list[int]] = [[] for _ in slices]
    errors: dict[int, str] = {}
    going_on = [index for index, part in enumerate(slices) if part.samples]
    offset = 0
    while going_on:
        reached, places, rows = [], [], []
        for index in going_on:
            place = Place(slices[index], drafts[index].token_ids[:offset])
            try:
                mask = _mask(place)
            except GrammarError as error:
                # Behind some kept tokens it is left to the next step, which begins at this place.
                if offset == 0:
                    errors[index] = str(error)
                continue
            reached.append(index)
            places.append(place)
            row = logits[first_rows[index] + slices[index].num_prompt_logprobs + offset]
            rows.append(adjusted(row, place, mask))
        for index, token in zip(reached, choose(rows, places), strict=True):
            chosen[index].append(token)
        going_on = [
            index
            for index in reached
            if drafts[index].token_ids[offset : offset + 1] == (chosen[index][-1],)
        ]
        offset += 1
    return tuple(
        SliceResult(error=errors[index])
        if index in errors
        else _result(part, tuple(chosen[index]), logits[first_rows[index] :])
        for index, part in enumerate(slices)
    )


def _first_rows(slices: ReadOnly[SeqSlice], drafts: ReadOnly[Draft]) -> list[int]:
    """Where each slice's rows of the logits begin."""
    counts = [
        part.end - part.logits_from + len(draft.token_ids)
        for part, draft in zip(slices, drafts, strict=True)
    ]
    return list(accumulate(counts, initial=0))


def _mask(place: Place) -> Tensor | None:
    grammar = place.part.grammar
    return None if grammar is None else grammar.mask(place.output())


def _result(part: SeqSlice, new_tokens: tuple[int, ...], logits: Tensor) -> SliceResult:
    """`logits` begins with the slice's own rows."""
    sampling, num_prompt = part.sampling, part.num_prompt_logprobs
    logprobs: tuple[TokenLogprobs, ...] = ()
    if sampling.logprobs is not None:
        own = logits[num_prompt : num_prompt + len(new_tokens)]
        logprobs = token_logprobs(own, new_tokens, sampling.logprobs)
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    if sampling.prompt_logprobs is not None and num_prompt:
        first = part.logits_from + 1
        told = part.tokens[first : first + num_prompt]
        prompt_logprobs = token_logprobs(logits[:num_prompt], told, sampling.prompt_logprobs)
    return SliceResult(new_tokens, logprobs, prompt_logprobs)
