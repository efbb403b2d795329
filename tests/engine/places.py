"""Places to choose a token for, without an engine around them."""

from collections.abc import Sequence
from typing import Any

from engine.place import Place
from engine.plan import SeqSlice
from engine.request import SamplingParams


def place(
    sampling: SamplingParams,
    *,
    prompt: Sequence[int] = (),
    output: Sequence[int] = (),
    drafted: Sequence[int] = (),
    seed: int = 0,
    position: int | None = None,
    stop_ids: frozenset[int] = frozenset(),
    grammar: Any = None,
) -> Place:
    """Behind a prompt and some output; or at a bare position, where no token matters."""
    tokens = [*prompt, *output] if position is None else [0] * (position - len(drafted))
    num_prompt = len(prompt) if position is None else len(tokens)
    part = SeqSlice(
        request_id="r",
        tokens=tokens,
        num_prompt=num_prompt,
        start=len(tokens) - 1,
        num_tokens=1,
        block_ids=[],
        draft_len=len(drafted),
        lookup_len=len(drafted),
        draft_computed=0,
        samples=True,
        logits_from=len(tokens) - 1,
        sampling=sampling,
        seed=seed,
        stop_ids=stop_ids,
        grammar=grammar,
    )
    return Place(part, tuple(drafted))
