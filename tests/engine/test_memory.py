"""Models that don't fit are refused before they are loaded."""

from pathlib import Path

import pytest
import torch

from engine.errors import ConfigError
from engine.memory import available_bytes, require_room_for
from tests.engine.harness import tiny_engine

CPU = torch.device("cpu")


def test_there_is_memory() -> None:
    assert 2**20 < available_bytes(CPU) < 2**50


def test_weights_count_in_the_dtype_that_they_are_served_in(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_disk = sum(path.stat().st_size for path in target.glob("*.safetensors"))  # float32
    monkeypatch.setattr("engine.memory.available_bytes", lambda _: on_disk * 3 // 4)
    require_room_for([target], torch.bfloat16, CPU)
    for folders, dtype in (([target], torch.float32), ([target] * 2, torch.bfloat16)):
        with pytest.raises(ConfigError, match=rf"model {target}: its weights take .* GiB, and"):
            require_room_for(folders, dtype, CPU)
    with pytest.raises(ConfigError, match="GiB are free on cpu"):
        require_room_for([target], None, CPU)
    with pytest.raises(ConfigError, match="its weights take"):
        tiny_engine(target)
