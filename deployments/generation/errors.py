"""What can go wrong with one request after it was accepted."""

from engine.errors import PacelineError


class GenerationFailed(PacelineError):
    """The engine gave this request up, and it alone."""
