"""Log-probabilities in the three shapes they are given in: chat, completions, vLLM's prompt."""

from collections.abc import Sequence

from deployments.openai.replies import (
    ChatLogprobs,
    CompletionLogprobs,
    PromptLogprobs,
    PromptTokenLogprob,
    TokenLogprob,
    TopLogprob,
)
from deployments.text.assembler import ShownToken
from deployments.text.detokenizer import Detokenizer
from deployments.text.token_texts import token_bytes, token_text
from engine.request import TokenLogprobs

LOWEST = -9999.0
"""What OpenAI gives for a token that can't come: JSON has no infinity."""


class LogprobsWriter:
    """For the tokens of one request."""

    def __init__(self, detokenizer: Detokenizer) -> None:
        self._detokenizer = detokenizer

    def chat(self, tokens: Sequence[ShownToken], num_top: int) -> ChatLogprobs:
        return ChatLogprobs(
            content=[
                TokenLogprob(
                    **self._entry(entry.token_id, entry.logprob),
                    top_logprobs=[TopLogprob(**self._entry(*pair)) for pair in entry.top[:num_top]],
                )
                for entry in map(_told, tokens)
            ]
        )

    def completion(
        self, tokens: Sequence[ShownToken], num_top: int, base: int
    ) -> CompletionLogprobs:
        """`base`: characters that come before the answer."""
        entries = [_told(token) for token in tokens]
        return CompletionLogprobs(
            tokens=[self._text(entry.token_id) for entry in entries],
            token_logprobs=[_finite(entry.logprob) for entry in entries],
            top_logprobs=[self._top(entry, num_top) for entry in entries],
            text_offset=[base + token.offset for token in tokens],
        )

    def echoed(
        self,
        token_ids: Sequence[int],
        offsets: Sequence[int],
        known: Sequence[TokenLogprobs],
        num_top: int,
    ) -> CompletionLogprobs:
        """Of a prompt; `known` begins with its second token."""
        return CompletionLogprobs(
            tokens=[self._text(token_id) for token_id in token_ids],
            token_logprobs=[None, *(_finite(entry.logprob) for entry in known)],
            top_logprobs=[None, *(self._top(entry, num_top) for entry in known)],
            text_offset=list(offsets),
        )

    def prompt(self, known: Sequence[TokenLogprobs], num_top: int) -> PromptLogprobs:
        """vLLM's form; `known` begins with the prompt's second token."""
        written: PromptLogprobs = [None]
        for entry in known:
            ranked = [(entry.token_id, entry.logprob, entry.rank)]
            ranked += ((*pair, rank) for rank, pair in enumerate(entry.top[:num_top], start=1))
            by_id: dict[str, PromptTokenLogprob] = {}
            for token_id, logprob, rank in ranked:
                by_id.setdefault(
                    str(token_id),
                    PromptTokenLogprob(
                        logprob=_finite(logprob), rank=rank, decoded_token=self._text(token_id)
                    ),
                )
            written.append(by_id)
        return written

    def _top(self, entry: TokenLogprobs, num_top: int) -> dict[str, float]:
        """The likeliest ones, and the token itself if it is none of them."""
        chosen = self._text(entry.token_id)
        by_text = {chosen: _finite(entry.logprob)}
        for token_id, logprob in entry.top[:num_top]:
            # Two tokens may have the same text; the likelier one comes first.
            by_text.setdefault(self._text(token_id), _finite(logprob))
        return by_text

    def _entry(self, token_id: int, logprob: float) -> dict[str, object]:
        raw = token_bytes(self._detokenizer, token_id)
        return {
            "token": self._text(token_id),
            "logprob": _finite(logprob),
            "bytes": None if raw is None else list(raw),
        }

    def _text(self, token_id: int) -> str:
        return token_text(self._detokenizer, token_id)


def _told(token: ShownToken) -> TokenLogprobs:
    assert token.logprobs is not None, "log-probabilities are written where they were asked for"
    return token.logprobs


def _finite(logprob: float) -> float:
    return max(logprob, LOWEST)
