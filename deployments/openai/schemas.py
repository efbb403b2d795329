"""Requests of the OpenAI API, validated: every field is honoured, or refused by name.

`CompletionRequest.parse` and `ChatRequest.parse` take a decoded JSON object and raise RequestError
naming field and value. Ranges that are not checked here are SamplingParams' own.
"""

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field

from deployments.json_values import show
from deployments.openai.fields import Content, Prompts
from deployments.openai.generation_request import MAX_CHOICES, GenerationRequest, require_range
from deployments.openai.neutral_fields import (
    CHAT_FIELDS,
    COMPLETION_FIELDS,
    MESSAGE_FIELDS,
    STREAM_OPTIONS_FIELDS,
    without_neutral,
)
from deployments.openai.output_format import AskedGrammar
from deployments.tools.messages import check_messages
from deployments.tools.offer import ToolOffer, tool_offer
from deployments.tools.schemas import ToolMessageFields, ToolRequestFields
from deployments.validation import validated
from engine.errors import RequestError
from engine.request import MAX_LOGPROBS

DEFAULT_COMPLETION_TOKENS = 16
"""OpenAI's default for /v1/completions."""


class Message(ToolMessageFields):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content = None


class CompletionRequest(GenerationRequest):
    """Body of POST /v1/completions."""

    prompt: Prompts
    best_of: int | None = Field(default=None, description="The same as n, if it is given.")
    echo: bool | None = Field(default=None, description="The prompt's text comes first.")
    logprobs: int | None = Field(default=None, description=f"0 to {MAX_LOGPROBS}.")

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> Self:
        """Raises RequestError."""
        request = validated(cls, _prepared(body, COMPLETION_FIELDS))
        request.check()
        return request

    @property
    def is_prompt_only(self) -> bool:
        """Whether nothing is wanted but the prompt, and its log-probabilities."""
        return self.max_tokens == 0

    @property
    def num_top_logprobs(self) -> int | None:
        return self.logprobs

    def _wanted_tokens(self, room: int) -> int:
        if self.is_prompt_only:
            return 1  # the engine makes one at least; it is dropped
        return DEFAULT_COMPLETION_TOKENS if self.max_tokens is None else self.max_tokens

    def _num_prompt_logprobs(self) -> int | None:
        if not self.echo or self.logprobs is None:
            return self.prompt_logprobs
        return max(self.logprobs, self.prompt_logprobs or 0)

    def check(self) -> None:
        require_range("logprobs", self.logprobs, 0, MAX_LOGPROBS)
        num_prompts = len(self.prompt)
        if self.num_choices <= MAX_CHOICES < num_prompts * self.num_choices:
            raise RequestError(
                "prompt",
                f"prompt must hold at most {MAX_CHOICES // self.num_choices} prompts with n "
                f"{self.num_choices} ({MAX_CHOICES} choices), got {num_prompts}",
            )
        if self.best_of is not None and self.best_of != self.num_choices:
            raise RequestError(
                "best_of",
                f"best_of must be the same as n ({self.num_choices}): all choices are returned; "
                f"got {show(self.best_of)}",
            )
        if self.is_prompt_only:
            if not self.echo:
                raise RequestError(
                    "max_tokens", "max_tokens must be at least 1, got 0 (which needs echo)"
                )
            require_range("min_tokens", self.min_tokens, 0, 0)
        super().check()


class ChatRequest(GenerationRequest, ToolRequestFields):
    """Body of POST /v1/chat/completions."""

    messages: list[Message]
    max_completion_tokens: int | None = Field(default=None, description="max_tokens, newer name.")
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, description=f"0 to {MAX_LOGPROBS}.")
    include_draft_marks: bool | None = Field(
        default=None, description="Tells which tokens of the text were kept from a draft."
    )

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> Self:
        """Raises RequestError."""
        prepared = _prepared(body, CHAT_FIELDS)
        if isinstance(messages := prepared.get("messages"), list):
            prepared["messages"] = [
                without_neutral(message, MESSAGE_FIELDS, f"messages[{index}].")
                if isinstance(message, Mapping)
                else message
                for index, message in enumerate(messages)
            ]
        request = validated(cls, prepared)
        request.check()
        return request

    @property
    def num_top_logprobs(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None

    @property
    def marks_drafts(self) -> bool:
        return bool(self.include_draft_marks)

    @property
    def tool_offer(self) -> ToolOffer | None:
        """Raises RequestError for fields that contradict each other."""
        return tool_offer(self)

    @property
    def grammar(self) -> AskedGrammar | None:
        asked, offer = super().grammar, self.tool_offer
        if offer is None:
            return asked
        if asked is not None:
            field = asked.field.partition(".")[0]
            raise RequestError(field, f"{field} can't stand beside tools that may be called")
        spec = offer.grammar()
        return None if spec is None else AskedGrammar("tools", spec)

    def _wanted_tokens(self, room: int) -> int:
        """An open request gets all the room there is."""
        wanted = self.max_completion_tokens if self.max_tokens is None else self.max_tokens
        return room if wanted is None else wanted

    def check(self) -> None:
        if not self.messages:
            raise RequestError("messages", "messages must not be empty, got []")
        check_messages(self.messages)
        if None not in (self.max_tokens, self.max_completion_tokens) and (
            self.max_tokens != self.max_completion_tokens
        ):
            raise RequestError(
                "max_tokens",
                "max_tokens and max_completion_tokens mean the same and must not differ, got "
                f"{show(self.max_tokens)} and {show(self.max_completion_tokens)}",
            )
        if self.max_completion_tokens is not None and self.max_completion_tokens < 1:
            raise RequestError(
                "max_completion_tokens",
                f"max_completion_tokens must be at least 1, got {show(self.max_completion_tokens)}",
            )
        if self.marks_drafts and self.tool_offer is not None:
            raise RequestError(
                "include_draft_marks",
                "include_draft_marks can't be used with tools, whose calls are no text; got true",
            )
        require_range("top_logprobs", self.top_logprobs, 0, MAX_LOGPROBS)
        if self.top_logprobs and not self.logprobs:
            raise RequestError(
                "top_logprobs",
                f"top_logprobs needs logprobs to be true, got {show(self.top_logprobs)}",
            )
        super().check()


def _prepared(body: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    prepared = without_neutral(body, fields)
    if isinstance(options := prepared.get("stream_options"), Mapping):
        prepared["stream_options"] = without_neutral(
            options, STREAM_OPTIONS_FIELDS, "stream_options."
        )
    return prepared
