"""One of a request's choices: its tokens are read as content and tool calls while they arrive."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from deployments.text.assembler import ShownToken, TextAssembler
from deployments.text.detokenizer import Detokenizer
from deployments.text.stop_strings import StopRule
from deployments.tools.events import ContentText, Event
from deployments.tools.parser import ToolCallParser
from engine.request import FinishReason, TokenDelta

OpenAIFinishReason = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True, slots=True)
class Reading:
    """How tokens become an answer."""

    detokenizer: Detokenizer
    stop: StopRule
    keeps_tokens: bool
    """Whether the tokens themselves are told, with log-probabilities or where they come from."""
    is_prompt_only: bool
    """Whether the answer, one token that the engine had to make, is dropped."""
    make_parser: Callable[[int], ToolCallParser] | None
    """Of tool calls, for the choice with that index."""


@dataclass(frozen=True, slots=True)
class ChoiceDelta:
    """What is new of a choice, maybe nothing but that its first token is there."""

    index: int
    events: tuple[Event, ...] = ()
    tokens: tuple[ShownToken, ...] = ()
    finish_reason: OpenAIFinishReason | None = None
    made_of: tuple[TokenDelta, ...] = ()
    """The engine's: who pushes and takes them again is where this choice is now."""

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, ContentText))


def merged(deltas: Sequence[ChoiceDelta]) -> ChoiceDelta:
    """All of one choice's deltas as a single one."""
    return ChoiceDelta(
        deltas[0].index,
        tuple(event for delta in deltas for event in delta.events),
        tuple(token for delta in deltas for token in delta.tokens),
        deltas[-1].finish_reason,
    )


class Choice:
    """Reads one sequence's deltas."""

    def __init__(self, index: int, reading: Reading) -> None:
        self._index = index
        self._is_dropped = reading.is_prompt_only
        self._parser = reading.make_parser(index) if reading.make_parser else None
        self._events: list[Event] = []
        """What the parser found and nobody has taken."""
        self._assembler = TextAssembler(
            reading.detokenizer,
            reading.stop,
            keeps_tokens=reading.keeps_tokens,
            is_complete=self._parse if self._parser else None,
        )
        self._untold: list[TokenDelta] = []
        """Pushed since the last delta that was taken."""
        self._has_begun = False
        """Whether a first delta was taken."""
        self._is_over = False
        """Whether the last delta was taken."""
        self._has_dropped = False
        self.num_cached_tokens: int | None = None
        """Of the prompt; None before the first new token."""

    @property
    def has_ended(self) -> bool:
        return self._has_dropped or self._assembler.finish_reason is not None

    @property
    def num_tokens(self) -> int:
        """New tokens so far (see `TextAssembler`)."""
        return self._assembler.num_tokens

    @property
    def num_accepted(self) -> int:
        return self._assembler.num_accepted

    @property
    def num_rejected(self) -> int:
        return self._assembler.num_rejected

    @property
    def num_drafted(self) -> int:
        return self.num_accepted + self.num_rejected

    @property
    def accepted_in_steps(self) -> Counter[int]:
        """Of the steps that drafted something: how many by draft tokens accepted."""
        return self._assembler.accepted_in_steps

    def push(self, delta: TokenDelta) -> None:
        """Take a delta. Nothing after the end is looked at."""
        self._untold.append(delta)
        if delta.token_ids and self.num_cached_tokens is None:
            self.num_cached_tokens = delta.num_cached_tokens
        if not self._is_dropped:
            self._assembler.push(delta)
        elif delta.token_ids:
            self._has_dropped = True

    def take(self) -> ChoiceDelta | None:
        """What is new since the last call; None: nothing that is worth telling."""
        if self._is_over:
            return None
        delta = ChoiceDelta(
            self._index,
            self._take_events(),
            tuple(self._assembler.take_tokens()),
            self._finish_reason(),
            tuple(self._untold),
        )
        is_first = not self._has_begun and self.num_tokens > 0
        if not (delta.events or delta.tokens or delta.finish_reason or is_first):
            return None
        self._untold.clear()
        self._has_begun = True
        self._is_over = delta.finish_reason is not None
        return delta

    def _take_events(self) -> tuple[Event, ...]:
        text = self._assembler.take()
        if self._parser is None:
            return (ContentText(text),) if text else ()
        if self.has_ended:
            self._events += self._parser.finish()
        events = tuple(self._events)
        self._events.clear()
        return events

    def _parse(self, text: str) -> bool:
        """Whether the answer is complete with this text."""
        assert self._parser is not None
        self._events += self._parser.push(text)
        return self._parser.is_done

    def _finish_reason(self) -> OpenAIFinishReason | None:
        if self._has_dropped:
            return "length"
        match self._assembler.finish_reason:
            case None:
                return None
            case FinishReason.STOP:
                return "tool_calls" if self._parser and self._parser.num_calls else "stop"
            case _:
                return "length"
