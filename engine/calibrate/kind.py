"""What step costs depend on: replicas of one kind share what one of them has measured."""

import hashlib
import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import torch

from engine.config import EngineConfig
from engine.kernels.native import source_digest
from engine.vocabulary import FILE as DRAFT_VOCABULARY

FORMAT = 1
"""Raised when calibrations that were made before must not be used any more."""
_VERSIONS = ("torch", "transformers", "paceline")


@dataclass(frozen=True, slots=True)
class Kind:
    """Equal keys: the same models under the same engine on the same hardware."""

    key: str
    """In hexadecimal; fit for a file's name."""
    description: Mapping[str, str | int]
    """The same for people, without the models' fingerprints."""


def machine_kind(config: EngineConfig) -> Kind:
    """Of an engine of this configuration, in this process. Weights are told by the names and sizes
    of their files, the engine by its version and its operators' code. Raises OSError when a model's
    files can't be read.
    """
    draft = config.drafter.model
    description: dict[str, str | int] = {
        "model": config.model.name,
        "drafter": config.drafter.kind,
        **({} if draft is None else {"draft": draft.name}),
        "dtype": config.dtype,
        "device": _device_name(config),
        "tp_size": config.tp_size,
        "max_num_seqs": config.max_num_seqs,
        "max_draft_len": config.max_draft_len,
        **({} if config.max_model_len is None else {"max_model_len": config.max_model_len}),
        "block_size": config.block_size,
        "compiled": "no" if config.compile_folder is None else "yes",
        **{name: version(name) for name in _VERSIONS},
    }
    told = [
        FORMAT,
        description,
        _fingerprint(config.model),
        None if draft is None else _fingerprint(draft),
        None if config.compile_folder is None else source_digest(),
    ]
    return Kind(hashlib.sha256(json.dumps(told).encode()).hexdigest(), description)


def _device_name(config: EngineConfig) -> str:
    if config.device != "cpu":
        return torch.cuda.get_device_name(config.device)
    threads = config.num_threads or torch.get_num_threads()
    capability = torch.backends.cpu.get_cpu_capability()
    return f"{_cpu_model()}, {threads} threads, {capability}"


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _fingerprint(folder: Path) -> list[str | int]:
    parts: list[str | int] = []
    for name in ("config.json", DRAFT_VOCABULARY):
        path = folder / name
        parts.append(hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "")
    for path in sorted(folder.glob("*.safetensors")):
        parts += [path.name, path.stat().st_size]
    return parts
