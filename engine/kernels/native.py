"""The operators of `cpu.cpp`, built once for this CPU and loaded into the process.

They compute what `attention.py` computes, in place over the block pool and without a word of
Python: for one sequence of a small model that is half of a step.
"""

import hashlib
import os
import subprocess
from collections.abc import Callable, Iterator
from collections.abc import Sequence as ReadOnly
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor
from torch.utils import cpp_extension

from engine.attention import Span
from engine.errors import PacelineError
from engine.interface import passing
from engine.kernels.store import cpu_flags, locked
from engine.kv_cache import KVCache

SOURCE = Path(__file__).with_name("cpu.cpp")
_HEADERS = tuple(
    Path(__file__).with_name(name)
    for name in ("attention.h", "choice.h", "package.h", "pairs.h", "product.h")
)
_COMPILE = "-std=c++20 -O3 -march=native -ffast-math -fno-finite-math-only -fopenmp -fPIC -c"
_LINK = "-fopenmp -shared"
"""Not -ffast-math: linked with it, a library switches off subnormal numbers in whole processes."""


class CannotBuild(PacelineError):
    """There is no working C++ compiler."""


@dataclass(frozen=True, slots=True)
class NativeBatch:
    """What every layer of one forward needs: as `AttentionBatch`, for the operators."""

    cache: KVCache
    write_slots: Tensor  # [N]
    first_rows: Tensor  # [B + 1]
    starts: Tensor  # [B]
    blocks: Tensor  # [B, most blocks of a sequence]

    @classmethod
    def build(cls, cache: KVCache, spans: ReadOnly[Span], _device: torch.device) -> "NativeBatch":
        """`spans` in the order in which their tokens are packed; a float32 cache on a CPU."""
        size = cache.block_size
        first_rows = [0]
        slots: list[int] = []
        most = max((len(span.block_ids) for span in spans), default=0)
        blocks = []
        for span in spans:
            ids = span.block_ids
            slots += [ids[p // size] * size + p % size for p in range(span.start, span.end)]
            first_rows.append(len(slots))
            blocks.append([*ids, *[0] * (most - len(ids))])
        return cls(
            cache,
            torch.tensor(slots),
            torch.tensor(first_rows),
            torch.tensor([span.start for span in spans]),
            torch.tensor(blocks),
        )

    @contextmanager
    def attending(self) -> Iterator[None]:
        """For a forward of this thread."""
        cache = self.cache
        with passing(self):
            torch.ops.paceline.begin(
                cache.keys,
                cache.values,
                self.write_slots,
                self.first_rows,
                self.starts,
                self.blocks,
                cache.block_size,
            )
            try:
                yield
            finally:
                torch.ops.paceline.end()

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        layer: int,
        scale: float,
        window: int | None,
        softcap: float | None,
    ) -> Tensor:
        """As `AttentionBatch.attend`."""
        attended: Tensor = torch.ops.paceline.attend(
            query, key, value, layer, scale, window, softcap
        )
        return attended


def load(folder: Path, report: Callable[[str], None]) -> None:
    """Make the operators known to this process, from the library in `folder` or a new one.

    Raises CannotBuild, with the compiler's first words.
    """
    told = repr((source_digest(), _COMPILE, _LINK, torch.__version__, cpu_flags()))
    library = folder / f"operators-{hashlib.sha256(told.encode()).hexdigest()[:32]}.so"
    with locked(library):
        if not library.is_file():
            report("compiling the operators (once for this CPU; half a minute)")
            _build(library)
    _load(library)


@cache
def source_digest() -> str:
    """Of the operators' code, in hexadecimal."""
    sources = [file.read_bytes() for file in (SOURCE, *_HEADERS)]
    return hashlib.sha256(repr(sources).encode()).hexdigest()


@cache
def _load(library: Path) -> None:
    torch.ops.load_library(library)  # type: ignore[no-untyped-call]
    torch.library.register_fake("paceline::attend", _attend_shape)
    torch.library.register_fake("paceline::multiply", _product_shape)


def _attend_shape(query: Tensor, _key: Tensor, value: Tensor, *_rest: object) -> Tensor:
    return query.new_empty(1, query.shape[2], query.shape[1], value.shape[-1])


def _product_shape(
    x: Tensor, _panels: Tensor, _bias: Tensor | None, out_features: int, _format: int
) -> Tensor:
    return x.new_empty(x.shape[0], out_features)


def _build(library: Path) -> None:
    compiler = cpp_extension.get_cxx_compiler()  # type: ignore[no-untyped-call]
    with TemporaryDirectory(dir=library.parent, prefix=".compiling-") as scratch:
        compiled, made = f"{scratch}/operators.o", f"{scratch}/operators.so"
        headers = [f"-I{path}" for path in cpp_extension.include_paths()]
        _run([compiler, str(SOURCE), "-o", compiled, *_COMPILE.split(), *headers])
        folders = [f"-L{path}" for path in cpp_extension.library_paths()]
        libraries = ["-ltorch", "-ltorch_cpu", "-lc10"]
        _run([compiler, compiled, "-o", made, *_LINK.split(), *folders, *libraries])
        os.replace(made, library)


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise CannotBuild(f"{command[0]}: {error.strerror}") from error
    if done.returncode != 0:
        words = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise CannotBuild(f"{command[0]}: {words[0]}")
