"""Answers of /v1/responses, written: typed events, and the response that they add up to."""

from collections.abc import Sequence

from pydantic import BaseModel

from deployments.generation.choice import ChoiceDelta
from deployments.openai.replies import JsonObject, Totals
from deployments.openai.responses.replies import (
    Asked,
    IncompleteDetails,
    OutputCall,
    OutputMessage,
    OutputText,
    ResponseObject,
    ResponseUsage,
    Status,
)
from deployments.openai.responses.schemas import ResponsesRequest
from deployments.tools.events import CallArguments, CallStarted, ContentText
from engine.request import TokenLogprobs


def asked_of(request: ResponsesRequest) -> Asked:
    text_format = request.text.format if request.text else None
    return Asked(
        model=request.model,
        instructions=request.instructions,
        max_output_tokens=request.max_output_tokens,
        temperature=1.0 if request.temperature is None else request.temperature,
        top_p=1.0 if request.top_p is None else request.top_p,
        parallel_tool_calls=request.parallel_tool_calls is not False,
        tool_choice=request.tool_choice or ("auto" if request.tools else "none"),
        tools=[tool.model_dump() for tool in request.tools or ()],
        text={
            "format": text_format.model_dump(by_alias=True, exclude_none=True)
            if text_format
            else {"type": "text"}
        },
        metadata=request.metadata or {},
    )


class ResponsesFormat:
    """A `ReplyFormat` of one choice. It counts its events, so it is for one answer."""

    ends_with_done = False
    operation = "chat"

    def __init__(self, request_id: str, created_unix_s: int, asked: Asked) -> None:
        self._request_id = request_id
        self._created = created_unix_s
        self._asked = asked
        self._num_events = 0
        self._closed: list[OutputMessage | OutputCall] = []
        self._open: OutputMessage | OutputCall | None = None
        """The item that is being written; its place is behind those closed."""
        self._is_incomplete = False

    def opening(self, index: int, prompt: Sequence[TokenLogprobs]) -> list[JsonObject]:
        response = self._response("in_progress").model_dump()
        return [
            self._event("response.created", response=response),
            self._event("response.in_progress", response=response),
        ]

    def chunks(self, delta: ChoiceDelta) -> list[JsonObject]:
        events: list[JsonObject] = []
        for part in delta.events:
            match part:
                case ContentText(text):
                    events += self._text(text)
                case CallStarted(_, call_id, name):
                    events += self._close("completed")
                    call = OutputCall(
                        id=self._item_id("fc"),
                        call_id=call_id,
                        name=name,
                        arguments="",
                        status="in_progress",
                    )
                    events += self._begin(call)
                case CallArguments(_, fragment):
                    events += self._arguments(fragment)
        if delta.finish_reason is not None:
            self._is_incomplete = delta.finish_reason == "length"
            if self._open is None and not self._closed:
                events += self._begin_message()  # an answer without a word is still a message
            events += self._close("incomplete" if self._is_incomplete else "completed")
        return events

    def usage_chunk(self, totals: Totals) -> JsonObject:
        response = self._finished(totals)
        return self._event(f"response.{response.status}", response=response.model_dump())

    def failure(self, error: JsonObject) -> JsonObject:
        told = error["error"]
        assert isinstance(told, dict)
        return self._event("error", code=told["code"], message=told["message"], param=told["param"])

    def whole(
        self,
        choices: Sequence[ChoiceDelta],
        prompts: Sequence[Sequence[TokenLogprobs]],
        totals: Totals,
    ) -> JsonObject:
        for delta in choices:
            self.chunks(delta)
        return self._finished(totals).model_dump()

    def _text(self, text: str) -> list[JsonObject]:
        events: list[JsonObject] = []
        if not isinstance(self._open, OutputMessage):
            events = [*self._close("completed"), *self._begin_message()]
        assert isinstance(self._open, OutputMessage)
        self._open.content[0].text += text
        events.append(
            self._of_part("response.output_text.delta", self._open, delta=text, logprobs=[])
        )
        return events

    def _arguments(self, fragment: str) -> list[JsonObject]:
        assert isinstance(self._open, OutputCall)
        self._open.arguments += fragment
        return [self._of_item("response.function_call_arguments.delta", self._open, delta=fragment)]

    def _begin_message(self) -> list[JsonObject]:
        message = OutputMessage(id=self._item_id("msg"), status="in_progress", content=[])
        events = self._begin(message)
        part = OutputText(text="")
        message.content.append(part)
        events.append(self._of_part("response.content_part.added", message, part=_dumped(part)))
        return events

    def _begin(self, item: OutputMessage | OutputCall) -> list[JsonObject]:
        self._open = item
        return [
            self._event(
                "response.output_item.added", output_index=len(self._closed), item=_dumped(item)
            )
        ]

    def _close(self, status: Status) -> list[JsonObject]:
        item = self._open
        if item is None:
            return []
        item.status = status
        if isinstance(item, OutputMessage):
            part = item.content[0]
            events = [
                self._of_part("response.output_text.done", item, text=part.text, logprobs=[]),
                self._of_part("response.content_part.done", item, part=_dumped(part)),
            ]
        else:
            events = [
                self._of_item(
                    "response.function_call_arguments.done",
                    item,
                    name=item.name,
                    arguments=item.arguments,
                )
            ]
        events.append(
            self._event(
                "response.output_item.done", output_index=len(self._closed), item=_dumped(item)
            )
        )
        self._closed.append(item)
        self._open = None
        return events

    def _finished(self, totals: Totals) -> ResponseObject:
        response = self._response("incomplete" if self._is_incomplete else "completed")
        response.incomplete_details = IncompleteDetails() if self._is_incomplete else None
        response.usage = ResponseUsage.of(totals)
        response.metrics = totals.metrics
        return response

    def _response(self, status: Status) -> ResponseObject:
        return ResponseObject(
            **self._asked.model_dump(),
            id=f"resp_{self._request_id}",
            created_at=self._created,
            status=status,
            output=list(self._closed),
        )

    def _item_id(self, kind: str) -> str:
        return f"{kind}_{self._request_id}_{len(self._closed)}"

    def _of_part(self, kind: str, item: OutputMessage, **fields: object) -> JsonObject:
        return self._of_item(kind, item, content_index=0, **fields)

    def _of_item(self, kind: str, item: OutputMessage | OutputCall, **fields: object) -> JsonObject:
        """Of the item that is open."""
        return self._event(kind, item_id=item.id, output_index=len(self._closed), **fields)

    def _event(self, kind: str, **fields: object) -> JsonObject:
        event = {"type": kind, "sequence_number": self._num_events, **fields}
        self._num_events += 1
        return event


def _dumped(model: BaseModel) -> JsonObject:
    return model.model_dump()
