"""What the parameters do to a place's logits before a token is chosen: the same at every place.

In this order: repetition, then frequency and presence penalties; logit_bias; then what must not
come: stop tokens before min_tokens, the last token of a bad word, whatever the grammar refuses.
Nothing here knows of drafts: a place says which tokens stand before it.
"""

from collections.abc import Sequence as ReadOnly

import torch
from torch import Tensor

from engine.place import Place

FLOAT32 = torch.finfo(torch.float32)


def adjusted(logits: Tensor, places: ReadOnly[Place], masks: ReadOnly[Tensor | None]) -> Tensor:
    """[rows, vocab], one row a place; `logits` itself if no row is to change, else a float32 copy.

    `masks` holds, for each place, the tokens its grammar allows: bool [vocab], None for any.
    """
    changing = [
        row
        for row, (place, mask) in enumerate(zip(places, masks, strict=True))
        if mask is not None or _is_adjusted(place)
    ]
    if not changing:
        return logits
    changed = logits.to(torch.float32, copy=True)
    for row in changing:
        _adjust(changed[row], places[row], masks[row])
    return changed


def _is_adjusted(place: Place) -> bool:
    sampling = place.sampling
    return bool(
        sampling.has_penalties
        or sampling.logit_bias
        or sampling.bad_words
        or place.num_output < sampling.min_tokens
    )


def _adjust(row: Tensor, place: Place, mask: Tensor | None) -> None:
    """Change one row, [vocab], in place."""
    if place.sampling.has_penalties:
        _penalise(row, place)
    if place.sampling.logit_bias:
        bias_of = {t: bias for t, bias in place.sampling.logit_bias if t < len(row)}
        row.index_add_(0, _ids([*bias_of], row), row.new_tensor([*bias_of.values()]))
    _forbid(row, _forbidden(place), mask)


def _penalise(row: Tensor, place: Place) -> None:
    sampling = place.sampling
    output = _ids(place.output(), row)
    if sampling.repetition_penalty != 1.0:
        # A token that stands there twice is written twice, with the same value.
        seen = torch.cat((_ids(place.part.tokens[: place.part.num_prompt], row), output))
        # Beyond float32 it would be infinite or 0, and 0 * inf or 0 / 0 is no number.
        penalty = min(max(sampling.repetition_penalty, FLOAT32.tiny), FLOAT32.max)
        before = row[seen]
        row[seen] = torch.where(before > 0, before / penalty, before * penalty)
    if sampling.frequency_penalty != 0.0:
        row.index_add_(0, output, row.new_full((len(output),), -sampling.frequency_penalty))
    if sampling.presence_penalty != 0.0:
        row[output] = row[output] - sampling.presence_penalty


def _ids(tokens: ReadOnly[int], row: Tensor) -> Tensor:
    """As an index into the row; a draft's vocabulary may lack some."""
    ids = torch.tensor(tokens, dtype=torch.long, device=row.device)
    return ids[ids < len(row)]


def _forbidden(place: Place) -> list[int]:
    sampling = place.sampling
    tokens: list[int] = []
    if place.num_output < sampling.min_tokens:
        tokens += sorted(place.part.stop_ids)
    if sampling.bad_words:
        output = place.output()
        tokens += [
            word[-1]
            for word in sampling.bad_words
            if len(word) == 1 or output[1 - len(word) :] == list(word[:-1])
        ]
    return tokens


def _forbid(row: Tensor, tokens: list[int], mask: Tensor | None) -> None:
    """Take out tokens and what the mask hides. Where nothing would be left, the tokens stay: an
    answer that ends too early is better than one that breaks its grammar."""
    ids = _ids(tokens, row)
    if mask is not None:
        row.masked_fill_(~mask, -torch.inf)
    before = row[ids]
    row[ids] = -torch.inf
    if len(ids) and row.max() == -torch.inf:
        row[ids] = before
