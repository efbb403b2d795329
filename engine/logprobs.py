"""Log-probabilities of chosen tokens and of the likeliest ones, as the target has them."""

from collections.abc import Sequence as ReadOnly

from torch import Tensor

from engine.request import TokenLogprobs


def token_logprobs(
    logits: Tensor, token_ids: ReadOnly[int], num_top: int
) -> tuple[TokenLogprobs, ...]:
    """One for each row of the target's own logits, [rows, vocab]: before temperature and all else.

    Among equally likely tokens the rank counts those strictly likelier.
    """
    logprobs = logits.float().log_softmax(dim=-1)
    top = logprobs.topk(num_top, dim=-1) if num_top else None
    found = []
    for row, token in enumerate(token_ids):
        own = logprobs[row, token]
        found.append(
            TokenLogprobs(
                token_id=token,
                logprob=float(own),
                rank=int((logprobs[row] > own).sum()) + 1,
                top=()
                if top is None
                else tuple(zip(top.indices[row].tolist(), top.values[row].tolist(), strict=True)),
            )
        )
    return tuple(found)
