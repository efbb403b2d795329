"""The engine that a replica has, in this process: no HTTP, no Serve, no text."""

import itertools
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from benchmarks.prompts import chat_prompts
from benchmarks.service.answers import Outcome, Try
from deployments import garbage
from deployments.bench.settle import settle
from deployments.config import AppConfig
from engine.build import build_engine
from engine.loop import EngineLoop
from engine.model import load_tokenizer
from engine.passing_thread import in_passing_thread
from engine.request import Request, SamplingParams
from policy.table import SpeculationTable


class EngineAlone:
    """Asked for the same chats as the service. The time to tokenise them is not the engine's."""

    def __init__(self, loop: EngineLoop, tokenizer: Any) -> None:
        self._loop = loop
        self._tokenizer = tokenizer
        self._numbers = itertools.count()

    async def chat(self, body: Mapping[str, Any]) -> Try:
        [prompt] = chat_prompts([body["messages"][0]["content"]], self._tokenizer)
        begun = time.perf_counter()
        sampling = SamplingParams(
            max_tokens=body["max_tokens"],
            temperature=body["temperature"],
            ignore_eos=body["ignore_eos"],
        )
        request = Request(f"{next(self._numbers)}", tuple(prompt), sampling)
        ttft_s: float | None = None
        num_tokens = 0
        async for delta in self._loop.generate(request):
            if ttft_s is None:
                ttft_s = time.perf_counter() - begun
            num_tokens += len(delta.token_ids)
        return Try(
            Outcome.COMPLETE,
            ttft_s=ttft_s,
            seconds=time.perf_counter() - begun,
            num_tokens=num_tokens,
        )


@contextmanager
def engine_alone(config: AppConfig, rungs: list[tuple[int, int]]) -> Iterator[EngineAlone]:
    """Built from an application's configuration, with that table in force throughout."""
    engine_config = config.engine_config()
    table = SpeculationTable(0, tuple(rungs))
    engine = in_passing_thread(lambda: build_engine(engine_config, table))
    settle()
    garbage.settle()
    loop = EngineLoop(engine)
    loop.start()
    try:
        yield EngineAlone(loop, load_tokenizer(engine_config.model))
    finally:
        loop.close()
