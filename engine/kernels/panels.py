"""Products by the operator of `product.h`: the weight's own dtype, read once for a few rows."""

import torch
from torch import Tensor, nn

from engine.kernels.store import cpu_flags

COLUMNS = 16
"""Outputs of a panel; a constant of `product.h`."""
_FORMATS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
_PAIRS = 3
"""As `multiply` in `cpu.cpp` has them."""


def rounds_rows(dtype: torch.dtype) -> bool:
    """Whether products with such weights round their rows to it first: where the CPU has dot
    products of the dtype. `native.load` comes first."""
    return dtype == torch.bfloat16 and bool(torch.ops.paceline.has_pairs())


class PanelProduct(nn.Module):
    """x W^T + bias, added up in float32; see `rounds_rows`. `native.load` comes first."""

    panels: Tensor
    bias: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self._out_features = weight.shape[0]
        panels = in_panels(weight)
        self._format = _PAIRS if rounds_rows(weight.dtype) else _FORMATS[panels.dtype]
        # Bytes, which no change of a module's dtype touches.
        self.register_buffer("panels", panels.view(torch.int8))
        self.register_buffer("bias", None if bias is None else bias.float())

    def forward(self, x: Tensor) -> Tensor:
        """float32 [rows, out] from float32 [rows, in]."""
        y: Tensor = torch.ops.paceline.multiply(
            x, self.panels, self.bias, self._out_features, self._format
        )
        return y


def in_panels(weight: Tensor) -> Tensor:
    """[out, in] as [panels, in, COLUMNS], the last panel filled up with zeros; bf16 with the two
    halves of each line interleaved, or, where rows are rounded, as [panels, pairs of inputs,
    COLUMNS, 2]."""
    if weight.dtype == torch.float16 and "f16c" not in cpu_flags():
        weight = weight.float()
    num_panels = -(-weight.shape[0] // COLUMNS)
    padded = nn.functional.pad(weight, (0, 0, 0, num_panels * COLUMNS - weight.shape[0]))
    if rounds_rows(weight.dtype):
        even = nn.functional.pad(padded, (0, weight.shape[1] % 2))
        return even.view(num_panels, COLUMNS, -1, 2).transpose(1, 2).contiguous()
    panels = padded.view(num_panels, COLUMNS, -1).transpose(1, 2)
    if weight.dtype == torch.bfloat16:
        halves = panels.reshape(num_panels, -1, 2, COLUMNS // 2)
        panels = halves.transpose(2, 3).reshape(num_panels, -1, COLUMNS)
    return panels.contiguous()
