"""What is told of a request when it has ended, by whichever process answered it."""

from dataclasses import dataclass

from cluster.metrics import definitions as defined
from cluster.metrics.definitions import Outcome
from cluster.metrics.instruments import Instruments


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request, after its end. Times in seconds; None or nothing where it did not get there."""

    outcome: Outcome
    seconds: float | None = None
    """From its arrival to its last token."""
    first_token_s: float | None = None
    """From its arrival to its first token."""
    queue_s: tuple[float, ...] = ()
    """Of each choice that got a token: what it waited for the engine to begin."""
    per_token_s: tuple[float, ...] = ()
    """Of each choice of several tokens: mean time from one to the next."""
    arrived_s: float | None = None
    """When it came, of `time.monotonic`."""
    prepare_s: float = 0.0
    """From its arrival until the engine was asked."""
    operation: str = ""
    """What was asked for, as OpenTelemetry's conventions name it."""
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    """Of the prompt's, those that were computed before."""
    num_new_tokens: int = 0
    """Of all choices."""
    num_rounds: int = 0
    """Steps with a draft."""
    num_drafted: int = 0
    num_accepted: int = 0
    error: str | None = None
    """Why it failed, where the engine did."""


class RequestMetrics:
    """Writes the records of one process down. Belongs to one event loop."""

    def __init__(self, instruments: Instruments) -> None:
        self._instruments = instruments

    def record(self, record: RequestRecord) -> None:
        tell = self._instruments
        tell.add(defined.REQUESTS, 1, outcome=record.outcome)
        if record.first_token_s is not None:
            tell.observe(defined.TIME_TO_FIRST_TOKEN, record.first_token_s)
        for waited_s in record.queue_s:
            tell.observe(defined.QUEUE_TIME, waited_s)
        if record.outcome is not Outcome.FINISHED:
            return
        if record.seconds is not None:
            tell.observe(defined.END_TO_END, record.seconds)
        for each_s in record.per_token_s:
            tell.observe(defined.TIME_PER_OUTPUT_TOKEN, each_s)
