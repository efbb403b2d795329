"""Products with weights in panels, against plain ones."""

import pytest
import torch
from torch import Tensor, nn

from engine.kernels.panels import PanelProduct, rounds_rows

pytestmark = pytest.mark.usefixtures("operators")


def seen(x: Tensor, dtype: torch.dtype) -> Tensor:
    """What a product with such weights sees of its rows."""
    return x.to(dtype) if rounds_rows(dtype) else x


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("inputs", "outputs"), [(48, 80), (1, 1), (7, 17), (33, 15), (64, 16), (96, 144)]
)
def test_a_product_is_that_of_the_weights_as_they_came(
    dtype: torch.dtype, bias: bool, inputs: int, outputs: int
) -> None:
    torch.manual_seed(0)
    linear = nn.Linear(inputs, outputs, bias=bias).to(dtype)
    linear.weight.data[0, 0] = 6e-5  # what a narrow dtype may lose
    product = PanelProduct(linear.weight.detach(), linear.bias.detach() if bias else None)
    for rows in (1, 2, 3, 4, 5, 6, 7, 12, 23, 24, 49, 101):
        x = torch.randn(rows, inputs)
        exact = seen(x, dtype).double() @ linear.weight.double().T + (
            linear.bias.double() if bias else 0
        )
        with torch.inference_mode():
            y = product.float()(x)
        assert y.dtype == torch.float32
        torch.testing.assert_close(y.double(), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_row_s_product_does_not_depend_on_the_rows_beside_it(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    product = PanelProduct(torch.randn(200, 96).to(dtype), torch.randn(200))
    x = torch.randn(101, 96)
    together = product(x)
    for rows in (1, 2, 3, 5, 6, 11):
        apart = torch.cat([product(part) for part in torch.split(x, rows)])
        assert torch.equal(apart, together)


def test_strided_rows_and_none() -> None:
    product = PanelProduct(torch.randn(20, 8), None)
    x = torch.randn(8, 5)
    assert torch.equal(product(x.T), product(x.T.contiguous()))
    assert product(torch.empty(0, 8)).shape == (0, 20)


def test_numbers_that_are_none_stay_with_their_outputs() -> None:
    weight = torch.ones(18, 4)
    weight[17, 2] = torch.inf
    weight[3, 1] = torch.nan
    y = PanelProduct(weight, None)(torch.ones(7, 4))
    assert torch.isinf(y[:, 17]).all()
    assert torch.isnan(y[:, 3]).all()
    y[:, [3, 17]] = 4.0
    assert (y == 4.0).all()
