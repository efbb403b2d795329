"""Whether models fit the memory, said before any of them is loaded."""

from collections.abc import Sequence
from pathlib import Path

import torch

from engine.architecture import read_config
from engine.errors import ConfigError

_WEIGHTS = ("*.safetensors", "*.bin")


def available_bytes(device: torch.device) -> int:
    """Memory of the device, or of the machine, that can be had without swapping."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/meminfo tells no MemAvailable")


def require_room_for(
    folders: Sequence[Path],
    dtype: torch.dtype | None,
    device: torch.device,
    *,
    trust_remote_code: bool = False,
) -> None:
    """Raise ConfigError when the weights in `folders` take more than is free on `device`, in
    `dtype` or, with None, in the one that they are stored in."""
    needed = [(_weight_bytes(folder, dtype, trust_remote_code), folder) for folder in folders]
    free = available_bytes(device)
    if sum(taken for taken, _ in needed) > free:
        taken, largest = max(needed)
        raise ConfigError(
            f"model {largest}: its weights take {taken / 2**30:.1f} GiB, and "
            f"{free / 2**30:.1f} GiB are free on {device}"
        )


def _weight_bytes(folder: Path, dtype: torch.dtype | None, trust_remote_code: bool) -> int:
    """Of the first format there is."""
    for pattern in _WEIGHTS:
        stored_bytes = sum(path.stat().st_size for path in folder.glob(pattern))
        if stored_bytes and dtype is not None:
            told = read_config(folder, trust_remote_code=trust_remote_code).dtype
            stored = told if isinstance(told, torch.dtype) else torch.float32
            return stored_bytes * dtype.itemsize // stored.itemsize
        if stored_bytes:
            return stored_bytes
    return 0
