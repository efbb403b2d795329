"""When a call is tried again, where not, and when no more."""

from collections.abc import Callable

from engine.errors import EngineDead, EngineFull, PacelineError

MOST_DEATHS = 5
"""Replicas that may die of a call, or with it, one after the other without a new token. A request
that kills whoever takes it must not have them all."""
PAUSE_S = 0.5
"""Before a replica is asked again that could not be reached, or was dead."""
FULL_PAUSE_S = 1.0
"""Before full replicas are asked again, by whoever was let in once."""


class TryFailed(Exception):
    """A try that came to nothing: no replica was reached, or the one that was died, or refused."""

    def __init__(
        self, reason: str, replica_id: str | None = None, refusal: PacelineError | None = None
    ) -> None:
        """`replica_id`: who had the call; None: nobody."""
        super().__init__(reason)
        self.reason = reason
        self.replica_id = replica_id
        self.refusal = refusal


class Tries:
    """Of one call."""

    def __init__(self, max_wait_s: float, clock: Callable[[], float]) -> None:
        """`max_wait_s`: how long to go on without a new token once a try has failed, and how long
        to look for a replica at first."""
        self._max_wait_s = max_wait_s
        self._clock = clock
        self._waiting_since: float | None = clock()
        self._num_deaths = 0
        self._full: EngineFull | None = None
        self.avoided: frozenset[str] = frozenset()
        """Replicas that others are to be preferred to."""

    @property
    def left_s(self) -> float:
        """How long the next try may look for a replica."""
        if self._waiting_since is None:
            return self._max_wait_s
        return max(0.0, self._waiting_since + self._max_wait_s - self._clock())

    def note_tokens(self) -> None:
        self._waiting_since = None
        self._num_deaths = 0
        self._full = None
        self.avoided = frozenset()

    def pause_s(self, failed: TryFailed, *, has_begun: bool) -> float:
        """Seconds until the next try. Raises what is to be told instead, when there is to be none.

        `has_begun`: something of the answer was told, so that it must be gone on with.
        """
        if self._waiting_since is None:
            self._waiting_since = self._clock()
        pause_s = self._judge(failed, has_begun)
        if failed.replica_id is not None:
            self.avoided |= {failed.replica_id}
        if self.left_s <= pause_s:
            raise EngineDead(
                f"no replica went on with the request within {self._max_wait_s:g} s "
                f"(the last one: {failed.reason})"
            )
        return pause_s

    def _judge(self, failed: TryFailed, has_begun: bool) -> float:
        was_asked = failed.replica_id in self.avoided
        match failed.refusal:
            case EngineFull() as full:
                if self._full is None or full.retry_s < self._full.retry_s:
                    self._full = full
                if not was_asked:
                    return 0.0
                if not has_begun:
                    raise self._full
                return FULL_PAUSE_S
            case EngineDead():
                return PAUSE_S if was_asked else 0.0
            case None:
                if failed.replica_id is None:
                    return PAUSE_S
                self._num_deaths += 1
                if self._num_deaths > MOST_DEATHS:
                    raise EngineDead(
                        f"{self._num_deaths} replicas died with this request, one after the other "
                        f"(the last one: {failed.reason})"
                    )
                return 0.0
            case refusal:
                raise refusal
