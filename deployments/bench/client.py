"""An open-loop client: requests are sent when they are due, whatever became of those before.

A closed loop, whose clients wait for answers, slows down with the server and so hides what a burst
does. Here lateness is the client's own, and is told beside every result.
"""

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from deployments.bench.answers import Answer

_POLL_S = 0.2
_MAX_REASON = 120
_DONE = b"[DONE]"


@dataclass(frozen=True, slots=True)
class Ask:
    """A request's body, and when it is due."""

    due_s: float
    body: Mapping[str, Any]


class Stopped(Exception):
    """A person wants no more; nothing of the segment counts."""


class Client:
    """Streams answers of a server that speaks OpenAI's chat API. `api_url` ends in /v1."""

    def __init__(self, api_url: str, headers: Mapping[str, str], timeout_s: float) -> None:
        self._url = f"{api_url.rstrip('/')}/chat/completions"
        self._headers = dict(headers)
        self._timeout_s = timeout_s

    async def play(
        self,
        asks: Sequence[Ask],
        report: Callable[[int], None] = lambda _: None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> list[Answer]:
        """Send each when it is due; the answers in the same order, once all have ended. `report` is
        told how many have. Raises Stopped, with all requests in flight given up."""
        done = 0

        def ended(task: "asyncio.Task[Answer]") -> None:
            nonlocal done
            done += 1
            report(done)

        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        async with httpx.AsyncClient(
            limits=limits, timeout=self._timeout_s, headers=self._headers, trust_env=False
        ) as http:
            began = time.perf_counter()
            tasks: list[asyncio.Task[Answer]] = []

            async def send_all() -> None:
                for ask in sorted(asks, key=lambda one: one.due_s):
                    await asyncio.sleep(max(0.0, ask.due_s - (time.perf_counter() - began)))
                    task = asyncio.create_task(self._answer(http, ask, began))
                    task.add_done_callback(ended)
                    tasks.append(task)

            order = sorted(range(len(asks)), key=lambda index: asks[index].due_s)
            sending = asyncio.create_task(send_all())
            try:
                await _all_or_stopped(sending, tasks, stopped)
                answers = [task.result() for task in tasks]
            finally:
                for task in (sending, *tasks):
                    task.cancel()
                await asyncio.gather(sending, *tasks, return_exceptions=True)
        by_ask = dict(zip(order, answers, strict=True))
        return [by_ask[index] for index in range(len(asks))]

    async def _answer(self, http: httpx.AsyncClient, ask: Ask, began: float) -> Answer:
        def now() -> float:
            return time.perf_counter() - began

        sent_s = now()
        seen = _Seen()
        error: str | None = None
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                http.stream("POST", self._url, json=dict(ask.body)) as response,
            ):
                if response.status_code != httpx.codes.OK:
                    error = _refusal(response.status_code, await response.aread())
                else:
                    async for line in response.aiter_lines():
                        seen.take(line, now)
        except TimeoutError:
            error = f"no whole answer within {self._timeout_s:g} s"
        except httpx.HTTPError as failure:
            error = type(failure).__name__
        error = error or seen.error or (None if seen.is_whole else "the stream ended early")
        return Answer(
            ask.due_s,
            sent_s,
            seen.first_s,
            seen.last_s,
            seen.prompt_tokens,
            seen.new_tokens or seen.chunks,
            error,
            now(),
        )


@dataclass(slots=True)
class _Seen:
    """Of a stream so far."""

    first_s: float | None = None
    last_s: float | None = None
    """Of chunks with text in them, or with the end."""
    is_whole: bool = False
    chunks: int = 0
    """With text; what tokens are counted by where a server tells no usage."""
    prompt_tokens: int = 0
    new_tokens: int = 0
    error: str | None = None

    def take(self, line: str, now: Callable[[], float]) -> None:
        if not line.startswith("data:"):
            return
        data = line[5:].strip()
        if data.encode() == _DONE:
            return
        try:
            chunk = json.loads(data)
        except ValueError:
            self.error = f"not JSON in the stream: {data[:40]!r}"
            return
        if chunk.get("error"):
            self.error = _reason(chunk)
        for choice in chunk.get("choices") or ():
            delta = choice.get("delta") or {}
            has_text = bool(delta.get("content") or delta.get("reasoning_content"))
            ends = choice.get("finish_reason") is not None
            self.chunks += has_text
            self.is_whole |= ends
            if has_text or ends:  # a token need not have text
                self.last_s = now()
                self.first_s = self.last_s if self.first_s is None else self.first_s
        usage = chunk.get("usage")
        if usage:
            self.prompt_tokens = usage.get("prompt_tokens", 0)
            self.new_tokens = usage.get("completion_tokens", 0)


async def _all_or_stopped(
    sending: "asyncio.Task[None]",
    tasks: Sequence["asyncio.Task[Answer]"],
    stopped: Callable[[], bool],
) -> None:
    while True:
        if stopped():
            raise Stopped
        waiting = [task for task in (sending, *tasks) if not task.done()]
        if not waiting:
            sending.result()
            return
        await asyncio.wait(waiting, timeout=_POLL_S)


def _refusal(status: int, body: bytes) -> str:
    try:
        return f"{status}: {_reason(json.loads(body))}"
    except (ValueError, AttributeError):
        return f"{status}: {body[:_MAX_REASON].decode(errors='replace')}"


def _reason(said: Any) -> str:
    error = said.get("error", said)
    message = error.get("message", error) if isinstance(error, dict) else error
    return " ".join(str(message).split())[:_MAX_REASON]
