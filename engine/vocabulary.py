"""A draft's own vocabulary: the few tokens that its head is cut to, so that a draft costs less.

The list lies beside the draft's weights, which keep the whole head: any other program loads the
folder as well.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from engine.errors import ConfigError

FILE = "draft_vocabulary.json"


def read_vocabulary(folder: Path) -> list[int] | None:
    """The tokens that the draft in `folder` may propose, ascending; None where it may any.

    Raises ConfigError for a file that isn't a list of different token ids.
    """
    path = folder / FILE
    try:
        told = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ConfigError(f"model {folder}: {FILE} can't be read: {error}") from None
    token_ids = told.get("token_ids") if isinstance(told, dict) else None
    if (
        not isinstance(token_ids, list)
        or not token_ids
        or not all(type(token) is int and token >= 0 for token in token_ids)
        or token_ids != sorted(set(token_ids))
    ):
        raise ConfigError(
            f'model {folder}: {FILE} must hold "token_ids", different ones in ascending order'
        )
    return token_ids


def vocabulary_text(token_ids: Sequence[int]) -> str:
    """The file's content."""
    return json.dumps({"token_ids": list(token_ids)}) + "\n"


def trim_head(model: nn.Module, token_ids: Sequence[int]) -> None:
    """Cut the model's head to `token_ids`, in place: its logits are theirs alone, in their order.

    Raises ConfigError, without naming the model, for a head that isn't a linear layer with a row
    for each of them.
    """
    shaped: Any = model
    head = shaped.get_output_embeddings()
    if not isinstance(head, nn.Linear):
        raise ConfigError("its head is no linear layer and can't be cut to a draft's vocabulary")
    if token_ids[-1] >= head.out_features:
        raise ConfigError(
            f"{FILE} holds token {token_ids[-1]}, and there are {head.out_features} tokens"
        )
    rows = torch.tensor(token_ids, device=head.weight.device)
    trimmed = nn.Linear(head.in_features, len(rows), head.bias is not None, device="meta")
    trimmed.weight = nn.Parameter(head.weight.detach()[rows], requires_grad=False)
    if head.bias is not None:
        trimmed.bias = nn.Parameter(head.bias.detach()[rows], requires_grad=False)
    shaped.set_output_embeddings(trimmed)
