"""What can go wrong with one request after it was accepted."""

from engine.errors import PacelineError


class DeadlinePassed(PacelineError):
    """The request's own time ran out before its answer was complete."""

    def __init__(self, message: str = "the request's time is up; its work was given up") -> None:
        super().__init__(message)


class GenerationFailed(PacelineError):
    """The engine gave this request up, and it alone."""
