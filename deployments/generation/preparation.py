"""From a request's body to a job: validated, tokenised, its grammar compiled."""

import asyncio
import dataclasses
import hashlib
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from deployments.generation.choice import Reading
from deployments.generation.job import Job, ReplyFormat
from deployments.generation.origin import Origin
from deployments.generation.prompts import Prompt, PromptTokenizer
from deployments.json_values import show
from deployments.openai.chat_format import ChatFormat
from deployments.openai.completion_format import CompletionFormat, Echo
from deployments.openai.logprobs import LogprobsWriter
from deployments.openai.output_format import AskedGrammar
from deployments.openai.responses.format import ResponsesFormat, asked_of
from deployments.openai.responses.schemas import ResponsesRequest
from deployments.openai.responses.translation import translated
from deployments.openai.schemas import ChatRequest, CompletionRequest
from deployments.openai.tokenization import DetokenizeRequest, TokenizeRequest
from deployments.text.chat_template import tools_template
from deployments.text.detokenizer import Detokenizer
from deployments.text.stop_strings import StopRule
from deployments.tools.families import Family, family_of
from deployments.tools.messages import messages_for_template
from deployments.tools.offer import ToolOffer
from deployments.tools.parser import ToolCallParser
from deployments.validation import ModelNotFound
from engine.errors import GrammarError, PromptTooLong, RequestError
from engine.request import GrammarSpec, Request, SamplingParams

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


class JobMaker:
    """Prepares requests for one model."""

    def __init__(
        self,
        tokenizer: "PreTrainedTokenizerFast",
        model_name: str,
        *,
        max_model_len: int,
        vocab_size: int,
        compile_grammar: Callable[[GrammarSpec], Awaitable[None]],
    ) -> None:
        self._prompts = PromptTokenizer(tokenizer, vocab_size)
        self._detokenizer = Detokenizer(tokenizer)
        self._model_name = model_name
        self._max_model_len = max_model_len
        self._compile_grammar = compile_grammar
        template = tools_template(tokenizer)
        self._family = None if template is None else family_of(template)

    async def completion(self, body: Mapping[str, Any], origin: Origin) -> Job:
        """Raises RequestError, ModelNotFound or PromptTooLong."""
        parsed = CompletionRequest.parse(body)
        self._check_model(parsed.model)
        detokenizer = self._detokenizer_for(parsed)
        fields = _prompt_fields(len(parsed.prompt))
        prompts: list[Prompt] = []
        for field, given in zip(fields, parsed.prompt, strict=True):
            if parsed.echo:
                prompts.append(await self._prompts.shown(given, detokenizer, field=field))
            else:
                prompts.append(await self._prompts.plain(given, field=field))
            await asyncio.sleep(0)  # many short ones don't keep other requests waiting
        samplings = await self._samplings(parsed, dict(zip(fields, prompts, strict=True)), origin)
        reply = CompletionFormat(
            origin.request_id,
            origin.created_unix_s,
            self._model_name,
            LogprobsWriter(detokenizer),
            num_top=parsed.num_top_logprobs,
            num_prompt_top=parsed.prompt_logprobs,
            echoes=[
                Echo(prompt.text, prompt.token_ids, prompt.offsets)
                for prompt in prompts
                for _ in range(parsed.num_choices)
                if parsed.echo
            ],
        )
        readings = [
            _reading(parsed, sampling, detokenizer, is_prompt_only=parsed.is_prompt_only)
            for sampling in samplings
        ]
        return _job(parsed, origin.request_id, prompts, samplings, readings, reply)

    async def chat(self, body: Mapping[str, Any], origin: Origin) -> Job:
        """Raises RequestError, ModelNotFound or PromptTooLong."""
        parsed = ChatRequest.parse(body)

        def reply(detokenizer: Detokenizer) -> ReplyFormat:
            return ChatFormat(
                origin.request_id,
                origin.created_unix_s,
                self._model_name,
                LogprobsWriter(detokenizer),
                num_top=parsed.num_top_logprobs,
                num_prompt_top=parsed.prompt_logprobs,
                marks_drafts=parsed.marks_drafts,
            )

        return await self._chat(parsed, origin, reply)

    async def response(self, body: Mapping[str, Any], origin: Origin) -> Job:
        """Raises RequestError, ModelNotFound or PromptTooLong."""
        request = ResponsesRequest.parse(body)
        translation = translated(request)
        with translation.fields.renamed():
            return await self._chat(
                translation.chat,
                origin,
                lambda _: ResponsesFormat(
                    origin.request_id, origin.created_unix_s, asked_of(request)
                ),
            )

    async def tokens(self, body: Mapping[str, Any]) -> Prompt:
        """Of a body of /tokenize. Raises RequestError or ModelNotFound."""
        parsed = TokenizeRequest.parse(body)
        self._check_model(parsed.model)
        if parsed.messages is None:
            return await self._prompts.plain(
                parsed.text, special=parsed.add_special_tokens is not False
            )
        return await self._prompts.chat(
            messages_for_template(parsed.messages, self._family),
            None,
            is_answered=parsed.add_generation_prompt is not False,
        )

    async def text(self, body: Mapping[str, Any]) -> str:
        """Of a body of /detokenize. Raises RequestError or ModelNotFound."""
        parsed = DetokenizeRequest.parse(body)
        self._check_model(parsed.model)
        return await self._prompts.text("tokens", parsed.tokens)

    async def _chat(
        self,
        parsed: ChatRequest,
        origin: Origin,
        make_reply: Callable[[Detokenizer], ReplyFormat],
    ) -> Job:
        self._check_model(parsed.model)
        messages = messages_for_template(parsed.messages, self._family)
        offer = parsed.tool_offer
        family = None if offer is None else self._require_family()
        detokenizer = self._detokenizer_for(parsed, family)
        prompt = await self._prompts.chat(messages, offer.for_template() if offer else None)
        (sampling,) = await self._samplings(parsed, {"messages": prompt}, origin)
        reply = make_reply(detokenizer)
        make_parser = None
        if offer and family:
            make_parser = partial(_parser, offer, family, origin.request_id)
        reading = _reading(parsed, sampling, detokenizer, make_parser=make_parser)
        return _job(parsed, origin.request_id, [prompt], [sampling], [reading], reply)

    async def _samplings(
        self,
        parsed: CompletionRequest | ChatRequest,
        prompts: Mapping[str, Prompt],
        origin: Origin,
    ) -> list[SamplingParams]:
        """For each prompt, by its field, as if it were asked for alone.

        Raises PromptTooLong, and RequestError for what the model doesn't have."""
        rooms = [self._room(field, len(prompt.token_ids)) for field, prompt in prompts.items()]
        self._prompts.check_ids("stop_token_ids", parsed.stop_token_ids or ())
        self._prompts.check_ids("logit_bias", [token for token, _ in parsed.logit_bias])
        bad_words = await self._prompts.bad_words(parsed.bad_words)
        asked = parsed.grammar
        if asked is not None:
            await self._compile(asked)
        samplings: list[SamplingParams] = []
        for index, room in enumerate(rooms):
            sampling = parsed.sampling(
                room, bad_words=bad_words, grammar=asked.spec if asked else None
            )
            if sampling.seed is None and origin.seed is not None:
                # Equal prompts without a seed are to get answers that differ.
                seed = origin.seed if index == 0 else derived_seed(origin.seed, -index)
                sampling = dataclasses.replace(sampling, seed=seed)
            samplings.append(sampling)
        return samplings

    def _room(self, field: str, num_tokens: int) -> int:
        """Raises RequestError or PromptTooLong."""
        if not num_tokens:
            raise RequestError(field, f"{field} must not be empty: it makes no token")
        room = self._max_model_len - num_tokens
        if room < 1:
            raise PromptTooLong(
                field,
                f"{field} has {num_tokens} tokens, which leaves no room for an answer within "
                f"the context limit of {self._max_model_len} tokens",
            )
        return room

    async def _compile(self, asked: AskedGrammar) -> None:
        try:
            await self._compile_grammar(asked.spec)
        except GrammarError as error:
            raise RequestError(asked.field, f"{asked.field} can't be enforced: {error}") from None

    def _detokenizer_for(
        self, parsed: CompletionRequest | ChatRequest, family: Family | None = None
    ) -> Detokenizer:
        if parsed.skip_special_tokens is False:
            return self._detokenizer.showing_special()
        # The parser of tool calls needs to see where they are.
        return self._detokenizer.showing_special(family.markers) if family else self._detokenizer

    def _require_family(self) -> Family:
        if self._family is None:
            raise RequestError(
                "tools",
                "tools can't be used with this model: its chat template takes none, or has calls "
                "written in a way that is not known here",
            )
        return self._family

    def _check_model(self, name: str | None) -> None:
        """None, where a request may leave it out, is the model served here."""
        if name is not None and name != self._model_name:
            raise ModelNotFound(
                "model", f"model {show(name)} is not served here; {show(self._model_name)} is"
            )


