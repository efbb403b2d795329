"""Products with a weight that was packed once, at load, for a CPU, by torch's own libraries.

A torch `nn.Linear` lays its weight out anew at every call. Each class here is one layout; all of
them take float32 rows, add up in float32 and give float32.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

ProductOf = Callable[[Tensor, Tensor | None], nn.Module]
"""Packs a weight [out, in] and a bias [out]."""

PACK_ROWS = 64
"""Row count that oneDNN's layout is chosen for; measured best or equal at 1 to 200 rows."""


class FloatProduct(nn.Module):
    """x W^T + bias, weights in float32, by oneDNN."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.bias = None if bias is None else bias.float()
        self.packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(
            weight.float().contiguous(), PACK_ROWS
        )

    def forward(self, x: Tensor) -> Tensor:
        """float32 [rows, out] from float32 [rows, in], at least one row."""
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")
        return y


class HalfProduct(nn.Module):
    """The same with weights in float16, by FBGEMM: half the bytes to read, which is what few rows
    cost."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.packed: Any = torch.ops.quantized.linear_prepack_fp16(
            weight.float().contiguous(), None if bias is None else bias.float()
        )

    def forward(self, x: Tensor) -> Tensor:
        """float32 [rows, out] from float32 [rows, in], at least one row."""
        y: Tensor = torch.ops.quantized.linear_dynamic_fp16(x, self.packed)
        return y


def product_of(weight: Tensor, bias: Tensor | None) -> FloatProduct | HalfProduct:
    """The fastest layout that keeps what the weight's dtype says.

    float16 holds a bf16 weight exactly from 2^-17 on, and what is smaller to within 2^-25.
    """
    fits = weight.dtype != torch.float32 and bool(
        (weight.abs() <= torch.finfo(torch.float16).max).all()
    )
    if fits and weight.numel() and "fbgemm" in torch.backends.quantized.supported_engines:
        return HalfProduct(weight, bias)
    return FloatProduct(weight, bias)
