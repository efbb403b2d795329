"""Answers of /v1/chat/completions, written."""

from collections.abc import Sequence

from deployments.generation.choice import ChoiceDelta, OpenAIFinishReason
from deployments.openai.logprobs import LogprobsWriter
from deployments.openai.replies import (
    AssistantMessage,
    ChatChoice,
    ChatChunkChoice,
    ChatCompletion,
    ChatCompletionChunk,
    ChatDelta,
    ChatLogprobs,
    DraftMark,
    FunctionCall,
    FunctionCallDelta,
    JsonObject,
    PromptLogprobs,
    ToolCall,
    ToolCallDelta,
    Totals,
)
from deployments.tools.events import CallArguments, CallStarted, ContentText, Event
from engine.request import TokenLogprobs


class ChatFormat:
    """A `ReplyFormat`."""

    ends_with_done = True
    operation = "chat"

    def __init__(
        self,
        request_id: str,
        created_unix_s: int,
        model: str,
        writer: LogprobsWriter,
        *,
        num_top: int | None,
        num_prompt_top: int | None,
        marks_drafts: bool = False,
    ) -> None:
        """`num_top`: alternatives to list for each token, None: no log-probabilities;
        `num_prompt_top`: the same for vLLM's `prompt_logprobs`; `marks_drafts`: whether tokens that
        were kept from a draft are told."""
        self._id = f"chatcmpl-{request_id}"
        self._created = created_unix_s
        self._model = model
        self._writer = writer
        self._num_top = num_top
        self._num_prompt_top = num_prompt_top
        self._marks_drafts = marks_drafts

    def opening(self, index: int, prompt: Sequence[TokenLogprobs]) -> list[JsonObject]:
        choice = ChatChunkChoice(index=index, delta=ChatDelta(role="assistant", content=""))
        # They belong to all choices, so once is enough.
        return [self._chunk([choice], prompt=self._prompt(prompt) if index == 0 else None)]

    def chunks(self, delta: ChoiceDelta) -> list[JsonObject]:
        parts = [_part(event) for event in delta.events]
        if delta.tokens and not parts:
            parts = [ChatDelta(content="")]
        choices = [ChatChunkChoice(index=delta.index, delta=part) for part in parts]
        if choices:
            choices[0].logprobs = self._logprobs(delta) if delta.tokens else None
            choices[0].draft_marks = self._marks(delta) if delta.tokens else None
        if delta.finish_reason is not None:
            choices.append(
                ChatChunkChoice(
                    index=delta.index, delta=ChatDelta(), finish_reason=delta.finish_reason
                )
            )
        return [self._chunk([choice]) for choice in choices]

    def usage_chunk(self, totals: Totals) -> JsonObject:
        return self._chunk([], totals)

    def failure(self, error: JsonObject) -> JsonObject:
        return error

    def whole(
        self,
        choices: Sequence[ChoiceDelta],
        prompts: Sequence[Sequence[TokenLogprobs]],
        totals: Totals,
    ) -> JsonObject:
        written = [
            ChatChoice(
                index=delta.index,
                message=_message(delta),
                logprobs=self._logprobs(delta),
                draft_marks=self._marks(delta),
                finish_reason=_given(delta.finish_reason),
            )
            for delta in choices
        ]
        return ChatCompletion(
            id=self._id,
            created=self._created,
            model=self._model,
            choices=written,
            usage=totals.usage,
            metrics=totals.metrics,
            prompt_logprobs=self._prompt(prompts[0]),  # a chat has one prompt
        ).model_dump()

    def _logprobs(self, delta: ChoiceDelta) -> ChatLogprobs | None:
        if self._num_top is None:
            return None
        return self._writer.chat(delta.tokens, self._num_top)

    def _marks(self, delta: ChoiceDelta) -> list[DraftMark] | None:
        if not self._marks_drafts:
            return None
        return [
            DraftMark(offset=token.offset, drafted=token.is_drafted, rejected=token.num_rejected)
            for token in delta.tokens
        ]

    def _prompt(self, prompt: Sequence[TokenLogprobs]) -> PromptLogprobs | None:
        if self._num_prompt_top is None:
            return None
        return self._writer.prompt(prompt, self._num_prompt_top)

    def _chunk(
        self,
        choices: list[ChatChunkChoice],
        totals: Totals | None = None,
        prompt: PromptLogprobs | None = None,
    ) -> JsonObject:
        return ChatCompletionChunk(
            id=self._id,
            created=self._created,
            model=self._model,
            choices=choices,
            usage=totals.usage if totals else None,
            metrics=totals.metrics if totals else None,
            prompt_logprobs=prompt,
        ).model_dump()


def _part(event: Event) -> ChatDelta:
    match event:
        case ContentText(text):
            return ChatDelta(content=text)
        case CallStarted(index, call_id, name):
            function = FunctionCallDelta(name=name, arguments="")
            call = ToolCallDelta(index=index, id=call_id, type="function", function=function)
        case CallArguments(index, fragment):
            call = ToolCallDelta(index=index, function=FunctionCallDelta(arguments=fragment))
    return ChatDelta(tool_calls=[call])


def _message(delta: ChoiceDelta) -> AssistantMessage:
    calls: list[ToolCall] = []
    for event in delta.events:
        match event:
            case CallStarted(_, call_id, name):
                calls.append(ToolCall(id=call_id, function=FunctionCall(name=name, arguments="")))
            case CallArguments(index, fragment):
                calls[index].function.arguments += fragment
            case ContentText():
                pass
    content = delta.text or (None if calls else "")
    return AssistantMessage(content=content, tool_calls=calls or None)


def _given(reason: OpenAIFinishReason | None) -> OpenAIFinishReason:
    assert reason is not None
    return reason