def _reading(
    parsed: CompletionRequest | ChatRequest,
    sampling: SamplingParams,
    detokenizer: Detokenizer,
    *,
    is_prompt_only: bool = False,
    make_parser: Callable[[int], ToolCallParser] | None = None,
) -> Reading:
    return Reading(
        detokenizer,
        StopRule(parsed.stop, sampling.min_tokens, bool(parsed.include_stop_str_in_output)),
        keeps_tokens=sampling.logprobs is not None or parsed.marks_drafts,
        is_prompt_only=is_prompt_only,
        make_parser=make_parser,
    )


def _parser(offer: ToolOffer, family: Family, request_id: str, index: int) -> ToolCallParser:
    """Of one choice."""
    return offer.parser(family, f"{request_id}/{index}")


def _job(
    parsed: CompletionRequest | ChatRequest,
    request_id: str,
    prompts: Sequence[Prompt],
    samplings: Sequence[SamplingParams],
    readings: Sequence[Reading],
    reply: ReplyFormat,
) -> Job:
    numbers = itertools.count()
    requests = tuple(
        Request(
            f"{request_id}-{next(numbers)}",
            prompt.token_ids,
            _of_choice(sampling, index),
            parsed.priority or 0,
            cache_salt=parsed.cache_salt or "",
        )
        for prompt, sampling in zip(prompts, samplings, strict=True)
        for index in range(parsed.num_choices)
    )
    return Job(
        requests,
        tuple(readings),
        reply,
        bool(parsed.stream),
        parsed.include_usage,
        bool(parsed.include_speculation_metrics),
    )


def _of_choice(sampling: SamplingParams, index: int) -> SamplingParams:
    """The first choice is what n=1 gives; of the prompt, it alone needs to tell."""
    if index == 0:
        return sampling
    seed = sampling.seed if sampling.seed is None else derived_seed(sampling.seed, index)
    return dataclasses.replace(sampling, seed=seed, prompt_logprobs=None)


def _prompt_fields(num_prompts: int) -> list[str]:
    """What errors call them."""
    return ["prompt"] if num_prompts == 1 else [f"prompt[{i}]" for i in range(num_prompts)]


def derived_seed(seed: int, index: int) -> int:
    """A hash, as seed + index would make choices of neighbouring seeds the same."""
    digest = hashlib.blake2b(f"{seed}/{index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)
