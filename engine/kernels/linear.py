"""Takes the place of a model's linear layers, without a change to the model's code.

Layers that are given the very same tensor (queries, keys and values; gate and up) become one
product: the first of them that is called computes all, the others find their part.
"""

from collections import Counter
from collections.abc import Sequence as ReadOnly
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from engine.interface import attending_with
from engine.kernels.products import ProductOf, product_of


class SharedProduct(nn.Module):
    """One product for layers with the same input, and either all or none with a bias."""

    def __init__(self, linears: ReadOnly[nn.Linear], product_of: ProductOf) -> None:
        super().__init__()
        self._sizes = [linear.out_features for linear in linears]
        biases = [linear.bias.detach() for linear in linears if linear.bias is not None]
        self.product = product_of(
            torch.cat([linear.weight.detach() for linear in linears]),
            torch.cat(biases) if biases else None,
        )
        self._input: Tensor | None = None
        self._outputs: tuple[Tensor, ...] = ()

    def forward(self, index: int, x: Tensor) -> Tensor:
        """Layer `index`'s columns of the product with x [..., in]: [rows, out]."""
        if len(self._sizes) == 1:
            alone: Tensor = self.product(x.reshape(-1, x.shape[-1]))
            return alone
        if x is not self._input:
            product = self.product(x.reshape(-1, x.shape[-1]))
            self._outputs = torch.split(product, self._sizes, dim=1)
            self._input = x
        part = self._outputs[index].contiguous()
        if index == len(self._sizes) - 1:
            self._input, self._outputs = None, ()
        return part


class PackedLinear(nn.Module):
    """y = x W^T + bias for float32 x, whatever the dtype that the weight came in."""

    def __init__(self, linear: nn.Linear, shared: SharedProduct, index: int) -> None:
        super().__init__()
        self.in_features = linear.in_features
        self.out_features = linear.out_features
        self.shared = shared
        self._index = index

    def forward(self, x: Tensor) -> Tensor:
        if x.numel() == 0:
            return x.new_zeros(*x.shape[:-1], self.out_features)
        y: Tensor = self.shared(self._index, x)
        return y.view(*x.shape[:-1], self.out_features)


class NarrowEmbedding(nn.Embedding):
    """Rows in the dtype that they came in, given as float32."""

    def forward(self, token_ids: Tensor) -> Tensor:
        return super().forward(token_ids).float()


def is_packed(device: torch.device) -> bool:
    """Whether models there have their linear layers packed, and compute all else in float32: on
    CPUs, those with arithmetic of the weights' dtype included, as `nn.Linear` lays each weight out
    anew at every call."""
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return device.type == "cpu" and available


def has_bfloat16(device: torch.device) -> bool:
    """Whether there is arithmetic of bfloat16, and it is no slower than that of float32."""
    return device.type != "cpu" or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def pack(model: nn.Module, product_of: ProductOf = product_of) -> None:
    """Pack every nn.Linear of `model`, in place, and make it compute in float32.

    The values of the weights stay what they are in the dtype that they have.
    """
    for linears in _groups(model):
        shared = SharedProduct(linears, product_of)
        for index, linear in enumerate(linears):
            _replace(model, linear, PackedLinear(linear, shared, index))
    for module in model.modules():
        # Copies of all: whatever stayed a part of the mapped checkpoint would keep all of it.
        dtype = None if type(module) is nn.Embedding else torch.float32
        for tensor in [*module.parameters(recurse=False), *module.buffers(recurse=False)]:
            if tensor.is_floating_point():
                tensor.data = tensor.data.to(dtype or tensor.dtype, copy=True)
        if type(module) is nn.Embedding:
            module.__class__ = NarrowEmbedding


def _replace(model: nn.Module, old: nn.Module, new: nn.Module) -> None:
    names = [n for n, module in model.named_modules(remove_duplicate=False) if module is old]
    for name in names:
        model.set_submodule(name, new)


def _groups(model: nn.Module) -> list[list[nn.Linear]]:
    """All linear layers; together those of one parent that a forward calls one behind the other
    with the same tensor, unchanged in between."""
    parents = {child: parent for parent in model.modules() for child in parent.children()}
    calls = _calls(model)
    times = Counter(call.linear for call in calls)
    groups: list[list[nn.Linear]] = []
    last: tuple[object, ...] | None = None
    for call in calls:
        if times[call.linear] > 1:
            last = None
            continue
        parent, has_bias = parents[call.linear], call.linear.bias is not None
        key = (id(call.x), call.version, parent, has_bias, call.linear.weight.dtype)
        if key != last:
            groups.append([])
            last = key
        groups[-1].append(call.linear)
    grouped = {linear for group in groups for linear in group}
    every = [module for module in model.modules() if type(module) is nn.Linear]
    return groups + [[linear] for linear in every if linear not in grouped]


class _Call(NamedTuple):
    linear: nn.Linear
    x: Tensor
    version: int


def _calls(model: nn.Module) -> list[_Call]:
    """The linear layers' calls in a forward of two tokens; none where the model refuses it: what
    is wrong with it is said elsewhere."""
    calls: list[_Call] = []

    def note(linear: nn.Module, args: tuple[Any, ...]) -> None:
        assert isinstance(linear, nn.Linear)
        calls.append(_Call(linear, args[0], args[0]._version))

    hooks = [
        module.register_forward_pre_hook(note)
        for module in model.modules()
        if type(module) is nn.Linear
    ]
    try:
        with torch.no_grad(), attending_with(model, "eager"):
            model(input_ids=torch.zeros(1, 2, dtype=torch.long), use_cache=False)
    except Exception:
        return []
    finally:
        for hook in hooks:
            hook.remove()
    return calls
