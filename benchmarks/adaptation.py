"""The adaptive policy in a benchmark's own process: a board with one replica, the engine.

In the policy's turns the engine's counts reach the board every 2 s, and a new table the engine, as
over a replica's channel; of what the engine does between those turns the board sees nothing.
"""

import time
from collections.abc import Callable
from dataclasses import replace

from deployments.knowledge import Knowledge
from deployments.models.cache import default_home
from engine.calibrate.grid import Grid
from engine.calibrate.measure import calibrate
from engine.config import EngineConfig
from engine.core import Engine
from engine.errors import ConfigError
from policy.board import PolicyBoard
from policy.choice import parse_choice
from policy.stats import StatsWindow
from policy.table import SpeculationTable

REPLICA = "benchmark"
REPORT_S = 2.0
_QUICK_CALIBRATION_S = 15.0


def introduced_board(
    engine: Engine, config: EngineConfig, tell: Callable[[str], None], *, is_quick: bool = False
) -> PolicyBoard:
    """A board that knows this engine's cost, from earlier or measured now, and nothing that earlier
    runs learned. Raises ConfigError when the cost can't be measured."""

    def tell_tenths(stage: str) -> None:
        if not stage.endswith("%") or stage.endswith("0 %"):
            tell(stage)

    knowledge = Knowledge(config, default_home() / "calibration")
    said = replace(knowledge.introduction, learned=None)
    if said.calibration is None and is_quick:
        tell("calibrating in short")  # and not kept, as it is too rough for others
        rough = Grid((1, 4, config.max_num_seqs), (0, 1, 2, config.max_draft_len), (128,))
        found = calibrate(engine, rough, max_seconds=_QUICK_CALIBRATION_S)
        said = replace(said, calibration=found)
    elif said.calibration is None:
        knowledge.calibrate(engine, tell_tenths, lambda _said: True)
        said = replace(said, calibration=knowledge.introduction.calibration)
    if said.calibration is None:
        raise ConfigError("the engine could not be calibrated, so there is nothing to compare")
    board = PolicyBoard(parse_choice("adaptive"), config.max_draft_len, time.time)
    board.introduce(REPLICA, said)
    return board


def put_in_force(engine: Engine, table: SpeculationTable) -> None:
    """`table` under the engine's next version: those of the board are its own."""
    engine.set_table(table.with_version(engine.table.version + 1))


class Adaptation:
    """The policy's turns at one engine. The board has been introduced to `REPLICA` already."""

    def __init__(
        self, engine: Engine, board: PolicyBoard, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """`clock` in seconds."""
        self._engine = engine
        self._board = board
        self._clock = clock
        self._held = board.published.table
        self._unsent = StatsWindow()
        self._unreported_s = 0.0
        self._last_report = clock()
        self.turn = StatsWindow()
        """Totals of the last turn."""
        self.board_seconds: list[float] = []
        """What each report took the board, its decision included."""

    def begin(self) -> None:
        """A turn begins, with the table of the last."""
        self._engine.drain_stats()  # of what was not the policy's turn
        put_in_force(self._engine, self._held)
        self.turn = StatsWindow()
        self._last_report = self._clock() - self._unreported_s

    def after_step(self) -> float:
        """Report when it is time to; what that took, in seconds."""
        started = self._clock()
        if started - self._last_report < REPORT_S:
            return 0.0
        self._drain()
        window, self._unsent = self._unsent, StatsWindow()
        window.table_version = self._held.version
        self._board.observe(REPLICA, window)
        newer = self._board.newer_than(self._held.version)
        if newer is not None:
            self._held = newer.table
            put_in_force(self._engine, newer.table)
        self._last_report = self._clock()
        self.board_seconds.append(self._last_report - started)
        return self._last_report - started

    def end(self) -> None:
        """The turn is over; what was not reported yet will be in the next."""
        self._unreported_s = self._clock() - self._last_report
        self._drain()

    def _drain(self) -> None:
        drained = self._engine.drain_stats()
        self.turn.merge_totals(drained)
        self._unsent.merge(drained)
