"""Ranks as Ray actors, one in each bundle of the replica's placement group but the first."""

import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from engine.config import EngineConfig
from engine.ranks.launch import END_S
from engine.ranks.spec import RankSpec


class RankActor:
    """A process for one rank. It ends with the replica that owns it, however that ends."""

    def follow(self, spec: RankSpec, config: EngineConfig) -> None:
        """Be that rank, until rank 0 ends. Raises what went wrong."""
        from engine.ranks.follow import follow

        follow(spec, config)


class RayRanks:
    """See `engine.ranks.launch.Ranks`. Belongs to the replica's process."""

    def __init__(self, group: PlacementGroup, num_cpus: float, num_gpus: float) -> None:
        self._group = group
        self._resources = {"num_cpus": num_cpus, "num_gpus": num_gpus}
        self._actors: dict[int, Any] = {}
        self._following: dict[int, Any] = {}
        self._lock = threading.Lock()

    def start(self, spec: RankSpec, config: EngineConfig) -> None:
        """See `Ranks`."""
        strategy = PlacementGroupSchedulingStrategy(
            self._group,
            placement_group_bundle_index=spec.rank,
            placement_group_capture_child_tasks=True,
        )
        actor: Any = (
            ray.remote(RankActor)
            .options(
                **self._resources,
                scheduling_strategy=strategy,
                max_restarts=0,
                runtime_env={"env_vars": {"OMP_NUM_THREADS": str(config.num_threads or 1)}},
            )
            .remote()
        )
        with self._lock:
            self._actors[spec.rank] = actor
            self._following[spec.rank] = actor.follow.remote(spec, config)

    def ended(self) -> Mapping[int, str]:
        """See `Ranks`."""
        with self._lock:
            following = dict(self._following)
        found = {}
        for rank, reference in following.items():
            if ray.wait([reference], timeout=0)[0]:
                try:
                    ray.get(reference)
                    found[rank] = "its process ended"
                except Exception as error:
                    lines = str(error).strip().splitlines() or [type(error).__name__]
                    found[rank] = lines[-1].strip()
        return found

    def kill(self, rank: int) -> None:
        """See `Ranks`."""
        with self._lock:
            actor = self._actors.get(rank)
        if actor is not None:
            with suppress(Exception):
                ray.kill(actor, no_restart=True)

    def end(self) -> None:
        """See `Ranks`."""
        with self._lock:
            following, ranks = list(self._following.values()), list(self._actors)
        with suppress(Exception):
            ray.wait(following, num_returns=len(following), timeout=END_S)
        for rank in ranks:
            self.kill(rank)
