"""One board for each kind of replica, so that unlike hardware never shares a table."""

from collections.abc import Callable
from typing import Any

from policy.board import Introduction, PolicyBoard, Publication
from policy.choice import PolicyChoice
from policy.stats import StatsWindow

UNKNOWN = ""
"""Kind of a replica that has not said yet: it is still loading."""


class PolicyBoards:
    """Sends each replica's words to the board of its kind."""

    def __init__(
        self, configured: PolicyChoice, max_draft_len: int, now_unix_s: Callable[[], float]
    ) -> None:
        self._configured = configured
        self._max_draft_len = max_draft_len
        self._now_unix_s = now_unix_s
        self._by_hand: PolicyChoice | None = None
        self._kind_of: dict[str, str] = {}
        self._descriptions: dict[str, str] = {}
        self._boards = {UNKNOWN: self._new_board()}

    def introduce(self, replica_id: str, said: Introduction) -> bool:
        """A replica tells its kind and what it knows. True when a table changed."""
        if self._kind_of.get(replica_id, UNKNOWN) != said.kind:
            self.of(replica_id).forget(replica_id)
        self._kind_of[replica_id] = said.kind
        self._descriptions[said.kind] = said.description
        if said.kind not in self._boards:
            board = self._boards[said.kind] = self._new_board()
            if self._by_hand is not None:
                board.set_by_hand(self._by_hand)
        return self._boards[said.kind].introduce(replica_id, said)

    def of(self, replica_id: str) -> PolicyBoard:
        """The board that a replica belongs to."""
        return self._boards[self._kind_of.get(replica_id, UNKNOWN)]

    def may_calibrate(self, replica_id: str, said: Introduction) -> bool:
        """See `PolicyBoard.may_calibrate`."""
        self.introduce(replica_id, said)
        return self.of(replica_id).may_calibrate(replica_id)

    def subscribe(self, replica_id: str, held: Publication) -> bool:
        return self.of(replica_id).subscribe(replica_id, held)

    def newer_than(self, replica_id: str, version: int) -> Publication | None:
        return self.of(replica_id).newer_than(version)

    def observe(self, replica_id: str, window: StatsWindow) -> bool:
        return self.of(replica_id).observe(replica_id, window)

    def set_by_hand(self, choice: PolicyChoice) -> None:
        """For all kinds. Raises ValueError when the drafts would be too long."""
        choice.limited_to(self._max_draft_len)
        self._by_hand = choice
        for board in self._boards.values():
            board.set_by_hand(choice)

    def explain(self, batch_size: int) -> dict[str, Any]:
        """Why each kind's table has its length at a batch size."""
        kinds = self._known()
        told = {kind: self._boards[kind].explain(batch_size) for kind in kinds}
        first = told[kinds[0]]
        if len(kinds) > 1:
            lines = [f"{self._descriptions[kind]}: {told[kind]['text']}" for kind in kinds]
            first = {**first, "text": "\n".join(lines)}
        return first

    def explain_table(self) -> dict[str, Any]:
        """ "kinds": each kind's table, rung by rung; that of most replicas first."""
        kinds = self._known()
        return {
            "kinds": [
                {
                    "kind": self._descriptions.get(kind),
                    **self._boards[kind].explain_table(),
                }
                for kind in kinds
            ]
        }

    def describe(self) -> dict[str, Any]:
        """The table and history of the kind with most replicas, those of each where there are
        several, and all replicas."""
        kinds = self._known()
        told = {kind: self._boards[kind].describe() for kind in kinds}
        if UNKNOWN not in told:
            told[UNKNOWN] = self._boards[UNKNOWN].describe()
        replicas = [
            {
                **replica,
                **({"kind": self._descriptions.get(kind, "loading")} if len(kinds) > 1 else {}),
            }
            for kind, one in told.items()
            for replica in one["replicas"]
        ]
        present = {replica["replica_id"] for replica in replicas}
        self._kind_of = {name: kind for name, kind in self._kind_of.items() if name in present}
        described = {
            **told[kinds[0]],
            "replicas": sorted(replicas, key=lambda replica: str(replica["replica_id"])),
        }
        if len(kinds) > 1:
            described["kinds"] = [
                {
                    "kind": self._descriptions[kind],
                    "table": told[kind]["table"],
                    "history": told[kind]["history"],
                }
                for kind in kinds
            ]
        return described

    def _known(self) -> list[str]:
        """Kinds, those of most replicas first; the unknown one only where there is no other."""
        kinds = [kind for kind in self._boards if kind != UNKNOWN]
        if not kinds:
            return [UNKNOWN]
        return sorted(kinds, key=lambda kind: -self._boards[kind].num_replicas)

    def _new_board(self) -> PolicyBoard:
        return PolicyBoard(self._configured, self._max_draft_len, self._now_unix_s)
