"""Command-line options that several benchmarks have."""

import argparse
from pathlib import Path

from deployments.models.cache import default_home
from engine.config import DtypeName
from engine.model import DTYPES


class Options(argparse.Namespace):
    """What `parser` yields."""

    json: Path | None
    quick: bool
    repeats: int
    model: str
    dtype: DtypeName
    eager: bool

    @property
    def compile_folder(self) -> Path | None:
        """For EngineConfig: where compiled forwards are kept."""
        return None if self.eager else default_home() / "compiled"


def parser(doc: str | None, repeats: int = 5) -> argparse.ArgumentParser:
    """With the options that all have; `repeats` is the default."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0] if doc else None)
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--quick", action="store_true", help="less of all, once: a smoke test")
    parser.add_argument("--repeats", type=_at_least_one, default=repeats)
    parser.add_argument("--model", default="smollm2-135m", help="an embedded model or a folder")
    parser.add_argument("--dtype", choices=[*DTYPES], default="bfloat16")
    parser.add_argument("--eager", action="store_true", help="do not compile the forward")
    return parser


def _at_least_one(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value
