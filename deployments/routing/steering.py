"""A call that says which replicas it wants, for callers who know more than a router does."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar


class _HasUniqueId(Protocol):
    @property
    def unique_id(self) -> str: ...


class _Replica(Protocol):
    @property
    def replica_id(self) -> _HasUniqueId: ...


Replica = TypeVar("Replica", bound=_Replica)


@dataclass(frozen=True, slots=True)
class Steering:
    """Handed over as one of the call's arguments. A wish that no replica meets is passed over."""

    only: str | None = None
    avoided: frozenset[str] = frozenset()

    def allows(self, replica_id: str) -> bool:
        if self.only is not None:
            return replica_id == self.only
        return replica_id not in self.avoided


def wanted(replicas: Sequence[Replica], args: Sequence[Any]) -> list[Replica]:
    """Those that a call with these arguments wants; all, where it doesn't say or none is there."""
    steering = next((arg for arg in args if isinstance(arg, Steering)), None)
    if steering is None:
        return list(replicas)
    found = [replica for replica in replicas if steering.allows(replica.replica_id.unique_id)]
    return found or list(replicas)
