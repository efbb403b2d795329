"""What clients ask for: chats of MT-bench, and requests that are wrong in many ways."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

BODY_LIMIT = 2**20
_NUMBERS_OF_AN_ARM = 1000


@dataclass(frozen=True, slots=True)
class BadAsk:
    path: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Shape:
    """Of a round: so many requests, each of `fewest` to `most` new tokens: of unlike lengths, so
    that they do not end together."""

    requests: int
    fewest: int
    most: int


class Asks:
    """Bodies for the chats of `texts`, all drawn from one seed."""

    def __init__(self, model: str, texts: Sequence[str], seed: int = 0) -> None:
        self._model = model
        self._texts = texts
        self._draw = random.Random(seed)

    def timed(self, number: int, new_tokens: int, *, stream: bool) -> dict[str, Any]:
        """Greedy, exactly so many tokens. Other numbers are other texts: no cache answers."""
        text = self._texts[number % len(self._texts)]
        return {
            "model": self._model,
            "messages": [{"role": "user", "content": f"({number}) {text}"}],
            "max_tokens": new_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": stream,
            **({"stream_options": {"include_usage": True}} if stream else {}),
        }

    def round(self, index: int, arm: int, shape: Shape, *, stream: bool) -> list[dict[str, Any]]:
        """Of a round of measurements. All arms ask for the same chats and as many tokens, but each
        with numbers of its own, as some share a server and its cache."""
        draw = random.Random(index)
        first = index * shape.requests
        own = arm * _NUMBERS_OF_AN_ARM * len(self._texts)
        return [
            self.timed(own + first + n, draw.randint(shape.fewest, shape.most), stream=stream)
            for n in range(shape.requests)
        ]

    def seeded(self, number: int, new_tokens: int) -> dict[str, Any]:
        """The same number is the same request: greedy or sampled, a chat or a completion."""
        text = self._texts[number % len(self._texts)]
        asked: dict[str, Any] = {"messages": [{"role": "user", "content": text}]}
        if number % 4 == 3:
            asked = {"prompt": text}
        return {
            "model": self._model,
            **asked,
            "max_tokens": new_tokens,
            "temperature": 0.8 if number % 2 else 0,
            "seed": number,
            "ignore_eos": True,
        }

    def mixed(self, fewest: int, most: int) -> dict[str, Any]:
        """As users ask: of some length, streamed or not, sampled or not."""
        draw = self._draw
        body = self.seeded(draw.randrange(2**20), draw.randint(fewest, most))
        return {**body, "stream": draw.random() < 0.5}

    def bad(self) -> BadAsk:
        """Something that must be refused with a 4xx, whatever the load."""
        good = self.seeded(self._draw.randrange(2**20), 8)
        good.pop("prompt", None)
        good["messages"] = [{"role": "user", "content": "Hello"}]
        wrong: list[Any] = [
            b"{",
            b"\xff\xfe",
            b"[]",
            b"[" * 5000,
            {**good, "model": "another"},
            {**good, "messages": []},
            {**good, "messages": [{"role": "nobody", "content": "x"}]},
            {**good, "max_tokens": -1},
            {**good, "temperature": 9},
            {**good, "n": 10**9},
            {**good, "nonsense": True},
            {**good, "response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
            {**good, "ignore_eos": False, "response_format": {"type": "regex", "regex": "("}},
            {**good, "messages": [{"role": "user", "content": "word " * 20_000}]},
            b'{"x": "' + b"x" * BODY_LIMIT + b'"}',
        ]
        chosen = self._draw.choice(wrong)
        content = chosen if isinstance(chosen, bytes) else json.dumps(chosen).encode()
        return BadAsk("/v1/chat/completions", content)
