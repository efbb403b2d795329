"""What the parameters do to a place's logits before a token is chosen: the same at every place.

In this order: repetition, then frequency and presence penalties; logit_bias; then what must not
come: stop tokens before min_tokens, the last token of a bad word, whatever the grammar refuses.
Nothing here knows of drafts: a place says which tokens stand before it.
"""

from collections.abc import Sequence as ReadOnly

import torch
from torch import Tensor

from engine.place import Place


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
    for token, bias in place.sampling.logit_bias:
        if token < len(row):  # a draft's vocabulary may be smaller
            row[token] += bias
    _forbid(row, _forbidden(place), mask)


def _penalise(row: Tensor, place: Place) -> None:
    sampling, vocab = place.sampling, len(row)
    output = _counts(place.output(), row)
    if sampling.repetition_penalty != 1.0:
        seen = _counts(place.part.tokens[: place.part.num_prompt], row) + output > 0
        repeated = row * sampling.repetition_penalty
        repeated = torch.where(row > 0, row / sampling.repetition_penalty, repeated)
        torch.where(seen[:vocab], repeated, row, out=row)
    if sampling.frequency_penalty != 0.0:
        row -= sampling.frequency_penalty * output
    if sampling.presence_penalty != 0.0:
        row -= sampling.presence_penalty * (output > 0)


def _counts(tokens: ReadOnly[int], row: Tensor) -> Tensor:
    """How often each token of the row's vocabulary stands in `tokens`: [vocab]."""
    ids = torch.tensor(tokens, dtype=torch.long, device=row.device)
    return torch.bincount(ids, minlength=len(row))[: len(row)]


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
    ids = torch.tensor([token for token in tokens if token < len(row)], device=row.device).long()
    if mask is not None:
        row.masked_fill_(~mask, -torch.inf)
    before = row[ids]
    row[ids] = -torch.inf
    if len(ids) and row.max() == -torch.inf:
        row[ids] = before
