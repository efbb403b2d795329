"""The ranks' process group: joined once in a process, and of no use after a failure.

DeepSpeed has one tensor parallel group in a process and no way to make it anew.
"""

import os
import socket
from contextlib import redirect_stdout
from datetime import timedelta
from io import StringIO
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

from engine.errors import ConfigError
from engine.ranks.spec import RankSpec

START_S = 600.0
"""Ranks load the model at a pace of their own."""
COLLECTIVE_S = 600.0
"""A collective operation, while the model is loaded too, for which ranks take unlike times. In a
step, a rank that hangs is killed long before (`hub.py`)."""


def make_store(host: str, size: int) -> TCPStore:
    """Rank 0's: the others find each other by it. Listens on `host` alone, on a free port."""
    listener = socket.create_server((host, 0))
    port = listener.getsockname()[1]
    return TCPStore(
        host,
        port,
        size,
        is_master=True,
        timeout=timedelta(seconds=START_S),
        wait_for_workers=False,
        master_listen_fd=listener.detach(),  # torch's own would listen on all interfaces
    )


def join(spec: RankSpec, device: torch.device, store: TCPStore | None = None) -> None:
    """Become that rank of the group; blocks until all have come. `store`: rank 0's own.

    Raises ConfigError when this process is a member of a group already.
    """
    if dist.is_initialized():
        raise ConfigError("engine.tp_size: this process had ranks already, and needs a new one")
    if store is None:
        store = TCPStore(
            spec.host,
            spec.store_port,
            spec.size,
            is_master=False,
            timeout=timedelta(seconds=START_S),
        )
    local = "0" if device.type == "cpu" or torch.cuda.device_count() == 1 else str(spec.rank)
    os.environ.update(
        RANK=str(spec.rank),
        WORLD_SIZE=str(spec.size),
        LOCAL_RANK=local,
        LOCAL_SIZE=str(spec.size),
        MASTER_ADDR=spec.host,
        MASTER_PORT=str(spec.store_port),
    )
    if device.type == "cuda":
        torch.cuda.set_device(int(local))
    backend = "gloo" if device.type == "cpu" else "nccl"
    dist.init_process_group(
        backend,
        store=store,
        rank=spec.rank,
        world_size=spec.size,
        timeout=timedelta(seconds=COLLECTIVE_S),
    )
    _deepspeed().init_distributed(dist_backend=backend, auto_mpi_discovery=False, verbose=False)


def least(value: int) -> int:
    """The smallest of all ranks' values; every rank must ask."""
    found = torch.tensor([value], dtype=torch.long)
    if dist.get_backend() == "nccl":
        found = found.cuda()
    dist.all_reduce(found, op=dist.ReduceOp.MIN)
    return int(found.item())


def leave() -> None:
    """Let go of the group, if there is one."""
    if dist.is_initialized():
        dist.destroy_process_group()


def shard_in_place(model: Any, size: int, dtype: torch.dtype) -> Any:
    """This rank's part of a model (DeepSpeed's automatic tensor parallelism)."""
    deepspeed = _deepspeed()
    with redirect_stdout(StringIO()):  # it prints its findings
        engine = deepspeed.init_inference(
            model,
            tensor_parallel={"tp_size": size},
            dtype=dtype,
            replace_with_kernel_inject=False,
        )
    return engine.module


def _deepspeed() -> Any:
    os.environ.setdefault("DS_ACCELERATOR", "cuda" if torch.cuda.is_available() else "cpu")
    import deepspeed
    from deepspeed.utils import logger

    logger.setLevel("ERROR")
    # It is compiled for minutes at its first use, ignores groups, and leaves files in /dev/shm.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    return deepspeed
