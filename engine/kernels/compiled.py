"""A model's forward as one compiled library, kept on disk, without its weights.

Eager transformers spends more time in Python and in small operators than a small model's products
take on a CPU. The whole forward is exported once with `torch.export`, for any number of tokens, and
compiled with AOTInductor; attention and the products with packed weights are the operators of
`native.py`. What is kept depends on the model's shape, the machine's CPU and the versions, not on
the weights, which are bound to it at load.
"""

import hashlib
import logging
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from engine import attention
from engine.attention import Batch
from engine.interface import passing
from engine.kernels.native import NativeBatch
from engine.kernels.store import cpu_flags, locked
from engine.kv_cache import KVCache

logger = logging.getLogger(__name__)

CPU = torch.device("cpu")
_EXAMPLE_TOKENS, _EXAMPLE_ROWS = 7, 5
_INDUCTOR: dict[str, Any] = {
    "aot_inductor.package_constants_in_so": False,
    "aot_inductor.use_runtime_constant_folding": False,
}


class CompiledForward:
    """Stands in for the model's own forward. Other threads run Python meanwhile (`package.h`)."""

    def __init__(self, package: Path, model: nn.Module) -> None:
        self._library: Any = torch.classes.paceline.Package(str(package))
        tensors = {
            f"model.{name}": tensor
            for name, tensor in (
                *model.named_parameters(remove_duplicate=False),
                *model.named_buffers(remove_duplicate=False),
            )
        }
        self._library.bind({name: tensors[name] for name in self._library.constants()})
        self._model = model  # keeps alive what the library reads

    def __call__(self, token_ids: Tensor, positions: Tensor, rows: Tensor, batch: Batch) -> Tensor:
        assert isinstance(batch, NativeBatch)
        # It is compiled for at least one row.
        asked = rows if len(rows) else rows.new_zeros(1)
        with batch.attending():
            [logits] = self._library.run([token_ids, positions, asked])
        told: Tensor = logits[: len(rows)]
        return told


def compiled_forward(
    model: nn.Module, folder: Path, report: Callable[[str], None]
) -> CompiledForward | None:
    """The compiled forward from `folder`, or a new one, of a packed model; `native.load` comes
    first. None, and a warning that says why, where it can't be had."""
    try:
        package = folder / f"forward-{_fingerprint(model)}.pt2"
        with locked(package):
            if package.is_file():
                try:
                    return CompiledForward(package, model)
                except Exception:
                    logger.warning("%s can't be read and is made anew", package)
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
    # A batch without sequences: tracing asks it for nothing but the operator.
    batch = NativeBatch.build(KVCache([], 1, 1, torch.float32, CPU), [], CPU)
    with passing(batch), torch.no_grad(), warnings.catch_warnings():
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


def _fingerprint(model: nn.Module) -> str:
    """Of all that the compiled code depends on."""
    config: Any = model.config
    told = config.to_dict()
    told.pop("_name_or_path", None)
    sources = sorted([*Path(__file__).parent.glob("*.py"), Path(attention.__file__)])
    parts = (
        type(model).__qualname__,
        sorted(told.items(), key=lambda item: item[0]),
        [(name, tuple(t.shape), str(t.dtype)) for name, t in model.state_dict().items()],
        cpu_flags(),
        torch.__version__,
        transformers.__version__,
        [path.read_text() for path in sources],
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]
