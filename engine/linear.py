"""Linear layers for CPUs: weights packed once at load instead of at every call.

Measured on two AVX2 cores without bf16 arithmetic (1536 x 576, weights out of cache, microseconds
for 1 / 2 / 16 / 32 rows): torch's bf16 103 / 193 / 1451 / 2902, torch's float32 242 / 392 / 525 /
742, packed float32 152 / 162 / 316 / 530. A bf16 product on such a CPU is a loop over rows, each a
pass over the weights, so only a single row is better off with the smaller bf16 weights.
"""

import torch
from torch import Tensor, nn

PACK_ROWS = 64
"""Row count that the packed layout is chosen for; measured best or equal at 1 to 200 rows."""


class PackedLinear(nn.Module):
    """y = x W^T + bias with float32 weights packed for oneDNN, whatever the dtype of x.

    In bf16 the products of bf16 values are exact in float32 and are summed in float32, and the
    result is rounded to bf16 once: what a bf16 unit does.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features = linear.in_features
        self.out_features = linear.out_features
        self.bias = None if linear.bias is None else linear.bias.detach().float()
        self.packed = torch.ops.mkldnn._reorder_linear_weight(
            linear.weight.detach().float().contiguous(), PACK_ROWS
        )
        # float32 has no smaller copy that would be cheaper to read for one row.
        self.single_row = linear.weight if linear.weight.dtype == torch.bfloat16 else None
        self.single_row_bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        rows = x.numel() // self.in_features
        if rows == 0:
            return x.new_zeros(*x.shape[:-1], self.out_features)
        if rows == 1 and self.single_row is not None:
            row = torch.mv(self.single_row, x.flatten())
            row = row if self.single_row_bias is None else row + self.single_row_bias
            return row.view(*x.shape[:-1], self.out_features)
        flat = x.reshape(rows, self.in_features).float()
        y: Tensor = torch.ops.mkldnn._linear_pointwise(flat, self.packed, self.bias, "none", [], "")
        return y.to(x.dtype).view(*x.shape[:-1], self.out_features)


def can_pack(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether packing pays: float32 on a CPU, or bf16 on one without bf16 arithmetic."""
    if device.type != "cpu" or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    if dtype == torch.bfloat16:
        return not torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return dtype == torch.float32


def pack_linears(model: nn.Module) -> None:
    """Replace every nn.Linear of `model` in place."""
    for name, child in list(model.named_children()):
        if type(child) is nn.Linear:
            setattr(model, name, PackedLinear(child))
        else:
            pack_linears(child)
