"""Which of the drafted tokens are kept.

Glossary: *accepted*, a draft token equal to what the target chooses at its position; *recovered*,
the target's token where the first draft token differs; *bonus*, the target's token behind a draft
that was accepted whole. Worked example: draft (5, 8, 2), the target chooses 5, 8, 9, 4: new tokens
(5, 8, 9), two accepted, 9 recovered; the 4 was computed behind a wrong token and means nothing.
"""

from collections.abc import Sequence as ReadOnly

from torch import Tensor

from engine.adjust import adjusted
from engine.errors import GrammarError
from engine.logprobs import token_logprobs
from engine.place import Place
from engine.plan import Draft, SeqSlice, SliceResult
from engine.sampling import choose_rows


def verify(
    slices: ReadOnly[SeqSlice], drafts: ReadOnly[Draft], logits: Tensor
) -> tuple[SliceResult, ...]:
    """What the target makes of each slice.

    `logits` [rows, vocab] holds, slice by slice, the rows of the known tokens from `logits_from`
    on, then one for each drafted token.
    """
    places: list[Place] = []
    masks: list[Tensor | None] = []
    rows: list[int] = []
    errors: dict[int, str] = {}
    end = 0
    for index, (part, draft) in enumerate(zip(slices, drafts, strict=True)):
        end += part.end - part.logits_from + len(draft.token_ids)
        if not part.samples:
            continue
        own = [Place(part, draft.token_ids[:kept]) for kept in range(len(draft.token_ids) + 1)]
        try:
            own_masks = [_mask(place) for place in own]
        except GrammarError as error:
            errors[index] = str(error)
            continue
        places += own
        masks += own_masks
        rows += range(end - len(own), end)
    tokens = iter(_chosen(logits, rows, places, masks))
    results: list[SliceResult] = []
    start = 0
    for index, (part, draft) in enumerate(zip(slices, drafts, strict=True)):
        end = start + part.end - part.logits_from + len(draft.token_ids)
        if index in errors:
            results.append(SliceResult(error=errors[index]))
        else:
            chosen = [next(tokens) for _ in range(len(draft.token_ids) + 1)] if part.samples else []
            results.append(_result(part, draft, chosen, logits[start:end]))
        start = end
    return tuple(results)


def _mask(place: Place) -> Tensor | None:
    grammar = place.part.grammar
    return None if grammar is None else grammar.mask(place.output())


def _chosen(
    logits: Tensor, rows: list[int], places: list[Place], masks: list[Tensor | None]
) -> list[int]:
    if not places:
        return []
    if len(rows) < len(logits):
        logits = logits[rows]
    return choose_rows(adjusted(logits, places, masks), places)


def _result(part: SeqSlice, draft: Draft, chosen: list[int], logits: Tensor) -> SliceResult:
    """`chosen` holds the target's token at each place; `logits` the slice's own rows."""
    num_prompt = part.num_prompt_logprobs
    kept = tuple(chosen[: _num_accepted(draft.token_ids, chosen) + 1])
    sampling = part.sampling
    return SliceResult(
        new_tokens=kept,
        logprobs=()
        if sampling.logprobs is None
        else token_logprobs(
            logits[num_prompt : num_prompt + len(kept)], kept, sampling.logprobs
        ),
        prompt_logprobs=()
        if sampling.prompt_logprobs is None
        else token_logprobs(
            logits[:num_prompt],
            part.tokens[part.logits_from + 1 : part.logits_from + 1 + num_prompt],
            sampling.prompt_logprobs,
        ),
    )


def _num_accepted(draft: tuple[int, ...], chosen: list[int]) -> int:
    """Draft tokens before the first one that the target would not have chosen."""
    for count, token in enumerate(draft):
        if chosen[count] != token:
            return count
    return len(draft)
