"""A replica that learns, on a virtual clock: a simulated engine, a policy board, and clients."""

from collections import Counter
from dataclasses import dataclass

from engine.request import Request, SamplingParams
from engine.simulate import AcceptanceOf, VirtualClock, simulated_config, simulated_engine
from policy.board import Introduction, PolicyBoard
from policy.choice import parse_choice
from policy.cost import Calibration, CostCell
from policy.table import SpeculationTable, fixed_rungs

REPLICA = "replica"
MAX_BATCH = 16
MAX_DRAFT_LEN = 8
REPORT_EVERY_S = 2.0
PROMPT_LEN = 16
CONTEXTS = (64, 512)
CALIBRATED_SIZES = (1, 2, 4, 8, 16)
CALIBRATED_LENS = (0, 1, 2, 3, 4, 6, 8)


@dataclass(frozen=True, slots=True)
class Machine:
    """Flat until its arithmetic is used up, then linear; a drafter that reads its own weights for
    each token. Seconds."""

    flat: float = 0.010
    idle_tokens: int = 6
    per_token: float = 0.0006
    draft: float = 0.0012
    draft_per_sequence: float = 0.00005

    def target(self, num_seqs: int, num_drafted: int, num_prompt: int, context: float) -> float:
        tokens = num_seqs + num_drafted + num_prompt
        return self.flat + self.per_token * max(0, tokens - self.idle_tokens)

    def drafting(self, num_seqs: int, draft_len: int) -> float:
        return draft_len * (self.draft + self.draft_per_sequence * num_seqs)

    def calibration(self, *, steeper: float = 1.0) -> Calibration:
        """As it would be measured; with what draft tokens add `steeper` times as much."""
        return Calibration(
            tuple(
                CostCell(
                    b,
                    s,
                    context,
                    self.target(b, 0, 0, context)
                    + steeper * (self.target(b, b * s, 0, context) - self.target(b, 0, 0, context)),
                    self.drafting(b, s),
                )
                for b in CALIBRATED_SIZES
                for s in CALIBRATED_LENS
                for context in CONTEXTS
            )
        )


PLAIN = Machine()


class Lab:
    """One engine with clients on a clock of its own, under a table or under a board that learns."""

    def __init__(
        self,
        policy: SpeculationTable | Calibration,
        *,
        clients: int,
        acceptance: AcceptanceOf,
        machine: Machine = PLAIN,
        max_tokens: int = 400,
        has_draft: float = 1.0,
        foresight: int = 0,
        noise: float = 0.0,
        seed: int = 0,
    ) -> None:
        """`policy`: a table that stays, or what the board is told at the start. `max_tokens`: of a
        request on average. A text, with the luck of drafts in it, depends on `seed` alone."""
        self.machine = machine
        """May be set to another at any time."""
        self.clock = VirtualClock()
        self.engine = simulated_engine(
            simulated_config(max_num_seqs=MAX_BATCH, max_draft_len=MAX_DRAFT_LEN),
            self.clock,
            target_seconds=lambda *shape: self.machine.target(*shape),
            draft_seconds=lambda *shape: self.machine.drafting(*shape),
            acceptance=acceptance,
            has_draft=has_draft,
            foresight=foresight,
            noise=noise,
            seed=seed,
        )
        self.tables: list[tuple[int, SpeculationTable]] = []
        """(steps done, table) for each that came into force."""
        self._board: PolicyBoard | None = None
        self._reported_s = 0.0
        self._max_tokens = max_tokens
        self._sent: Counter[int] = Counter()
        self._active: set[int] = set()
        self._num_clients = 0
        if isinstance(policy, SpeculationTable):
            self.engine.set_table(policy)
        else:
            self._board = PolicyBoard(parse_choice("adaptive"), MAX_DRAFT_LEN, self.clock)
            self._board.introduce(
                REPLICA, Introduction("kind", "a machine", MAX_BATCH, MAX_DRAFT_LEN, policy)
            )
            self._take_over()
        self.set_clients(clients)

    def set_clients(self, num: int) -> None:
        """So many requests in flight from now on; those that are too many end as they would."""
        self._num_clients = num
        for client in range(num):
            if client not in self._active:
                self._active.add(client)
                self._send(client)

    def _send(self, client: int) -> None:
        if client >= self._num_clients:
            self._active.remove(client)
            return
        index = self._sent[client]
        self._sent[client] += 1
        # Of unlike lengths, so that they do not end together; without a prefix in common.
        max_tokens = self._max_tokens // 2 + (37 * client + 101 * index) % self._max_tokens
        prompt = (1 + client, 1 + index, *range(2, PROMPT_LEN))
        params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
        self.engine.add(Request(f"{client}-{index}", prompt, params))

    def run(self, seconds: float) -> float:
        """For so long: tokens per second."""
        start_s, tokens = self.clock(), 0
        while self.clock() < start_s + seconds:
            tokens += self.step()
        return tokens / (self.clock() - start_s)

    def run_steps(self, steps: int) -> None:
        for _ in range(steps):
            self.step()

    def step(self) -> int:
        """Tokens emitted."""
        tokens = 0
        for delta in self.engine.step():
            tokens += len(delta.token_ids)
            if delta.finish_reason is not None:
                self._send(int(delta.request_id.split("-")[0]))
        if self._board is not None and self.clock() - self._reported_s >= REPORT_EVERY_S:
            self._reported_s = self.clock()
            self.window = self.engine.drain_stats()
            self._board.observe(REPLICA, self.window)
            self._take_over()
        return tokens

    def _take_over(self) -> None:
        assert self._board is not None
        newer = self._board.newer_than(self.engine.table.version)
        if newer is not None:
            self.engine.set_table(newer.table)
            self.tables.append((self.engine.status().steps, newer.table))

    def length(self, batch_size: int) -> int:
        """In force."""
        return self.engine.table.draft_len(batch_size)


def fixed(draft_len: int) -> SpeculationTable:
    return SpeculationTable(1, fixed_rungs(draft_len))
