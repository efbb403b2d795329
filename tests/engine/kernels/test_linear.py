"""Packed linear layers against plain ones."""

import pytest
import torch
from torch import Tensor, nn

from engine.kernels.linear import NarrowEmbedding, PackedLinear, is_packed, pack
from engine.kernels.products import FloatProduct, HalfProduct, product_of

CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [1, 2, 7, 65])
def test_a_product_is_that_of_the_weights_as_they_came(
    dtype: torch.dtype, bias: bool, rows: int
) -> None:
    torch.manual_seed(0)
    linear = nn.Linear(48, 80, bias=bias).to(dtype)
    x = torch.randn(rows, 48)
    exact = x.double() @ linear.weight.double().T + (linear.bias.double() if bias else 0)
    product = product_of(linear.weight.detach(), linear.bias.detach() if bias else None)
    assert isinstance(product, FloatProduct if dtype == torch.float32 else HalfProduct)
    with torch.inference_mode():
        y = product.float()(x)
    assert y.dtype == torch.float32
    torch.testing.assert_close(y.double(), exact, rtol=1e-5, atol=1e-5)


def test_what_float16_does_not_hold_stays_in_float32() -> None:
    weight = torch.tensor([[1e30, 1.0]], dtype=torch.bfloat16)
    product = product_of(weight, None)
    assert isinstance(product, FloatProduct)
    assert product(torch.ones(1, 2)) == weight.float().sum()


class Block(nn.Module):
    """Linear layers that share inputs in several ways."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 16, dtype=dtype)
        self.norm = nn.Parameter(torch.rand(16, dtype=dtype))
        self.q = nn.Linear(16, 12, bias=False, dtype=dtype)
        self.k = nn.Linear(16, 4, bias=False, dtype=dtype)
        self.biased = nn.Linear(16, 12, dtype=dtype)
        self.after_change = nn.Linear(16, 12, dtype=dtype)
        self.twice = nn.Linear(12, 12, dtype=dtype)
        self.unused = nn.Linear(3, 3, dtype=dtype)

    def forward(self, input_ids: Tensor, **_kwargs: object) -> Tensor:
        x = self.embed(input_ids) * self.norm
        y: Tensor = self.q(x) + self.k(x).repeat(1, 1, 3) + self.biased(x)
        x += 1.0
        y = y + self.after_change(x)
        y = self.twice(self.twice(y))
        return y


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_packed_model_computes_the_same_in_float32(dtype: torch.dtype) -> None:
    torch.manual_seed(2)
    plain, block = Block(dtype), Block(dtype)
    block.load_state_dict(plain.state_dict())
    pack(block)
    ids = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
    with torch.inference_mode():
        expected = plain.float()(ids)
        for _ in range(2):
            found = block(ids)
            assert found.dtype == torch.float32
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        assert block.q(torch.empty(1, 0, 16)).shape == (1, 0, 12)
    assert block.embed.weight.dtype == dtype
    assert block.get_submodule("embed").__class__ is NarrowEmbedding


def test_layers_share_a_product_only_if_they_share_the_tensor_and_have_biases_alike() -> None:
    block = Block(torch.float32)
    pack(block)
    shared = {
        name: module.shared for name, module in block.named_modules()
        if isinstance(module, PackedLinear)
    }  # fmt: skip
    assert shared.keys() == {"q", "k", "biased", "after_change", "twice", "unused"}
    assert shared["q"] is shared["k"]
    assert len(set(map(id, shared.values()))) == 5


def test_another_input_in_between_is_not_mistaken_for_the_shared_one() -> None:
    torch.manual_seed(3)
    block = Block(torch.float32)
    k = nn.Linear(16, 4, bias=False)
    k.load_state_dict(block.k.state_dict())
    pack(block)
    x, other = torch.randn(1, 2, 16), torch.randn(1, 2, 16)
    with torch.inference_mode():
        block.q(x)
        torch.testing.assert_close(block.k(other), k(other))
        torch.testing.assert_close(block.k(x), k(x))


def test_where_layers_are_packed() -> None:
    assert is_packed(CPU)
    assert not is_packed(torch.device("cuda"))
