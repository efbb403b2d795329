"""What a router sees of a request, mostly before anybody has tokenised it.

A router deployment (`failover/`) passes the engine's own requests, of which all is known. A caller
with a DeploymentHandle passes the body, which is seen whole. Of an HTTP request Serve's proxy gives
its router the head alone, as pickled bytes, and sends the body after it once the replica is chosen:
so there is the body's length, and a session where the client names one in the header `x-session-
id`.
"""

import hashlib
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.request import Request

CHARS_PER_TOKEN = 4
BLOCK_CHARS = 256
_MOST_BLOCKS = 64
"""16,384 characters: what two requests share beyond that changes no choice."""
_NO_LENGTH = 0
_LIMIT_FIELDS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
"""Of a chat, of either kind, and of a response."""


@dataclass(frozen=True, slots=True)
class SeenRequest:
    prompt_tokens: int
    """About."""
    digests: tuple[bytes, ...] = ()
    """Of what it begins with, one for each block more; or one alone, of its session."""
    tokens_per_digest: int = BLOCK_CHARS // CHARS_PER_TOKEN
    max_tokens: int | None = None


def see(args: Sequence[Any], session_id: str) -> SeenRequest:
    """Of what is none of our requests nothing is seen; never raises."""
    first = args[0] if args else None
    if isinstance(first, Mapping):
        return _see_body(first)
    if isinstance(first, tuple) and first and isinstance(first[0], Request):
        return _see_requests(first)
    length = _content_length(first) if isinstance(first, bytes) else _NO_LENGTH
    if not length:
        return SeenRequest(0, max_tokens=1)  # of the control routes, most likely
    tokens = length // CHARS_PER_TOKEN
    if not session_id:
        return SeenRequest(tokens)
    return SeenRequest(tokens, (_digest(b"session", session_id),), tokens)


def _see_body(body: Mapping[str, Any]) -> SeenRequest:
    asked_in = [body.get(name) for name in ("instructions", "messages", "input", "prompt")]
    texts = list(_texts([asked for asked in asked_in if asked is not None]))
    num_chars = sum(map(len, texts))
    limits = (body.get(name) for name in _LIMIT_FIELDS)
    asked = next((limit for limit in limits if limit is not None), None)
    is_number = isinstance(asked, int) and not isinstance(asked, bool) and asked > 0
    text = "".join(texts)[: BLOCK_CHARS * _MOST_BLOCKS]
    digests: list[bytes] = []
    for start in range(0, len(text) - BLOCK_CHARS + 1, BLOCK_CHARS):
        before = digests[-1] if digests else b""
        digests.append(_digest(before, text[start : start + BLOCK_CHARS]))
    return SeenRequest(
        num_chars // CHARS_PER_TOKEN,
        tuple(digests),
        max_tokens=asked if is_number else None,
    )


def _see_requests(requests: Sequence[Request]) -> SeenRequest:
    """Choices of prompts, each of which is computed once; what another replica had generated,
    anew. What the first one begins with stands for all."""
    prompt = requests[0].prompt_token_ids
    num_prompt = sum(map(len, {request.prompt_token_ids for request in requests}))
    known = [len(request.generated_token_ids) for request in requests]
    tokens_per_block = BLOCK_CHARS // CHARS_PER_TOKEN
    digests: list[bytes] = []
    for start in range(0, len(prompt) - tokens_per_block + 1, tokens_per_block)[:_MOST_BLOCKS]:
        before = digests[-1] if digests else b""
        digests.append(_digest(before, str(prompt[start : start + tokens_per_block])))
    left = [r.sampling.max_tokens - n for r, n in zip(requests, known, strict=True)]
    return SeenRequest(num_prompt + sum(known), tuple(digests), max_tokens=sum(left))


def _texts(value: object) -> Iterator[str]:
    """The texts of a prompt or of messages, in order; token ids as text."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _texts(value.get("role"))
        yield from _texts(value.get("content", value.get("text")))
    elif isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        for item in value:
            if isinstance(item, int):
                yield f"{item:<{CHARS_PER_TOKEN}}"
            else:
                yield from _texts(item)


def _content_length(head: bytes) -> int:
    try:
        headers = pickle.loads(head).asgi_scope["headers"]
        return max(0, int(dict(headers).get(b"content-length", _NO_LENGTH)))
    except Exception:  # whatever it is, it is no head that is known
        return _NO_LENGTH


def _digest(before: bytes, text: str) -> bytes:
    return hashlib.blake2b(before + text.encode(errors="replace"), digest_size=16).digest()
