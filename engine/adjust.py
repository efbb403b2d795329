"""What the parameters do to a place's logits before a token is chosen: the same at every place.

In this order: repetition, then frequency and presence penalties; logit_bias; then what must not
come: stop tokens before min_tokens, the last token of a bad word, whatever the grammar refuses.
Nothing here knows of drafts: a place says which tokens stand before it.
"""

from collections.abc import Sequence as ReadOnly

import torch
from torch import Tensor

from engine.place import Place

_FLOAT32 = torch.finfo(torch.float32)


def adjusted(logits: Tensor, place: Place, mask: Tensor | None) -> Tensor:
    """[vocab]: `logits` itself if nothing is to change, else a float32 copy.

    `mask` holds the tokens that the place's grammar allows: bool [vocab], None for any.
    """
    sampling, forbidden = place.sampling, _forbidden(place)
    if not (sampling.has_penalties or sampling.logit_bias or forbidden):
        return logits if mask is None else _masked(logits.float(), mask)
    row = logits.to(torch.float32, copy=True)
    if sampling.has_penalties:
        _penalise(row, place)
    if sampling.logit_bias:
        bias_of = {t: bias for t, bias in sampling.logit_bias if t < len(row)}
        row.index_add_(0, _ids([*bias_of], row), row.new_tensor([*bias_of.values()]))
    if mask is not None:
        row = _masked(row, mask)
    _forbid(row, forbidden)
    return row


def may_change_logits(place: Place) -> bool:
    """Whether anything but a grammar may change the place's logits."""
    sampling = place.sampling
    return bool(
        sampling.has_penalties
        or sampling.logit_bias
        or sampling.bad_words
        or place.num_output < sampling.min_tokens
    )


def _masked(row: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, row, -torch.inf)


def _penalise(row: Tensor, place: Place) -> None:
    sampling = place.sampling
    output = _ids(place.output(), row)
    if sampling.repetition_penalty != 1.0:
        # A token that stands there twice is written twice, with the same value.
        seen = torch.cat((_ids(place.part.tokens[: place.part.num_prompt], row), output))
        # Beyond float32 it would be infinite or 0, and 0 * inf or 0 / 0 is no number.
        penalty = min(max(sampling.repetition_penalty, _FLOAT32.tiny), _FLOAT32.max)
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


def _forbid(row: Tensor, tokens: list[int]) -> None:
    """Take out tokens. Where nothing would be left, they stay: an answer that ends too early is
    better than one that breaks its grammar."""
    if not tokens:
        return
    ids = _ids(tokens, row)
    before = row[ids]
    row[ids] = -torch.inf
    if row.max() == -torch.inf:
        row[ids] = before
