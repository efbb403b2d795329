"""What it costs to stream an answer instead of sending it whole, and which process pays for it."""

import time
from dataclasses import dataclass, field

from benchmarks.progress import Begin
from benchmarks.service.asks import Asks, Shape
from benchmarks.service.clients import WireClient
from benchmarks.service.closed_loop import Round, closed_loop
from benchmarks.service.interleaved import lost_share
from benchmarks.service.served import Served
from deployments.bench.results import Spread

CONCURRENCY = 16
STREAMED, WHOLE = "streamed", "whole"
CLIENT = "client"


@dataclass(slots=True)
class Streaming:
    """Measured so far."""

    rounds: dict[str, list[Round]] = field(default_factory=dict)
    cpu_seconds: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    """By arm: of each round, by kind of process."""
    chunks: list[int] = field(default_factory=list)
    """Of each streamed round."""

    @property
    def lost(self) -> Spread | None:
        """Share of the throughput."""
        if not self.chunks:
            return None
        return lost_share(self.rounds[STREAMED], self.rounds[WHOLE])

    def cpu_ms_per_chunk(self) -> dict[str, Spread]:
        """By kind of process: what a streamed round took beyond a whole one, over its chunks."""
        pairs = list(
            zip(self.cpu_seconds[STREAMED], self.cpu_seconds[WHOLE], self.chunks, strict=False)
        )
        return {
            kind: Spread.of(
                [1e3 * (more[kind] - less[kind]) / chunks for more, less, chunks in pairs]
            )
            for kind in pairs[0][0]
        }


async def measure_streaming(
    served: Served,
    asks: Asks,
    shape: Shape,
    repeats: int,
    begin: Begin,
    found: Streaming,
) -> None:
    async with WireClient(served.url) as client:
        for repeat in range(-1, repeats):
            begin(f"streaming, round {repeat + 1} of {repeats}")
            of_round: dict[str, tuple[Round, dict[str, float], int]] = {}
            for name in (WHOLE, STREAMED) if repeat % 2 else (STREAMED, WHOLE):
                stream = name == STREAMED
                bodies = asks.round(repeat + 1, int(stream), shape, stream=stream)
                cpu, chunks = _cpu_seconds(served), client.num_chunks
                done = await closed_loop(client.chat, bodies, CONCURRENCY)
                used = {kind: now - cpu[kind] for kind, now in _cpu_seconds(served).items()}
                of_round[name] = done, used, client.num_chunks - chunks
            if repeat >= 0:
                for name, (done, used, _) in of_round.items():
                    found.rounds.setdefault(name, []).append(done)
                    found.cpu_seconds.setdefault(name, []).append(used)
                found.chunks.append(of_round[STREAMED][2])


def _cpu_seconds(served: Served) -> dict[str, float]:
    return {**served.cpu_seconds(), CLIENT: time.process_time()}
