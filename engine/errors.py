"""Everything the engine raises on purpose.

PacelineError
├── ConfigError          the configuration can't be honoured (also: a model that doesn't load)
├── RequestError         the request can't be honoured; `field` names the offending parameter
│   └── PromptTooLong    prompt leaves no room for a token within the context limit
├── GrammarError         a grammar can't be compiled, or its text can't go on
├── EngineFull           the waiting queue is at its limit; try again later
│   └── OverShare        one tenant has more waiting than its part of the queue
└── EngineDead           a step failed; the engine takes no more work
"""


class PacelineError(Exception):
    """Base of all errors raised on purpose."""


class ConfigError(PacelineError):
    """The configuration can't be honoured. The message is one line that names key and value."""


class RequestError(PacelineError):
    """The request can't be honoured; `field` is the parameter at fault."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field

    def __reduce__(self) -> tuple[type["RequestError"], tuple[str, str]]:
        # The default would call the class with the message alone, and callers in other processes
        # would see that failure instead of this error.
        return type(self), (self.field, str(self))


class PromptTooLong(RequestError):
    """The prompt leaves no room for even one token within the context limit."""


class GrammarError(PacelineError):
    """A grammar can't be compiled, or a text can't go on under it. The message is one line."""


class EngineFull(PacelineError):
    """The waiting queue is at its limit; `retry_s` is the number of seconds to wait, 1 to 60."""

    def __init__(self, message: str, retry_s: int = 1) -> None:
        super().__init__(message)
        self.retry_s = retry_s

    def __reduce__(self) -> tuple[type["EngineFull"], tuple[str, int]]:
        return type(self), (str(self), self.retry_s)


class OverShare(EngineFull):
    """One tenant has so much waiting that the rest of the queue is kept for others."""


class EngineDead(PacelineError):
    """A step failed. Requests in flight end with this error and no new one is taken."""


def in_one_line(error: BaseException) -> str:
    """What to tell of an error; our own speak for themselves, others need their name."""
    text = " ".join(str(error).split())
    if isinstance(error, PacelineError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
