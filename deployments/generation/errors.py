"""What can go wrong with one request after it was accepted."""

from engine.errors import PacelineError


class DeadlinePassed(PacelineError):
    """The request's own time ran out before its answer was complete."""


class GenerationFailed(PacelineError):
    """The engine gave this request up, and it alone."""
