"""A model's forward as one compiled library, kept on disk, without its weights.

Eager transformers spends more time in Python and in small operators than a small model's products
take on a CPU. The whole forward is exported once with `torch.export`, for any number of tokens, and
compiled with AOTInductor; attention stays the operator of `attention.py`. What is kept depends on
the model's shape, the machine's CPU and the versions, not on the weights; those are bound to it at
load, where they lie.
"""

import contextlib
import fcntl
import hashlib
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from engine import attention
from engine.attention import AttentionBatch
from engine.interface import passing
from engine.kernels.linear import PackedLinear
from engine.kernels.products import HalfProduct

logger = logging.getLogger(__name__)

_EXAMPLE_TOKENS, _EXAMPLE_ROWS = 7, 5
_INDUCTOR: dict[str, Any] = {
    # What is not a product is small; and a second pool of threads would get in torch's way.
    "cpp.threads": 1,
    "aot_inductor.package_constants_in_so": False,
    "aot_inductor.use_runtime_constant_folding": False,
}


class CompiledForward:
    """Stands in for the model's own forward."""

    def __init__(self, package: Path, model: nn.Module, products: list[HalfProduct]) -> None:
        self._library: Any = torch._inductor.aoti_load_package(str(package))
        tensors = {
            f"model.{name}": tensor
            for name, tensor in (
                *model.named_parameters(remove_duplicate=False),
                *model.named_buffers(remove_duplicate=False),
            )
        }
        wanted = self._library.get_constant_fqns()
        self._library.load_constants(
            {name: tensors[name] for name in wanted}, check_full_update=True, user_managed=True
        )
        self._kept = (model, [product.packed for product in products])

    def __call__(
        self, token_ids: Tensor, positions: Tensor, rows: Tensor, batch: AttentionBatch
    ) -> Tensor:
        # It is compiled for at least one row.
        asked = rows if len(rows) else rows.new_zeros(1)
        with passing(batch):
            logits: Tensor = self._library(token_ids, positions, asked, self._kept[1])
        return logits[: len(rows)]


def compiled_forward(
    model: nn.Module, folder: Path, report: Callable[[str], None]
) -> CompiledForward | None:
    """The compiled forward from `folder`, or a new one, of a packed model.

    None, and a warning that says why, where it can't be had; None without one for a model that does
    not compute through `HalfProduct` alone.
    """
    products = _products(model)
    if products is None:
        return None
    try:
        package = folder / f"{_fingerprint(model)}.pt2"
        with _lock(package):
            if not package.is_file():
                report("compiling the forward (once for this model and CPU; a minute or two)")
                _compile(model, products, package)
        return CompiledForward(package, model, products)
    except Exception as error:
        logger.warning(
            "the forward is not compiled, which makes small batches slower: %s: %s",
            type(error).__name__,
            (str(error).strip().splitlines() or [""])[0],
        )
        return None


def _products(model: nn.Module) -> list[HalfProduct] | None:
    """All products, each once; None if any is of another kind."""
    found: dict[nn.Module, None] = {}
    for module in model.modules():
        if isinstance(module, PackedLinear):
            found[module.shared.product] = None
    products = [product for product in found if isinstance(product, HalfProduct)]
    return products if products and len(products) == len(found) else None


class _Traced(nn.Module):
    """The model as a function of tensors. The handles of packed weights are arguments: as constants
    they would be copied, and a copied handle owns nothing."""

    def __init__(self, model: nn.Module, products: list[HalfProduct]) -> None:
        super().__init__()
        self.model = model
        self._products = [products]  # in a list, so that they are not registered twice

    def forward(
        self, token_ids: Tensor, positions: Tensor, rows: Tensor, packed: list[Tensor]
    ) -> Tensor:
        for product, handle in zip(self._products[0], packed, strict=True):
            product.packed = handle
        output = self.model(
            input_ids=token_ids,
            position_ids=positions,
            use_cache=False,
            logits_to_keep=rows,
        )
        logits: Tensor = output.logits[0]
        return logits


def _compile(model: nn.Module, products: list[HalfProduct], package: Path) -> None:
    handles = [product.packed for product in products]
    arguments = (
        torch.zeros(1, _EXAMPLE_TOKENS, dtype=torch.long),
        torch.arange(_EXAMPLE_TOKENS)[None],
        torch.arange(_EXAMPLE_ROWS),
        handles,
    )
    tokens = torch.export.Dim("tokens", min=1, max=2**20)
    rows = torch.export.Dim("rows", min=1, max=2**20)
    shapes = ({1: tokens}, {1: tokens}, {0: rows}, [None] * len(handles))
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.export.export(
                _Traced(model, products), arguments, dynamic_shapes=shapes, strict=False
            )
    finally:
        for product, handle in zip(products, handles, strict=True):
            product.packed = handle
    package.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=package.parent, prefix=".compiling-") as scratch:
        made = torch._inductor.aoti_compile_and_package(
            program, package_path=f"{scratch}/forward.pt2", inductor_configs=_INDUCTOR
        )
        os.replace(made, package)


def _fingerprint(model: nn.Module) -> str:
    """Of all that the compiled code depends on."""
    config: Any = model.config
    told = config.to_dict()
    told.pop("_name_or_path", None)
    cpu = next(
        (line for line in Path("/proc/cpuinfo").read_text().splitlines() if "flags" in line), ""
    )
    sources = sorted([*Path(__file__).parent.glob("*.py"), Path(attention.__file__)])
    shapes = [(name, tuple(t.shape), str(t.dtype)) for name, t in model.state_dict().items()]
    parts = (
        type(model).__qualname__,
        sorted(told.items(), key=lambda item: item[0]),
        shapes,
        cpu,
        torch.__version__,
        transformers.__version__,
        [path.read_text() for path in sources],
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


@contextlib.contextmanager
def _lock(package: Path) -> Iterator[None]:
    """One process compiles, the others wait for it."""
    package.parent.mkdir(parents=True, exist_ok=True)
    with package.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
