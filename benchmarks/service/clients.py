"""Real clients: OpenAI's SDK, as users have it, and httpx where the client's own time counts."""

import asyncio
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import httpx
import openai

from benchmarks.service.answers import AGAIN, Outcome, Story, Try, judge, outcome_of_status

Body = Mapping[str, Any]
PATIENCE_S = 120.0
"""Of a client for one answer, and for asking again and again."""
PAUSE_S = 0.5
"""Before asking again, where the server says nothing."""
LONGEST_PAUSE_S = 5.0
_EVENT = b"data: "
_DONE = b"[DONE]"


class SdkClient:
    """OpenAI's async client, without its own retries: they would hide what is counted here."""

    def __init__(self, url: str) -> None:
        self._sdk = openai.AsyncOpenAI(
            base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=PATIENCE_S
        )

    async def __aenter__(self) -> "SdkClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._sdk.close()

    async def ask(self, body: Body, expected: str | None = None) -> Try:
        """One try: a completion, or a chat if the body has messages, streamed if it says so."""
        begun = time.perf_counter()
        try:
            answer = await self._create(body)
        except openai.APIConnectionError as error:
            return Try(Outcome.NO_CONNECTION, detail=_words(error))
        except openai.APIStatusError as error:
            with suppress(ValueError):
                retry_s = float(error.response.headers.get("retry-after", ""))
                return Try(
                    outcome_of_status(error.status_code), detail=_words(error), retry_s=retry_s
                )
            return Try(outcome_of_status(error.status_code), detail=_words(error))
        if not body.get("stream"):
            ended = _read(answer, expected)
        else:
            ended = await _read_stream(answer, expected, begun)
        return replace(ended, seconds=time.perf_counter() - begun)

    async def insist(self, body: Body, expected: str | None = None) -> Story:
        """Ask until the answer is there, or will not be, or patience is at its end."""
        deadline = time.monotonic() + PATIENCE_S
        tries = [await self.ask(body, expected)]
        while tries[-1].outcome in AGAIN and time.monotonic() < deadline:
            told_s = tries[-1].retry_s
            await asyncio.sleep(PAUSE_S if told_s is None else min(told_s, LONGEST_PAUSE_S))
            tries.append(await self.ask(body, expected))
        return Story(tuple(tries))

    async def leave(self, body: Body, after_s: float) -> Try:
        """Ask, and go away after some time; an answer that is faster stays as it is."""
        try:
            async with asyncio.timeout(after_s):
                return await self.ask(body)
        except TimeoutError:
            return Try(Outcome.LEFT)

    async def _create(self, body: Body) -> Any:
        rest = {k: v for k, v in body.items() if k not in ("model", "messages", "prompt", "stream")}
        stream: Any = body.get("stream", False)
        if "messages" in body:
            return await self._sdk.chat.completions.create(
                model=body["model"], messages=body["messages"], stream=stream, extra_body=rest
            )
        return await self._sdk.completions.create(
            model=body["model"], prompt=body["prompt"], stream=stream, extra_body=rest
        )


def _read(answer: Any, expected: str | None) -> Try:
    choice = answer.choices[0]
    text = _text_of(choice)
    return Try(
        judge(text, choice.finish_reason, expected),
        text=text,
        num_tokens=answer.usage.completion_tokens,
    )


async def _read_stream(stream: Any, expected: str | None, begun: float) -> Try:
    pieces: list[str] = []
    finish_reason: str | None = None
    ttft_s: float | None = None
    num_tokens = 0
    try:
        async with stream:
            async for chunk in stream:
                if ttft_s is None:
                    ttft_s = time.perf_counter() - begun
                if chunk.usage is not None:
                    num_tokens = chunk.usage.completion_tokens
                for choice in chunk.choices:
                    pieces.append(_text_of(choice))
                    finish_reason = choice.finish_reason or finish_reason
    except openai.APIConnectionError as error:
        return Try(Outcome.CUT, "".join(pieces), ttft_s, detail=_words(error))
    except openai.APIError as error:
        return Try(Outcome.FAILED, "".join(pieces), ttft_s, detail=_words(error))
    text = "".join(pieces)
    outcome = judge(text, finish_reason, expected)
    return Try(outcome, text, ttft_s, num_tokens=num_tokens)


def _text_of(choice: Any) -> str:
    """Of a completion's or a chat's choice, whole or a chunk's."""
    said = getattr(choice, "delta", None) or getattr(choice, "message", None)
    return (choice.text if said is None else said.content) or ""


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:200]


class WireClient:
    """httpx, which does little more than receive: on two cores that it shares with the server, an
    SDK that makes objects of each chunk would be measured instead."""

    def __init__(self, url: str) -> None:
        self._http = httpx.AsyncClient(
            base_url=url, timeout=PATIENCE_S, limits=httpx.Limits(max_connections=None)
        )
        self.num_chunks = 0
        """Received so far, of all streams."""

    async def __aenter__(self) -> "WireClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def get(self, path: str) -> dict[str, Any]:
        """Raises httpx.HTTPError, also for a status that is not 200."""
        answer: dict[str, Any] = (await self._http.get(path)).raise_for_status().json()
        return answer

    async def put_policy(self, policy: Any) -> None:
        (await self._http.put("/policy", json={"policy": policy})).raise_for_status()

    async def post_raw(self, path: str, content: bytes) -> httpx.Response:
        """Whatever the bytes are."""
        return await self._http.post(
            path, content=content, headers={"Content-Type": "application/json"}
        )

    async def chat(self, body: Body) -> Try:
        """One that is expected to succeed: raises httpx.HTTPError when it does not."""
        begun = time.perf_counter()
        if not body.get("stream"):
            answer = await self._http.post("/v1/chat/completions", json=body)
            usage = answer.raise_for_status().json()["usage"]
            return Try(
                Outcome.COMPLETE,
                seconds=time.perf_counter() - begun,
                num_tokens=usage["completion_tokens"],
            )
        ttft_s: float | None = None
        received = b""
        async with self._http.stream("POST", "/v1/chat/completions", json=body) as answer:
            answer.raise_for_status()
            async for part in answer.aiter_raw():
                if ttft_s is None:
                    ttft_s = time.perf_counter() - begun
                received += part
        *events, done = received.strip().split(b"\n\n")
        if done != _EVENT + _DONE:
            raise httpx.RemoteProtocolError(f"the stream ended with {done[:100]!r}")
        self.num_chunks += len(events) + 1
        return Try(
            Outcome.COMPLETE,
            ttft_s=ttft_s,
            seconds=time.perf_counter() - begun,
            num_tokens=json.loads(events[-1].removeprefix(_EVENT))["usage"]["completion_tokens"],
        )
