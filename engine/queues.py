"""Who waits and who runs. Blocks belong to the running alone."""

from bisect import insort
from operator import attrgetter

from engine.admission import Load
from engine.blocks import BlockPool
from engine.integrity import check_books
from engine.sequence import Sequence
from engine.turns import Lines

_RANK = attrgetter("rank")


class Queues:
    """The sequences in flight, waiting or running, both in order of rank."""

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self.lines = Lines()
        """The waiting once more, by tenant."""
        self._load = Load(0, 0)
        self._loads: dict[str, Load] = {}
        """What waits, in all and of each tenant that has something waiting."""
        self._by_id: dict[str, Sequence] = {}
        self._num_added = 0
        self.num_preemptions = 0
        """Since the start."""

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._by_id

    def __getitem__(self, request_id: str) -> Sequence:
        return self._by_id[request_id]

    @property
    def decoding(self) -> list[Sequence]:
        return [seq for seq in self.running if seq.is_decoding]

    @property
    def prefilling(self) -> list[Sequence]:
        return [seq for seq in self.running if not seq.is_decoding]

    @property
    def load(self) -> Load:
        """What waits."""
        return self._load

    def load_of(self, tenant: str) -> Load:
        """A tenant's part of it."""
        return self._loads.get(tenant, Load(0, 0))

    def add(self, seq: Sequence) -> None:
        seq.arrival = self._num_added
        self._num_added += 1
        self._by_id[seq.request_id] = seq
        self._join(seq)

    def remove(self, seq: Sequence) -> None:
        """Forget a sequence, wherever it stands."""
        if seq.is_running:
            self.running.remove(seq)
        else:
            self._leave(seq)
        self._pool.release(seq.block_ids)
        del self._by_id[seq.request_id]

    def start(self, seq: Sequence, found: list[int]) -> None:
        """Let a waiting sequence run: it shares the `found` blocks of its prefix.

        There must be free blocks for the rest of its tokens.
        """
        self._pool.share(seq.block_ids, found)
        fits = self._pool.grow(seq.block_ids, len(seq.tokens))
        assert fits, f"{seq.request_id} was admitted without room"
        seq.num_computed = len(found) * self._pool.block_size
        self._leave(seq)
        insort(self.running, seq, key=_RANK)

    def preempt(self) -> None:
        """Make the running sequence of the highest rank wait: its tokens stay, its blocks go."""
        seq = self.running.pop()
        self._pool.release(seq.block_ids)
        seq.num_computed = seq.draft_computed = 0
        self.num_preemptions += 1
        self._join(seq)

    def _join(self, seq: Sequence) -> None:
        insort(self.waiting, seq, key=_RANK)
        self.lines.join(seq)
        self._count(seq, Load(1, seq.max_len))

    def _leave(self, seq: Sequence) -> None:
        self.waiting.remove(seq)
        self.lines.leave(seq)
        self._count(seq, Load(-1, -seq.max_len))

    def _count(self, seq: Sequence, change: Load) -> None:
        tenant = seq.request.tenant
        own = self.load_of(tenant) + change
        self._load += change
        if own.requests:
            self._loads[tenant] = own
        else:
            del self._loads[tenant]

    def check_integrity(self) -> None:
        """Assert that every block's owners are known and every counter is in range."""
        in_flight = [seq.request_id for seq in (*self.waiting, *self.running)]
        assert sorted(self._by_id) == sorted(in_flight)
        check_books(self._pool, self.waiting, self.running)
        self.lines.check_integrity(self.waiting)
        assert self._load == Load(len(self.waiting), sum(seq.max_len for seq in self.waiting))
        assert sum(self._loads.values(), Load(0, 0)) == self._load
