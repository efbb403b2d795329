"""What a request must be to come into the engine, and the sequence that it becomes there."""

import secrets
from collections.abc import Callable
from collections.abc import Sequence as ReadOnly

from engine.errors import PromptTooLong, RequestError
from engine.grammar import GrammarCompiler
from engine.request import Request
from engine.sequence import Sequence


class Entry:
    """Checks each request by itself; who else is there is the engine's concern."""

    def __init__(
        self,
        max_model_len: int,
        vocab_size: int,
        eos_token_ids: frozenset[int],
        grammars: GrammarCompiler,
        clock: Callable[[], float],
    ) -> None:
        """`max_model_len`: tokens of a sequence, prompt included."""
        self._max_model_len = max_model_len
        self._vocab_size = vocab_size
        self._eos_token_ids = eos_token_ids
        self._grammars = grammars
        self._clock = clock

    def max_len(self, request: Request) -> int:
        """Tokens that it ends with, at most."""
        asked = len(request.prompt_token_ids) + request.sampling.max_tokens
        return min(asked, self._max_model_len)

    def sequence(self, request: Request) -> Sequence:
        """Raises PromptTooLong, RequestError or GrammarError."""
        prompt, sampling = request.prompt_token_ids, request.sampling
        if not prompt:
            raise RequestError("prompt", "prompt must hold at least one token, got none")
        self._check_ids("prompt", prompt)
        self._check_ids("stop_token_ids", sampling.stop_token_ids)
        self._check_ids("logit_bias", [token for token, _ in sampling.logit_bias])
        for word in sampling.bad_words:
            self._check_ids("bad_words", word)
        if len(prompt) >= self._max_model_len:
            raise PromptTooLong(
                "prompt",
                f"the prompt has {len(prompt)} tokens; with at least one new token the context "
                f"limit of {self._max_model_len} tokens would be exceeded",
            )
        eos = frozenset[int]() if sampling.ignore_eos else self._eos_token_ids
        seq = Sequence(
            request=request,
            seed=secrets.randbits(63) if sampling.seed is None else sampling.seed,
            max_len=self.max_len(request),
            tokens=list(prompt),
            came_at_s=self._clock(),
            stop_ids=eos | frozenset(sampling.stop_token_ids),
            grammar=None if sampling.grammar is None else self._grammars.cursor(sampling.grammar),
        )
        self._go_on(seq, request.generated_token_ids)
        return seq

    def _go_on(self, seq: Sequence, generated: tuple[int, ...]) -> None:
        """Put a sequence where another engine left it. Raises RequestError for tokens that no
        engine can have left it with."""
        if not generated:
            return
        field = "generated_token_ids"
        self._check_ids(field, generated)
        sampling = seq.request.sampling
        if sampling.seed is None and not sampling.is_greedy:
            raise RequestError(field, f"{field} can only be gone on with under the same seed")
        if sampling.prompt_logprobs is not None:
            raise RequestError(
                field, f"{field} came after the prompt's log-probabilities, which were told then"
            )
        if seq.grammar is not None and seq.grammar.valid_len((), generated) < len(generated):
            raise RequestError(field, f"{field} must follow the request's grammar")
        _, reason = seq.extend(generated)
        if reason is not None:
            raise RequestError(
                field, f"{field} must leave something to generate: they end with {reason!s}"
            )

    def _check_ids(self, field: str, token_ids: ReadOnly[int]) -> None:
        if not token_ids or (min(token_ids) >= 0 and max(token_ids) < self._vocab_size):
            return  # most often, and told in a third of the time that a loop takes
        for token in token_ids:
            if not 0 <= token < self._vocab_size:
                raise RequestError(
                    field,
                    f"{field} holds token {token}, which is outside the vocabulary of "
                    f"{self._vocab_size} tokens",
                )
