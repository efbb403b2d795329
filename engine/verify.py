"""Which of the drafted tokens are kept.

Glossary: *accepted*, a draft token equal to what the target chooses at its position; *recovered*,
the target's token where the first draft token differs; *bonus*, the target's token behind a draft
that was accepted whole. Worked example: draft (5, 8, 2), the target chooses 5, 8, 9, 4: new tokens
(5, 8, 9), two accepted, 9 recovered; the 4 was computed behind a wrong token and means nothing.
"""

from collections.abc import Sequence as ReadOnly

from torch import Tensor

from engine.plan import Draft, SeqSlice
from engine.sampling import choose, choose_greedy


def verify(
    slices: ReadOnly[SeqSlice], drafts: ReadOnly[Draft], logits: Tensor
) -> tuple[tuple[int, ...], ...]:
    """New tokens of each slice: accepted ones, then the recovered or bonus one.

    `logits` [rows, vocab] holds, slice by slice, len(draft) + 1 rows for each slice that samples.
    """
    greedy = choose_greedy(logits) if any(p.sampling.is_greedy for p in slices) else []
    new_tokens: list[tuple[int, ...]] = []
    row = 0
    for part, draft in zip(slices, drafts, strict=True):
        if not part.samples:
            new_tokens.append(())
            continue
        kept: list[int] = []
        for offset in range(len(draft.token_ids) + 1):
            if part.sampling.is_greedy:
                token = greedy[row + offset]
            else:
                token = choose(logits[row + offset], part.sampling, part.seed, part.end + offset)
            kept.append(token)
            if offset < len(draft.token_ids) and draft.token_ids[offset] != token:
                break
        new_tokens.append(tuple(kept))
        row += len(draft.token_ids) + 1
    return tuple(new_tokens)
