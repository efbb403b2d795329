"""Rank 0: starts the others, joins them, and loads its own part."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass

import torch

from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.loaded import LoadedModel
from engine.ranks import group
from engine.ranks.hub import Hub
from engine.ranks.launch import Ranks
from engine.ranks.shard import load_shard
from engine.ranks.spec import RankFailed

CONNECT_S = 120.0
_POLL_S = 0.2
_LINGER_S = 3.0


@dataclass(frozen=True, slots=True)
class Led:
    """A group whose ranks have all loaded their parts."""

    hub: Hub
    ranks: Ranks
    target: LoadedModel

    def end(self) -> None:
        """End the ranks."""
        self.hub.close()
        self.ranks.end()


def lead(config: EngineConfig, ranks: Ranks, host: str, report: Callable[[str], None]) -> Led:
    """Start the other ranks, and load the target over all of them.

    Raises RankFailed, which names the rank and the reason, or ConfigError; no rank is left then.
    """
    hub = Hub(config.tp_size, host=host, report=report, kill=ranks.kill)
    try:
        store = group.make_store(host, config.tp_size)
        report(f"starting {config.tp_size - 1} more ranks")
        for rank in range(1, config.tp_size):
            ranks.start(hub.spec(rank, store.port), config)
        _await(hub, ranks)

        def load() -> LoadedModel:
            device = torch.device(config.device)
            group.join(hub.spec(0, store.port), device, store)
            return load_shard(
                config.model,
                config.dtype,
                device,
                lambda stage: report(f"rank 0: {stage}"),
                config.tp_size,
                trust_remote_code=config.trust_remote_code,
            )

        return Led(hub, ranks, _unless_one_fails(hub, ranks, load))
    except BaseException:
        hub.close()
        for rank in range(1, config.tp_size):
            ranks.kill(rank)
        ranks.end()
        raise


def _await(hub: Hub, ranks: Ranks) -> None:
    """Until all ranks have connected."""
    give_up_s = time.monotonic() + CONNECT_S
    while missing := hub.missing():
        _note_ended(hub, ranks)
        if time.monotonic() > give_up_s:
            hub.fail(missing[0], f"did not start within {CONNECT_S:.0f} s")
        if hub.failure is not None:
            raise RankFailed(hub.failure)
        time.sleep(_POLL_S)


def _note_ended(hub: Hub, ranks: Ranks) -> None:
    for rank, why in ranks.ended().items():
        hub.fail(rank, f"failed in start-up: {why}")


def _unless_one_fails(hub: Hub, ranks: Ranks, load: Callable[[], LoadedModel]) -> LoadedModel:
    """What `load` returns. It may wait for a rank that will never come, and is left behind then:
    a process whose group failed is of no more use."""
    result: Future[LoadedModel] = Future()

    def run() -> None:
        try:
            result.set_result(load())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, name="rank-0-load", daemon=True).start()
    while hub.failure is None and not result.done():
        _note_ended(hub, ranks)
        wait([result], timeout=_POLL_S)
    if hub.failure is None and result.exception() is not None and hub.cause() is None:
        return result.result()  # which raises: the fault is rank 0's own
    if hub.failure is not None:
        # What they all refuse, a model that can't be sharded for example, is no rank's fault.
        wait([result], timeout=_LINGER_S)
        if result.done() and isinstance(result.exception(), ConfigError):
            return result.result()
        raise RankFailed(hub.failure)
    return result.result()
