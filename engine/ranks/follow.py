"""A rank that follows: loads its part of the target, then computes whatever plan comes.

`python -m engine.ranks.follow` reads what it is to be from its parent, on standard input.
"""

import faulthandler
import os
import pickle
import sys

import torch

from engine.config import EngineConfig
from engine.errors import in_one_line
from engine.ranks import group
from engine.ranks.shard import load_shard
from engine.ranks.spec import RankSpec
from engine.ranks.uplink import Uplink
from engine.ranks.wire import decode
from engine.sizing import allocate, num_blocks_of


def follow(spec: RankSpec, config: EngineConfig) -> None:
    """Until rank 0 ends or is gone. Raises what went wrong, after rank 0 was told."""
    with Uplink(spec) as uplink:
        try:
            _follow(spec, config, uplink)
        except BaseException as error:
            uplink.failed(in_one_line(error))
            raise
    group.leave()


def _follow(spec: RankSpec, config: EngineConfig, uplink: Uplink) -> None:
    if config.num_threads is not None:
        torch.set_num_threads(config.num_threads)
    device = torch.device(config.device)
    uplink.stage("joining the group")
    group.join(spec, device)
    loaded = load_shard(
        config.model,
        config.dtype,
        device,
        uplink.stage,
        spec.size,
        trust_remote_code=config.trust_remote_code,
    )
    num_blocks = group.least(num_blocks_of(config, [loaded]))
    (cache,) = allocate(config, [loaded], num_blocks)
    runner = loaded.runner(cache)
    uplink.stage("ready")
    while (message := uplink.receive()) is not None:
        inputs, _ = decode(message)
        runner.forward(inputs)


def main() -> None:
    """For a child process: what it is comes on standard input."""
    faulthandler.enable()
    spec, config = pickle.loads(sys.stdin.buffer.read())  # from our own parent
    try:
        follow(spec, config)
    except BaseException as error:
        print(f"rank {spec.rank}: {in_one_line(error)}", file=sys.stderr, flush=True)
        os._exit(1)  # threads of a broken group would keep the process
    os._exit(0)


if __name__ == "__main__":
    main()
