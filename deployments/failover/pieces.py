"""A deployment's side of a resilient handle's call: chunks, with what they are made of."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeAlias

from deployments.failover.replies import Died, Reached, Refused
from deployments.generation.origin import Origin
from deployments.generation.run import Told
from deployments.service import GenerationService, Piece
from engine.errors import EngineDead, PacelineError


@dataclass(frozen=True, slots=True)
class Complete:
    """The last reply, without which something is missing."""


PieceReply: TypeAlias = Reached | Piece | Refused | Died | Complete


async def piece_replies(
    service: GenerationService,
    replica_id: str,
    body: Mapping[str, Any],
    origin: Origin,
    told: Sequence[Told],
) -> AsyncGenerator[PieceReply, None]:
    """The rest of the answer, behind what was `told`."""
    yield Reached(replica_id)
    try:
        await service.health()
    except EngineDead as error:
        yield Refused(error)
        return
    try:
        job = await service.prepare(body, origin)
        async with aclosing(service.pieces(job, told)) as pieces:
            async for piece in pieces:
                yield piece
        yield Complete()
    except EngineDead as error:
        yield Died(str(error))
    except PacelineError as error:
        yield Refused(error)
