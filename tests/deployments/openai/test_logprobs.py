"""Log-probabilities in OpenAI's shapes and vLLM's: whole, streamed, echoed, cut."""

import asyncio
from typing import Any, Literal

import pytest
from transformers import PreTrainedTokenizerFast

from engine.request import FinishReason, TokenDelta, TokenLogprobs
from tests.deployments.api_app import App, tokens
from tests.deployments.fake_loop import Step, logprobs_of

TEXT = "Héllo 界🙂 wörld"


def ids(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


@pytest.fixture
def app(tokenizer: PreTrainedTokenizerFast) -> App:
    return App(tokenizer, tokens(tokenizer, TEXT))


async def test_chat_logprobs(app: App, tokenizer: PreTrainedTokenizerFast) -> None:
    async with app.openai() as client:
        answer = await client.chat.completions.create(
            model="tiny",
            messages=[{"role": "user", "content": "hello"}],
            logprobs=True,
            top_logprobs=2,
        )
        logprobs = answer.choices[0].logprobs
        assert logprobs is not None
        assert logprobs.content is not None
        # One for each token but EOS, which is no part of the text.
        assert [e.logprob for e in logprobs.content] == [-i / 4 for i in ids(tokenizer, TEXT)]
        assert bytes(b for e in logprobs.content for b in e.bytes or ()) == TEXT.encode()
        for entry in logprobs.content:
            assert [top.logprob for top in entry.top_logprobs] == [-1 / 8, -2 / 8]
            assert [top.token for top in entry.top_logprobs] == ["!", '"']

        plain = await client.chat.completions.create(
            model="tiny", messages=[{"role": "user", "content": "hello"}], logprobs=True
        )
        assert plain.choices[0].logprobs is not None
        assert plain.choices[0].logprobs.content is not None
        assert plain.choices[0].logprobs.content[0].top_logprobs == []


async def test_completion_logprobs(app: App, tokenizer: PreTrainedTokenizerFast) -> None:
    async with app.openai() as client:
        answer = await client.completions.create(
            model="tiny", prompt="The", logprobs=2, max_tokens=40
        )
        logprobs = answer.choices[0].logprobs
        assert logprobs is not None
        assert logprobs.token_logprobs == [-i / 4 for i in ids(tokenizer, TEXT)]
        assert logprobs.tokens is not None
        assert logprobs.text_offset is not None
        assert logprobs.top_logprobs is not None
        for token, offset, own, top in zip(
            logprobs.tokens,
            logprobs.text_offset,
            logprobs.token_logprobs,
            logprobs.top_logprobs,
            strict=True,
        ):
            if not token.startswith("bytes:"):
                assert TEXT[offset:].startswith(token)
            # The token itself stands beside the likeliest ones.
            assert top == {token: own, "!": -1 / 8, '"': -2 / 8}


@pytest.mark.parametrize("fields", [{}, {"echo": True}, {"n": 2}, {"stop": "zzz"}, {"stop": "w"}])
async def test_a_streams_logprobs_are_the_whole_answers(app: App, fields: dict[str, Any]) -> None:
    fields = {"logprobs": 1, "max_tokens": 40} | fields
    whole = await app.completion(**fields)
    chunks = await app.completion_chunks(**fields)
    for choice in whole["choices"]:
        parts = [c for k in chunks for c in k["choices"] if c["index"] == choice["index"]]
        assert "".join(part["text"] for part in parts) == choice["text"]
        for name, values in choice["logprobs"].items():
            pieces = [part["logprobs"][name] for part in parts if part["logprobs"]]
            assert [value for piece in pieces for value in piece] == values

    whole = await app.chat(logprobs=True, top_logprobs=1)
    chunks = await app.chat_chunks(logprobs=True, top_logprobs=1)
    pieces = [k["choices"][0]["logprobs"]["content"] for k in chunks if k["choices"][0]["logprobs"]]
    content = whole["choices"][0]["logprobs"]["content"]
    assert [entry for piece in pieces for entry in piece] == content


async def test_nothing_is_told_unasked(app: App) -> None:
    answer, chat = await app.completion(), await app.chat()
    assert answer["choices"][0]["logprobs"] is None
    assert chat["choices"][0]["logprobs"] is None
    assert "prompt_logprobs" not in answer["choices"][0]
    assert "prompt_logprobs" not in chat
    assert {request.sampling.logprobs for request in app.loop.requests} == {None}
    assert {request.sampling.prompt_logprobs for request in app.loop.requests} == {None}


@pytest.mark.parametrize(("include", "text", "num_tokens"), [(False, "a", 1), (True, "abc", 3)])
async def test_tokens_behind_a_stop_string_are_not_told(
    tokenizer: PreTrainedTokenizerFast, include: bool, text: str, num_tokens: int
) -> None:
    letters = tuple(token for letter in "abcd" for token in ids(tokenizer, letter))
    app = App(tokenizer, [letters, (5,)])
    answer = await app.completion(logprobs=0, stop="bc", include_stop_str_in_output=include)
    (choice,) = answer["choices"]
    assert choice["text"] == text
    assert choice["logprobs"]["tokens"] == ["a", "b", "c"][:num_tokens]
    assert choice["logprobs"]["text_offset"] == [0, 1, 2][:num_tokens]


async def test_echo_with_logprobs(app: App, tokenizer: PreTrainedTokenizerFast) -> None:
    prompt = "The 界 fox"
    prompt_ids = tokenizer(prompt)["input_ids"]
    answer = await app.completion(prompt=prompt, echo=True, logprobs=1, max_tokens=2)
    (choice,) = answer["choices"]
    new = ids(tokenizer, TEXT)[:2]
    assert choice["text"] == f"{prompt}{tokenizer.decode(new)}"
    logprobs = choice["logprobs"]
    assert logprobs["token_logprobs"] == [None, *(-i / 4 for i in [*prompt_ids[1:], *new])]
    assert logprobs["top_logprobs"][0] is None
    assert logprobs["tokens"][:2] == ["<|bos|>", "The"]
    for token, offset in zip(logprobs["tokens"][1:], logprobs["text_offset"][1:], strict=True):
        assert token.startswith("bytes:") or choice["text"][offset:].startswith(token)
    assert logprobs["text_offset"] == sorted(logprobs["text_offset"])


async def test_echo_of_tokens_shows_special_ones_where_they_are_asked_for(
    app: App, tokenizer: PreTrainedTokenizerFast
) -> None:
    prompt = [0, *ids(tokenizer, "a界")]
    for skips, text in ((True, "a界"), (False, "<|bos|>a界")):
        answer = await app.completion(
            prompt=prompt, echo=True, max_tokens=0, logprobs=0, skip_special_tokens=skips
        )
        (choice,) = answer["choices"]
        assert (choice["text"], choice["finish_reason"]) == (text, "length")
        assert answer["usage"]["completion_tokens"] == 0
        start = text.index("a")
        assert choice["logprobs"]["text_offset"][:3] == [0, start, start + 1]
        assert len(choice["logprobs"]["tokens"]) == len(prompt)
    assert app.loop.requests[0].sampling.max_tokens == 1


async def test_nothing_but_the_prompt_streamed(app: App) -> None:
    chunks = await app.completion_chunks(echo=True, max_tokens=0)
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "The"
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"


async def test_prompt_logprobs_as_vllm_gives_them(
    app: App, tokenizer: PreTrainedTokenizerFast
) -> None:
    prompt = [3, *ids(tokenizer, "ab")]
    expected = [
        None,
        *(
            {
                str(i): {"logprob": -i / 4, "rank": 9, "decoded_token": letter},
                "3": {"logprob": -1 / 8, "rank": 1, "decoded_token": "!"},
            }
            for i, letter in zip(prompt[1:], "ab", strict=True)
        ),
    ]
    answer = await app.completion(prompt=prompt, prompt_logprobs=1, n=2)
    assert [choice["prompt_logprobs"] for choice in answer["choices"]] == [expected] * 2
    assert answer["choices"][0]["logprobs"] is None
    chunks = await app.completion_chunks(prompt=prompt, prompt_logprobs=1)
    assert chunks[0]["choices"][0]["prompt_logprobs"] == expected
    assert all("prompt_logprobs" not in chunk["choices"][0] for chunk in chunks[1:])

    chat = await app.chat(prompt_logprobs=0)
    assert [type(entry) for entry in chat["prompt_logprobs"]][:2] == [type(None), dict]
    chunks = await app.chat_chunks(prompt_logprobs=0)
    assert chunks[0]["prompt_logprobs"] == chat["prompt_logprobs"]


async def test_the_prompts_logprobs_may_come_in_pieces_and_before_any_token(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    pieces = [
        TokenDelta("", prompt_logprobs=(logprobs_of(4, 0),)),
        TokenDelta("", prompt_logprobs=(logprobs_of(5, 0),)),
        TokenDelta("", (6,), FinishReason.LENGTH),
    ]
    app = App(tokenizer, pieces, [(7,), FinishReason.LENGTH])
    answer = await app.completion(prompt=[3, 4, 5], prompt_logprobs=0, n=2)
    assert [list(entry) for entry in answer["choices"][1]["prompt_logprobs"][1:]] == [["4"], ["5"]]


async def test_no_choice_is_told_before_the_whole_prompt_is_known(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    gate = Gate()
    first: list[Step] = [
        TokenDelta("", prompt_logprobs=(logprobs_of(4, 0),)),
        gate,
        TokenDelta("", (6,), FinishReason.LENGTH, prompt_logprobs=(logprobs_of(5, 0),)),
    ]
    app = App(tokenizer, first, [(7,), FinishReason.LENGTH])
    chunks: list[dict[str, Any]] = []

    async def read() -> None:
        async with app.openai() as client:
            stream = await client.completions.create(
                model="tiny",
                prompt=[3, 4, 5],
                n=2,
                stream=True,
                extra_body={"prompt_logprobs": 0},
            )
            chunks.extend([chunk.model_dump() async for chunk in stream])

    reading = asyncio.create_task(read())
    await gate.reached.wait()
    gate.set()
    await reading
    told = [c for k in chunks for c in k["choices"] if "prompt_logprobs" in c]
    assert [len(choice["prompt_logprobs"]) for choice in told] == [3, 3]


class Gate(asyncio.Event):
    """Tells when the script waits at it: all that came before has been read by then."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = asyncio.Event()

    async def wait(self) -> Literal[True]:
        self.reached.set()
        return await super().wait()


async def test_what_cannot_come_is_a_number_all_the_same(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    never = float("-inf")
    entry = TokenLogprobs(5, never, rank=300, top=((5, never),))
    delta = TokenDelta("", (5,), FinishReason.LENGTH, logprobs=(entry,))
    answer = await App(tokenizer, [delta]).completion(logprobs=1)
    assert answer["choices"][0]["logprobs"]["token_logprobs"] == [-9999.0]
