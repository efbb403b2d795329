"""Quick steps come to what the engine's own come to: in every book, to the last bit."""

from dataclasses import asdict
from random import Random
from typing import Any

import pytest

from engine.luck import Luck
from engine.quick_engine import QuickEngine
from engine.request import Request, SamplingParams
from engine.simulate import VirtualClock, simulated_config
from policy.board import Introduction, PolicyBoard
from policy.choice import parse_choice
from policy.table import SpeculationTable, fixed_rungs
from tests.engine.adaptive import MAX_BATCH, MAX_DRAFT_LEN, PLAIN

REPORT_S = 0.5


class Costs:
    """Such that drafts pay for few sequences, and every argument counts."""

    def target_seconds(
        self, num_decoding: int, num_drafted: int, num_prompt: int, context: float
    ) -> float:
        return PLAIN.target(num_decoding, num_drafted, num_prompt, context) * (1 + context / 9001)

    def least_seconds(self, num_decoding: int) -> float:
        return self.target_seconds(num_decoding, 0, 0, 0.0)

    def draft_seconds(
        self, num_drafting: int, longest: int, num_behind: int, context: int
    ) -> float:
        return PLAIN.drafting(num_drafting, longest) + 1e-6 * num_behind + 1e-8 * context


class Run:
    """The same requests at the same times, whichever steps are taken."""

    def __init__(
        self, policy: str | int, seed: int, *, num_blocks: int = 8192, block_size: int = 16
    ) -> None:
        self.clock = VirtualClock()
        config = simulated_config(max_num_seqs=MAX_BATCH, max_draft_len=MAX_DRAFT_LEN)
        object.__setattr__(config, "max_step_tokens", 96)
        object.__setattr__(config, "block_size", block_size)
        table = SpeculationTable(0, fixed_rungs(policy) if isinstance(policy, int) else ())
        self.engine = QuickEngine(
            config,
            self.clock,
            Costs(),
            Luck(seed, lambda request_id: (0.8, 0.6 + 0.02 * (int(request_id) % 10))),
            num_blocks=num_blocks,
            max_model_len=1024,
            table=table,
        )
        self._board: PolicyBoard | None = None
        if policy == "adaptive":
            self._board = PolicyBoard(parse_choice("adaptive"), MAX_DRAFT_LEN, self.clock)
            said = Introduction("k", "m", MAX_BATCH, MAX_DRAFT_LEN, PLAIN.calibration())
            self._board.introduce("r", said)
        self._draw = Random(seed)
        self._reported_s = 0.0
        self.windows: list[Any] = []
        self.first: list[tuple[str, float]] = []
        self.ended: list[tuple[str, float]] = []

    def request(self, number: int) -> Request:
        # Some prompts begin alike.
        begin = (1 + number % 3,) * 40 if number % 4 == 0 else (1 + number,)
        length = self._draw.randint(1, 150)
        prompt = (*begin, *range(2, 2 + length))
        sampling = SamplingParams(
            max_tokens=self._draw.randint(1, 120),
            ignore_eos=True,
            max_draft_tokens=2 if number % 7 == 0 else None,
        )
        return Request(str(number), prompt, sampling)

    def go(self, num_requests: int, *, quick: bool) -> "Run":
        due_s, number = 0.0, 0
        while number < num_requests or self.engine.has_work:
            if not self.engine.has_work and due_s > self.clock():
                self.clock.advance_to(due_s)
            while number < num_requests and due_s <= self.clock():
                self.engine.add(self.request(number))
                number += 1
                due_s += self._draw.expovariate(12.0 if number % 40 < 25 else 2.0)
            if quick:
                told = self.engine.quick_step()
                self.first += [(delta.request_id, self.clock()) for delta in told.first]
                self.ended += [(request_id, self.clock()) for request_id in told.ended]
            else:
                self._long_step()
            self._report()
        return self

    def _long_step(self) -> None:
        spoke = {request_id for request_id, _ in self.first}
        for delta in self.engine.step():
            if delta.token_ids and delta.request_id not in spoke:
                self.first.append((delta.request_id, self.clock()))
            if delta.finish_reason is not None:
                self.ended.append((delta.request_id, self.clock()))

    def _report(self) -> None:
        if self.clock() - self._reported_s < REPORT_S:
            return
        self._reported_s = self.clock()
        window = self.engine.drain_stats()
        self.windows.append(asdict(window))
        if self._board is not None:
            self._board.observe("r", window)
            newer = self._board.newer_than(self.engine.table.version)
            if newer is not None:
                self.engine.set_table(newer.table)

    def books(self) -> dict[str, Any]:
        return {
            "first": self.first,
            "ended": sorted(self.ended),
            "windows": self.windows,
            "status": asdict(self.engine.status()),
            "prober": {
                name: value for name, value in vars(self.engine._prober).items() if name != "_usual"
            },
            "throughput": vars(self.engine._throughput),
            "free": self.engine._pool.num_free,
        }


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("policy", ["off", 2, 8, "adaptive"])
@pytest.mark.parametrize(
    ("num_blocks", "block_size"),
    [
        pytest.param(8192, 16, id="room"),
        pytest.param(40, 16, id="scarce"),
        pytest.param(128, 4, id="small blocks"),
    ],
)
def test_books_are_equal(policy: str | int, seed: int, num_blocks: int, block_size: int) -> None:
    sizes = {"num_blocks": num_blocks, "block_size": block_size}
    quick = Run(policy, seed, **sizes).go(60, quick=True)
    long = Run(policy, seed, **sizes).go(60, quick=False)
    quick.engine.check_integrity()
    assert quick.books() == long.books()
    assert len(quick.ended) == len(quick.first) == 60
