"""What a router sees of a request."""

import pickle
from dataclasses import replace
from typing import Any

import pytest
from ray.serve._private.common import StreamingHTTPRequest

from deployments.routing.view import BLOCK_CHARS, see
from engine.request import Request, SamplingParams


def head(**headers: str) -> bytes:
    """As Serve's proxy hands it to its router."""
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope: Any = {"type": "http", "headers": pairs}
    return pickle.dumps(StreamingHTTPRequest(asgi_scope=scope, proxy_actor_name="proxy"))


def test_of_http_the_length_is_seen_and_the_session() -> None:
    seen = see([head(content_length="4000")], "")
    assert (seen.prompt_tokens, seen.digests, seen.max_tokens) == (1000, (), None)
    first = see([head(content_length="4000")], "me")
    assert first.digests == see([head(content_length="9000")], "me").digests != ()
    assert first.digests != see([head(content_length="4000")], "you").digests
    assert first.tokens_per_digest == 1000


def test_a_request_without_a_body_weighs_next_to_nothing() -> None:
    assert see([head()], "").max_tokens == 1


def test_a_body_is_seen_whole() -> None:
    text = "x" * 3 * BLOCK_CHARS
    seen = see([{"prompt": text, "max_tokens": 7}], "")
    assert (seen.prompt_tokens, len(seen.digests), seen.max_tokens) == (len(text) // 4, 3, 7)


def test_a_response_is_seen_whole() -> None:
    text = "x" * 3 * BLOCK_CHARS
    body = {"instructions": "y" * BLOCK_CHARS, "input": text, "max_output_tokens": 7}
    seen = see([body], "")
    assert (seen.prompt_tokens, len(seen.digests), seen.max_tokens) == (BLOCK_CHARS, 4, 7)
    items = [{"role": "user", "content": [{"type": "input_text", "text": text}]}]
    assert see([{"input": items}], "").prompt_tokens >= len(text) // 4


def test_turns_of_a_chat_share_their_beginning() -> None:
    first = [{"role": "system", "content": "s" * BLOCK_CHARS}, {"role": "user", "content": "one"}]
    parts = [{"type": "text", "text": "two" * BLOCK_CHARS}]
    later = [*first, {"role": "assistant", "content": "yes"}, {"role": "user", "content": parts}]
    before, after = see([{"messages": first}], ""), see([{"messages": later}], "")
    assert len(before.digests) == 1 < len(after.digests)
    assert after.digests[:1] == before.digests


def test_a_difference_early_on_changes_all_that_follows() -> None:
    text = "x" * 2 * BLOCK_CHARS
    one, other = see([{"prompt": "a" + text}], ""), see([{"prompt": "b" + text}], "")
    assert not set(one.digests) & set(other.digests)


def test_token_ids_count_as_tokens() -> None:
    assert see([{"prompt": list(range(100))}], "").prompt_tokens == 100


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        [None],
        [b"no pickle"],
        [pickle.dumps("no request")],
        [head(content_length="many")],
        [head(content_length="-5")],
        [{}],
        [{"prompt": 7, "max_tokens": "x"}],
        [{"messages": [None, {"content": {"text": 3}}, [[["deep"]]]], "max_tokens": True}],
    ],
)
def test_nonsense_is_seen_as_nothing(arguments: list[Any]) -> None:
    seen = see(arguments, "")
    assert seen.prompt_tokens <= 1
    assert seen.digests == ()


def test_the_engines_own_requests_are_seen_by_their_tokens() -> None:
    prompt = tuple(range(200))
    asked = Request("a", prompt, SamplingParams(max_tokens=50))
    seen = see([(asked, replace(asked, request_id="b"))], "")
    assert (seen.prompt_tokens, seen.max_tokens, len(seen.digests)) == (200, 100, 3)
    other = Request("c", tuple(range(7)), SamplingParams(max_tokens=50))
    both = see([(asked, other, replace(asked, request_id="b"))], "")
    assert (both.prompt_tokens, both.max_tokens, both.digests) == (207, 150, seen.digests)
    later = see([(asked.continued((1, 2, 3)),)], "")
    assert (later.prompt_tokens, later.max_tokens) == (203, 47)
    assert later.digests == seen.digests
