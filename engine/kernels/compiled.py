"""A model's forward as one compiled library, kept on disk, without its weights.

Eager transformers spends more time in Python and in small operators than a small model's products
take on a CPU. The whole forward is exported once with `torch.export`, for any number of tokens, and
compiled with AOTInductor; attention and the products with packed weights stay operators that are
called. What is kept depends on the model's shape, the machine's CPU and the versions, not on the
weights, which are bound to it at load.
"""

import contextlib
import fcntl
import hashlib
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from collections.abc import Sequence as ReadOnly
from contextvars import ContextVar
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from engine import attention
from engine.attention import AttentionBatch
from engine.interface import passing
from engine.kernels.linear import PackedLinear, SharedProduct

logger = logging.getLogger(__name__)

_EXAMPLE_TOKENS, _EXAMPLE_ROWS = 7, 5
_INDUCTOR: dict[str, Any] = {
    # What is not a product is small; and a second pool of threads would get in torch's way.
    "cpp.threads": 1,
    "aot_inductor.package_constants_in_so": False,
    "aot_inductor.use_runtime_constant_folding": False,
}
_products: ContextVar[ReadOnly[nn.Module]] = ContextVar("paceline_products")
"""Those of the forward that runs. Packed weights are objects of libraries, and no tensors."""


class CompiledForward:
    """Stands in for the model's own forward."""

    def __init__(self, package: Path, model: nn.Module) -> None:
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
        self._model = model  # keeps alive what the library reads
        self._products = [shared.product for shared in _shared(model)]

    def __call__(
        self, token_ids: Tensor, positions: Tensor, rows: Tensor, batch: AttentionBatch
    ) -> Tensor:
        # It is compiled for at least one row.
        asked = rows if len(rows) else rows.new_zeros(1)
        before = _products.set(self._products)
        try:
            with passing(batch):
                logits: Tensor = self._library(token_ids, positions, asked)
        finally:
            _products.reset(before)
        return logits[: len(rows)]


torch.library.define("paceline::product", "(Tensor x, int index, int out_features) -> Tensor")


@torch.library.impl("paceline::product", "CompositeExplicitAutograd")
def _operator(x: Tensor, index: int, _out_features: int) -> Tensor:
    y: Tensor = _products.get()[index](x)
    return y


@torch.library.register_fake("paceline::product")  # type: ignore[untyped-decorator]
def _operator_shape(x: Tensor, _index: int, out_features: int) -> Tensor:
    return x.new_empty(x.shape[0], out_features)


def compiled_forward(
    model: nn.Module, folder: Path, report: Callable[[str], None]
) -> CompiledForward | None:
    """The compiled forward from `folder`, or a new one, of a packed model. None, and a warning that
    says why, where it can't be had."""
    try:
        package = folder / f"{_fingerprint(model)}.pt2"
        with _lock(package):
            if not package.is_file():
                report("compiling the forward (once for this model and CPU; a minute or two)")
                _compile(model, package)
        return CompiledForward(package, model)
    except Exception as error:
        logger.warning(
            "the forward is not compiled, which makes small batches slower: %s: %s",
            type(error).__name__,
            (str(error).strip().splitlines() or [""])[0],
        )
        return None


def _shared(model: nn.Module) -> list[SharedProduct]:
    """All products, each once, always in the same order."""
    found = {module.shared: None for module in model.modules() if isinstance(module, PackedLinear)}
    return [*found]


class _TracedProduct(nn.Module):
    def __init__(self, index: int, out_features: int) -> None:
        super().__init__()
        self._index = index
        self._out_features = out_features

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = torch.ops.paceline.product(x, self._index, self._out_features)
        return y


class _Traced(nn.Module):
    """The model as a function of tensors."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, token_ids: Tensor, positions: Tensor, rows: Tensor) -> Tensor:
        output = self.model(
            input_ids=token_ids, position_ids=positions, use_cache=False, logits_to_keep=rows
        )
        logits: Tensor = output.logits[0]
        return logits


def _compile(model: nn.Module, package: Path) -> None:
    example = (
        torch.zeros(1, _EXAMPLE_TOKENS, dtype=torch.long),
        torch.arange(_EXAMPLE_TOKENS)[None],
        torch.arange(_EXAMPLE_ROWS),
    )
    tokens = torch.export.Dim("tokens", min=1, max=2**20)
    rows = torch.export.Dim("rows", min=1, max=2**20)
    with _traced_products(model), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(
            _Traced(model),
            example,
            dynamic_shapes=({1: tokens}, {1: tokens}, {0: rows}),
            strict=False,
        )
        with TemporaryDirectory(dir=package.parent, prefix=".compiling-") as scratch:
            made = torch._inductor.aoti_compile_and_package(
                program, package_path=f"{scratch}/forward.pt2", inductor_configs=_INDUCTOR
            )
            os.replace(made, package)


@contextlib.contextmanager
def _traced_products(model: nn.Module) -> Iterator[None]:
    """Each product as a call of the operator meanwhile."""
    every = _shared(model)
    products = [shared.product for shared in every]
    try:
        for index, shared in enumerate(every):
            shared.product = _TracedProduct(index, shared.out_features)
        yield
    finally:
        for shared, product in zip(every, products, strict=True):
            shared.product = product


def _fingerprint(model: nn.Module) -> str:
    """Of all that the compiled code depends on."""
    config: Any = model.config
    told = config.to_dict()
    told.pop("_name_or_path", None)
    cpu = next(
        (line for line in Path("/proc/cpuinfo").read_text().splitlines() if "flags" in line), ""
    )
    sources = sorted([*Path(__file__).parent.glob("*.py"), Path(attention.__file__)])
    parts = (
        type(model).__qualname__,
        sorted(told.items(), key=lambda item: item[0]),
        [(name, tuple(t.shape), str(t.dtype)) for name, t in model.state_dict().items()],
        [shared.out_features for shared in _shared(model)],
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
