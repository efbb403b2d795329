"""Where a replica's ranks go: bundles of resources, and whether a cluster has room. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from engine.errors import ConfigError

Strategy = Literal["STRICT_PACK", "PACK"]
_UNIT_NAMES = {"CPU": "CPUs", "GPU": "GPUs"}
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Placement:
    """A replica's placement group: bundle 0 is the replica, which is rank 0; each other bundle is a
    rank. The draft is on rank 0, and shares its resources."""

    bundles: tuple[Mapping[str, float], ...]
    strategy: Strategy
    """STRICT_PACK: all on one node. PACK: on few nodes, if one has no room."""


def placement_of(tp_size: int, num_cpus: float, num_gpus: float, strategy: Strategy) -> Placement:
    """Of a replica with so much for each rank. Raises ConfigError for what no rank can run with."""
    if num_gpus > 1:
        raise ConfigError(
            f"replicas.num_gpus must be at most 1 when engine.tp_size is above 1, as each rank "
            f"drives one GPU, got {num_gpus:g}"
        )
    bundle = {"CPU": num_cpus}
    if num_gpus:
        bundle["GPU"] = num_gpus
    if not any(bundle.values()):
        # Ray refuses bundles of nothing.
        raise ConfigError("replicas.num_cpus must be above 0 when engine.tp_size is above 1, got 0")
    return Placement(tuple(dict(bundle) for _ in range(tp_size)), strategy)


def require_room(
    placement: Placement, nodes: Sequence[Mapping[str, float]], num_replicas: int = 1
) -> None:
    """Raise ConfigError, which says what is missing, when `nodes` (the resources that each has in
    all, whoever uses them now) could never hold so many replicas."""
    for resource in ("GPU", "CPU"):
        each = max(bundle.get(resource, 0.0) for bundle in placement.bundles)
        if not each:
            continue
        name, count = _UNIT_NAMES[resource], len(placement.bundles)
        has = [node.get(resource, 0.0) for node in nodes]
        if placement.strategy == "STRICT_PACK":
            largest = max(has, default=0.0)
            if each * count > largest + _ROUNDING:
                raise ConfigError(
                    f"engine.tp_size: a replica needs {each * count:g} {name} on one node; the "
                    f"largest node has {largest:g} (replicas.placement: PACK lets a replica span "
                    "nodes)"
                )
            places = sum(int((one + _ROUNDING) // (each * count)) for one in has)
            if places < num_replicas:
                raise ConfigError(
                    f"replicas.num_replicas is {num_replicas}, each with {each * count:g} {name} "
                    f"on one node; the cluster has room for {places}"
                )
        else:
            places = sum(int((one + _ROUNDING) // each) for one in has)
            if places < count * num_replicas:
                raise ConfigError(
                    f"engine.tp_size: {num_replicas} replicas of {count} ranks need {name} in "
                    f"{count * num_replicas} portions of {each:g}; the cluster has {places}"
                )
