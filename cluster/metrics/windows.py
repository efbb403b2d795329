"""What the steps of a replica's engine came to, as metrics.

The counts come by as the windows that the policy channel drains every two seconds. Each window is a
difference, so it is added as it is, and metrics and policy actor count the same to the token.
"""

from collections.abc import Callable

from cluster.metrics import definitions as defined
from cluster.metrics.instruments import Instruments
from cluster.metrics.metric import Metric
from policy.stats import StatsWindow

_COUNTERS: tuple[tuple[Metric, Callable[[StatsWindow], float]], ...] = (
    (defined.STEPS, lambda window: window.steps),
    (defined.STEPS_WITHOUT_DRAFT, lambda window: window.steps_without_draft),
    (defined.ROUNDS, lambda window: window.rounds),
    (defined.GENERATION_TOKENS, lambda window: window.emitted_tokens),
    (defined.DRAFT_SECONDS, lambda window: window.draft_seconds),
    (defined.TARGET_SECONDS, lambda window: window.target_seconds),
    (defined.VERIFY_SECONDS, lambda window: window.verify_seconds),
    (defined.NUM_DRAFTS, lambda window: sum(window.drafted_by_position[:1])),
    (defined.NUM_DRAFT_TOKENS, lambda window: window.drafted_tokens),
    (defined.NUM_ACCEPTED_TOKENS, lambda window: window.accepted_tokens),
    (defined.PROBES, lambda window: window.probes),
    (defined.PROBE_SECONDS, lambda window: window.probe_seconds),
)


class WindowMetrics:
    """Of one replica. Belongs to one event loop."""

    def __init__(self, instruments: Instruments) -> None:
        self._tell = instruments

    def counted(self, drain: Callable[[], StatsWindow]) -> Callable[[], StatsWindow]:
        """The same windows, counted in passing. All of the engine's must come this way."""

        def drained() -> StatsWindow:
            window = drain()
            self.count(window)
            return window

        return drained

    def count(self, window: StatsWindow) -> None:
        """Add what a window has counted."""
        for metric, read in _COUNTERS:
            self._tell.add(metric, read(window))
        for metric, counts in (
            (defined.NUM_DRAFT_TOKENS_PER_POS, window.drafted_by_position),
            (defined.NUM_ACCEPTED_TOKENS_PER_POS, window.accepted_by_position),
        ):
            for position, count in enumerate(counts):
                self._tell.add(metric, count, position=str(position))
