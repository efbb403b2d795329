"""The API over a scripted engine and policy, in process or under a real server."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import openai
import uvicorn
from fastapi import FastAPI
from transformers import PreTrainedTokenizerFast

from cluster.metrics.requests import RequestRecord
from deployments.api import create_api
from deployments.api_keys import KeyRing
from deployments.service import GenerationService
from engine.errors import PacelineError, RequestError
from engine.request import FinishReason
from policy.choice import parse_choice
from tests.deployments.fake_loop import FakeLoop, Step

MAX_BODY_BYTES = 20_000
COMPLETION: dict[str, Any] = {"model": "tiny", "prompt": "The"}
CHAT: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}]}


class PolicyLost(PacelineError):
    pass


class FakePolicy:
    def __init__(self) -> None:
        self.is_lost = False
        self.now: object = "off"

    async def get(self) -> dict[str, Any]:
        return {
            "table": {"version": 1, "policy": self.now},
            "replicas": [],
            "policy_actor": {"reachable": True, "heard_s_ago": 0.0},
        }

    async def set(self, policy: object) -> dict[str, Any]:
        if self.is_lost:
            raise PolicyLost("the policy actor does not answer")
        try:
            parse_choice(policy)
        except ValueError as error:
            raise RequestError("policy", f"policy: {error}") from None
        self.now = policy
        return await self.get()

    async def explain(self, batch_size: int) -> dict[str, Any]:
        if self.is_lost:
            raise PolicyLost("the policy actor does not answer")
        return {"text": f"at batch {batch_size}"}

    async def explain_table(self) -> dict[str, Any]:
        if self.is_lost:
            raise PolicyLost("the policy actor does not answer")
        return {"kinds": []}

    def heard_s_ago(self) -> float | None:
        return 0.5


class App:
    def __init__(
        self,
        tokenizer: PreTrainedTokenizerFast,
        *scripts: Sequence[Step],
        max_model_len: int = 64,
        keys: KeyRing | None = None,
        cors_origins: Sequence[str] = (),
        tell: Callable[[RequestRecord], None] = lambda record: None,
        metric_addresses: Sequence[str] = (),
    ) -> None:
        self.loop = FakeLoop(*scripts)
        self.policy = FakePolicy()
        self.service = service = GenerationService(
            self.loop,
            tokenizer,
            "tiny",
            max_model_len=max_model_len,
            vocab_size=len(tokenizer),
            tell=tell,
        )
        self.asgi: FastAPI = create_api(
            lambda: service,
            lambda: self.policy,
            max_body_bytes=MAX_BODY_BYTES,
            get_keys=lambda: keys,
            cors_origins=cors_origins,
            get_metric_addresses=lambda: metric_addresses,
        )

    async def completion(self, **fields: Any) -> dict[str, Any]:
        return await self._whole("/v1/completions", COMPLETION | fields)

    async def chat(self, **fields: Any) -> dict[str, Any]:
        return await self._whole("/v1/chat/completions", CHAT | fields)

    async def completion_chunks(self, **fields: Any) -> list[dict[str, Any]]:
        return await self._chunks("/v1/completions", COMPLETION | fields)

    async def chat_chunks(self, **fields: Any) -> list[dict[str, Any]]:
        return await self._chunks("/v1/chat/completions", CHAT | fields)

    async def _whole(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        response = await self.post(path, json=body)
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    async def _chunks(self, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
        response = await self.post(path, json=body | {"stream": True})
        assert response.status_code == 200, response.text
        *events, done = response.text.removesuffix("\n\n").split("\n\n")
        assert done == "data: [DONE]"
        return [json.loads(event.removeprefix("data: ")) for event in events]

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            transport=httpx.ASGITransport(self.asgi), base_url="http://replica"
        )

    async def post(self, path: str, **kwargs: Any) -> httpx.Response:
        async with self.client() as client:
            return await client.post(path, **kwargs)

    @asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        """The app under a real uvicorn on the loopback; gives its URL."""
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            bound.listen()
            config = uvicorn.Config(self.asgi, log_config=None, lifespan="off", ws="none")
            server = uvicorn.Server(config)
            serving = asyncio.create_task(server.serve(sockets=[bound]))
            try:
                yield f"http://127.0.0.1:{bound.getsockname()[1]}"
            finally:
                server.should_exit = True
                await serving

    @asynccontextmanager
    async def openai(self) -> AsyncIterator[openai.AsyncOpenAI]:
        async with (
            self.served() as url,
            openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
        ):
            yield client


def tokens(tokenizer: PreTrainedTokenizerFast, text: str) -> list[Step]:
    """One step for each token, then EOS."""
    encoded = tokenizer(text, add_special_tokens=False)["input_ids"]
    return [*((token_id,) for token_id in encoded), (1,), FinishReason.STOP]


def assert_error(
    response: httpx.Response, status: int, code: str | None, param: str | None, says: str
) -> None:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["code"], error["param"]) == (code, param)
    assert says in error["message"]
