"""What a rank is told when it is started."""

from dataclasses import dataclass

from engine.errors import EngineDead


@dataclass(frozen=True, slots=True)
class RankSpec:
    """One rank of a group. Rank 0 is where the engine is; the others follow it."""

    rank: int
    size: int
    host: str
    """Where rank 0 listens."""
    store_port: int
    """Of torch's store, by which the ranks find each other."""
    plan_port: int
    """Of the channel that brings the plans."""
    secret: str
    """Shown by a rank that connects: nobody else may take its place."""


class RankFailed(EngineDead):
    """A rank failed, or is gone; the message names it and the reason."""
