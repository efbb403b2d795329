"""What is known of the answers to one call's requests, whoever gave it, and what is left to ask."""

import dataclasses
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field

from engine.request import FinishReason, Request, TokenDelta


@dataclass(slots=True)
class _Answer:
    request: Request
    tokens: list[int] = field(default_factory=list)
    num_prompt_logprobs: int = 0
    """Told so far."""
    num_retold: int = 0
    """Of them, those that the present try has told again."""
    is_over: bool = False


class Answers:
    """Of one event loop. Each try asks under other ids: a replica may still be busy with the last
    one's, or have lost only its connection."""

    def __init__(self, requests: Iterable[Request]) -> None:
        """A seed that is missing is drawn: all tries must have the same."""
        self._answers = {request.request_id: _Answer(_seeded(request)) for request in requests}
        self._num_tries = 0
        self._names: dict[str, str] = {}
        """The request's own id by that of the present try."""

    @property
    def are_over(self) -> bool:
        return all(answer.is_over for answer in self._answers.values())

    @property
    def have_begun(self) -> bool:
        """Whether anything was told."""
        return any(
            answer.tokens or answer.num_prompt_logprobs or answer.is_over
            for answer in self._answers.values()
        )

    def next_try(self) -> tuple[Request, ...]:
        """What is left, from where it is."""
        self._num_tries += 1
        self._names = {}
        requests = []
        for request_id, answer in self._answers.items():
            if answer.is_over:
                continue
            answer.num_retold = 0
            name = _name_of_try(request_id, self._num_tries)
            self._names[name] = request_id
            rest = answer.request.continued(tuple(answer.tokens))
            requests.append(dataclasses.replace(rest, request_id=name))
        return tuple(requests)

    def take(self, deltas: Iterable[TokenDelta]) -> list[TokenDelta]:
        """What is new in deltas of the present try."""
        found = (self._new_in(delta) for delta in deltas)
        return [delta for delta in found if delta is not None]

    def give_up(self, request_id: str) -> str | None:
        """Nobody waits for this one any more: its id in the present try, if it is still open."""
        answer = self._answers[request_id]
        if answer.is_over:
            return None
        answer.is_over = True
        return next((name for name, own in self._names.items() if own == request_id), None)

    def _new_in(self, delta: TokenDelta) -> TokenDelta | None:
        request_id = self._names[delta.request_id]
        answer = self._answers[request_id]
        # An abort that nobody here asked for is no end: another replica goes on.
        if answer.is_over or delta.finish_reason is FinishReason.ABORT:
            return None
        prompt_logprobs = delta.prompt_logprobs
        if prompt_logprobs:
            known = min(len(prompt_logprobs), answer.num_prompt_logprobs - answer.num_retold)
            answer.num_retold += known
            prompt_logprobs = prompt_logprobs[known:]
            answer.num_prompt_logprobs += len(prompt_logprobs)
            answer.num_retold += len(prompt_logprobs)
        answer.tokens += delta.token_ids
        answer.is_over = delta.finish_reason is not None
        if not (delta.token_ids or prompt_logprobs or answer.is_over):
            return None
        if request_id == delta.request_id and prompt_logprobs is delta.prompt_logprobs:
            return delta
        return delta._replace(request_id=request_id, prompt_logprobs=prompt_logprobs)


def _name_of_try(request_id: str, number: int) -> str:
    return request_id if number == 1 else f"{request_id}/{number}"


def name_of_first_try(name: str) -> str:
    """The same for all tries of a request."""
    return name.partition("/")[0]


def _seeded(request: Request) -> Request:
    if request.sampling.seed is not None:
        return request
    sampling = dataclasses.replace(request.sampling, seed=secrets.randbits(63))
    return dataclasses.replace(request, sampling=sampling)
