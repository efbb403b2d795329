"""What the policy actor is asked: reports, polls, bytes."""

import pickle
from dataclasses import dataclass
from typing import Any

from policy.actor import LONG_POLL_S
from policy.stats import StatsWindow

_EVERY = 64
"""One report of so many is weighed: to pickle all would take longer than to make them."""


@dataclass(slots=True)
class ActorLoad:
    """Of one run. A report's and a table's bytes are those of the pickle that Ray would send."""

    reports: int = 0
    tables: int = 0
    """Published."""
    answers: int = 0
    """Polls that were answered with a table."""
    _weighed: int = 0
    _weight: int = 0
    _table_bytes: int = 0

    def reported(self, window: StatsWindow) -> None:
        if self.reports % _EVERY == 0:
            self._weighed += 1
            self._weight += len(pickle.dumps(window))
        self.reports += 1

    def published(self, publication: object, num_replicas: int) -> None:
        self.tables += 1
        self.answers += num_replicas
        self._table_bytes = len(pickle.dumps(publication))

    def as_json(self, seconds: float, num_replicas: float) -> dict[str, Any]:
        """In `seconds`, of so many replicas on average."""
        report_bytes = self._weight / self._weighed if self._weighed else 0.0
        # A poll without news is answered, and made anew, after a while.
        polls = self.answers + num_replicas * seconds / LONG_POLL_S
        total = self.reports * report_bytes + self.answers * self._table_bytes
        return {
            "reports": self.reports,
            "reports_per_s": self.reports / seconds,
            "polls_per_s": polls / seconds,
            "tables": self.tables,
            "bytes_per_report": report_bytes,
            "bytes_per_table": self._table_bytes,
            "bytes_per_s": total / seconds,
        }
