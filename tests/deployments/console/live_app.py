"""The whole application without Ray: a tiny engine, its policy channel, the actor, the API."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from cluster.policy_channel import ChannelTimings, PolicyChannel
from deployments.api import create_api
from deployments.api_keys import KeyRing
from deployments.policy_access import PolicyAccess
from deployments.service import GenerationService
from engine.config import DrafterConfig
from engine.loop import EngineLoop
from engine.model import load_tokenizer
from policy.actor import PolicyPublisher
from policy.board import Introduction, initial_publication
from policy.choice import parse_choice
from tests.engine.harness import tiny_engine
from tests.policy.grids import grid

REPORT_S = 0.05
MAX_DRAFT_LEN = 4
REPLICA = "r1a2b3c4"


@asynccontextmanager
async def live_app(
    model: Path, keys: KeyRing | None = None, policy: str | dict[str, Any] = "adaptive"
) -> AsyncIterator[FastAPI]:
    """An application whose only replica is at work."""
    actor = PolicyPublisher(policy, MAX_DRAFT_LEN)
    engine = tiny_engine(
        model,
        draft_len=MAX_DRAFT_LEN,
        drafter=DrafterConfig(kind="ngram"),
        block_size=16,
        max_num_seqs=8,
    )
    loop = EngineLoop(engine)
    loop.start()

    async def connect() -> PolicyPublisher:
        return actor

    channel = PolicyChannel(
        REPLICA,
        initial_publication(parse_choice(policy)),
        connect,
        loop.set_table,
        loop.drain_stats,
        ChannelTimings(report_s=REPORT_S),
        introduction=Introduction("k", "a tiny machine", 8, MAX_DRAFT_LEN, calibration=grid()),
    )
    channel.set_stage("ready")
    channel.start()
    service = GenerationService(
        loop,
        load_tokenizer(model),
        "tiny",
        max_model_len=engine.max_model_len,
        vocab_size=engine.vocab_size,
    )
    access = PolicyAccess(REPLICA, channel, connect, MAX_DRAFT_LEN)
    try:
        yield create_api(lambda: service, lambda: access, get_keys=lambda: keys)
    finally:
        await channel.close()
        await asyncio.to_thread(loop.close)


@asynccontextmanager
async def served(app: FastAPI) -> AsyncIterator[str]:
    """Under a real uvicorn on the loopback; gives its URL."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        bound.listen()
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off", ws="none"))
        serving = asyncio.create_task(server.serve(sockets=[bound]))
        try:
            yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving
