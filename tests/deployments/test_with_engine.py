"""The service over a real engine with a tiny random model: what is asked for comes about."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from deployments.service import GenerationService
from deployments.text.detokenizer import Detokenizer
from deployments.text.token_texts import token_text
from engine.config import DrafterConfig
from engine.errors import RequestError
from engine.loop import EngineLoop
from engine.model import load_tokenizer
from tests.engine.harness import tiny_engine
from tests.tiny import save_tiny_llama
from tests.tiny_tokenizer import byte_level_tokenizer

Answer = dict[str, Any]
SCHEMA = {
    "type": "object",
    "properties": {"quick": {"type": "boolean"}, "legs": {"type": "integer", "maximum": 9}},
    "required": ["quick", "legs"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    tokenizer = byte_level_tokenizer()
    save_tiny_llama(folder, vocab_size=len(tokenizer), eos_token_id=1)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(params=[0, 4], ids=["no drafts", "drafts of 4"])
async def service(model: Path, request: pytest.FixtureRequest) -> AsyncIterator[GenerationService]:
    engine = tiny_engine(model, draft_len=request.param, drafter=DrafterConfig(kind="ngram"))
    loop = EngineLoop(engine)
    loop.start()
    yield GenerationService(
        loop,
        load_tokenizer(model),
        "tiny",
        max_model_len=engine.max_model_len,
        vocab_size=engine.vocab_size,
    )
    loop.close()


async def completion(service: GenerationService, **fields: Any) -> Answer:
    body = {"model": "tiny", "prompt": "The quick", "max_tokens": 24, "seed": 7} | fields
    return await service.whole(await service.prepare_completion(body))


def texts(answer: Answer) -> list[str]:
    return [choice["text"] for choice in answer["choices"]]


async def test_the_first_choice_is_what_one_alone_would_be(service: GenerationService) -> None:
    alone = await completion(service)
    several = await completion(service, n=5)
    assert texts(several)[0] == texts(alone)[0]
    assert len(set(texts(several))) == 5
    assert texts(await completion(service, n=5)) == texts(several)


async def test_each_of_several_prompts_is_what_it_alone_would_be(
    service: GenerationService,
) -> None:
    prompts = ["The quick", "Some other text", "The quick brown fox"]
    fields = {"logprobs": 1, "echo": True, "stop": "e", "min_tokens": 3}
    together = await completion(service, prompt=prompts, **fields)
    for prompt, choice in zip(prompts, together["choices"], strict=True):
        (alone,) = (await completion(service, prompt=prompt, **fields))["choices"]
        assert (alone["text"], alone["finish_reason"]) == (choice["text"], choice["finish_reason"])
        told, expected = choice["logprobs"], alone["logprobs"]
        assert (told["tokens"], told["text_offset"]) == (
            expected["tokens"],
            expected["text_offset"],
        )
        assert told["token_logprobs"][1:] == pytest.approx(expected["token_logprobs"][1:], abs=1e-4)


async def test_logprobs_of_new_tokens_are_those_of_a_prompt(service: GenerationService) -> None:
    """What is told while tokens are made is what is told when they are read."""
    made = await completion(service, logprobs=3, echo=True)
    told = made["choices"][0]["logprobs"]
    assert len(told["tokens"]) == made["usage"]["prompt_tokens"] + 24
    tokenizer = byte_level_tokenizer()
    token_of = {token_text(Detokenizer(tokenizer), i): i for i in range(len(tokenizer))}
    prompt = [token_of[text] for text in told["tokens"]]
    again = await completion(service, prompt=prompt, logprobs=3, echo=True, max_tokens=0)
    assert again["usage"]["completion_tokens"] == 0
    read = again["choices"][0]["logprobs"]
    assert read["tokens"] == told["tokens"]
    assert read["token_logprobs"][1:] == pytest.approx(told["token_logprobs"][1:], abs=1e-4)
    for one, other in zip(told["top_logprobs"][1:], read["top_logprobs"][1:], strict=True):
        assert one == pytest.approx(other, abs=1e-4)


@pytest.mark.parametrize("temperature", [0, 1])
async def test_answers_conform(service: GenerationService, temperature: float) -> None:
    fields: dict[str, Any] = {"temperature": temperature, "max_tokens": 200, "n": 3}
    answer = await completion(
        service,
        response_format={"type": "json_schema", "json_schema": {"name": "fox", "schema": SCHEMA}},
        **fields,
    )
    for choice in answer["choices"]:
        assert choice["finish_reason"] == "stop"
        assert list(json.loads(choice["text"])) == ["quick", "legs"]
    answer = await completion(service, structured_outputs={"regex": "a[bc]{3,5}d"}, **fields)
    assert all(re.fullmatch("a[bc]{3,5}d", text) for text in texts(answer))
    answer = await completion(service, structured_outputs={"choice": ["fox", "dog"]}, **fields)
    assert all(text in ("fox", "dog") for text in texts(answer))


async def test_a_grammar_that_is_none_is_refused(service: GenerationService) -> None:
    with pytest.raises(RequestError) as caught:
        await completion(service, structured_outputs={"grammar": "root ::= ("})
    assert caught.value.field == "structured_outputs.grammar"


async def test_what_must_not_come_does_not(service: GenerationService) -> None:
    plain = await completion(service, logprobs=0, temperature=0)
    tokens = plain["choices"][0]["logprobs"]["tokens"]
    word = next(token for token in tokens if not token.startswith("bytes:") and token.strip())
    banned = await completion(service, bad_words=[word], logprobs=0, temperature=0)
    assert word not in banned["choices"][0]["logprobs"]["tokens"]


async def test_bias_and_stop_tokens(service: GenerationService) -> None:
    answer = await completion(service, logit_bias={"40": 100}, max_tokens=5)
    assert len(set(texts(answer)[0])) == 1
    answer = await completion(service, logit_bias={"40": 100}, stop_token_ids=[40])
    assert (texts(answer), answer["choices"][0]["finish_reason"]) == ([""], "stop")
    assert answer["usage"]["completion_tokens"] == 1
    answer = await completion(service, logit_bias={"40": 100}, stop_token_ids=[40], min_tokens=4)
    assert answer["usage"]["completion_tokens"] == 5


async def test_a_stop_string_in_one_choice_leaves_the_others(service: GenerationService) -> None:
    plain = await completion(service, n=4)
    stop = texts(plain)[2][3:6]
    stopped = await completion(service, n=4, stop=stop)
    expected = [text.partition(stop)[0] for text in texts(plain)]
    assert texts(stopped) == expected
    assert stopped["choices"][2]["finish_reason"] == "stop"
    kept = await completion(service, n=4, stop=stop, include_stop_str_in_output=True)
    assert texts(kept)[2] == expected[2] + stop


async def test_a_stream_is_the_whole_answer(service: GenerationService) -> None:
    fields: dict[str, Any] = {"n": 3, "logprobs": 2, "echo": True, "prompt_logprobs": 1}
    body = {"model": "tiny", "prompt": "The quick", "max_tokens": 24, "seed": 7} | fields
    whole = await completion(service, **fields)
    chunks: list[Any] = [chunk async for chunk in service.stream(body)]
    for choice in whole["choices"]:
        parts = [c for k in chunks for c in k["choices"] if c["index"] == choice["index"]]
        assert "".join(part["text"] for part in parts) == choice["text"]
        told = [part["logprobs"]["token_logprobs"] for part in parts if part["logprobs"]]
        # Other shapes of the same products may round differently in the last place.
        assert [logprob for piece in told for logprob in piece][1:] == pytest.approx(
            choice["logprobs"]["token_logprobs"][1:], abs=1e-4
        )
        assert len(parts[0]["prompt_logprobs"]) == len(choice["prompt_logprobs"])
