"""Who is compared: each contender is a way to run one worker."""

from collections.abc import Sequence
from dataclasses import dataclass

PEERS = ("openvino", "vllm", "transformers")
OURS = "paceline"


@dataclass(frozen=True, slots=True)
class Contender:
    """One row of a table."""

    peer: str
    """OURS, or one of PEERS."""
    mode: str
    """Part of the worker's settings: workers of different modes are different processes."""
    draft_len: int | None = 0
    """None: it chooses, and learns from what it decodes."""
    max_batch_size: int | None = None
    """Larger batches are not for it; None: any."""

    @property
    def worker(self) -> str:
        return f"{self.peer}-{self.mode}"

    @property
    def name(self) -> str:
        if self.adaptive:
            return f"{self.peer}, adaptive"
        if self.peer == OURS:
            return f"{OURS}, length {self.draft_len}"
        drafts = f" of {self.draft_len}" if self.draft_len else ""
        return f"{self.peer}, {self.mode}{drafts}"

    @property
    def plain(self) -> bool:
        """Without speculation."""
        return self.draft_len == 0

    @property
    def adaptive(self) -> bool:
        return self.draft_len is None


def contenders(peers: Sequence[str], *, draft: bool, quick: bool) -> list[Contender]:
    """Ours at each fixed length and adaptive, then each of `peers` in each way it is used.

    `draft`: there is a draft model for those who take one.
    """
    return [
        *(Contender(OURS, "engine", n) for n in ((0, 4) if quick else (0, 2, 4, 8))),
        Contender(OURS, "engine", None),
        *(contender for contender in _all_peers(draft, quick) if contender.peer in peers),
    ]


def _all_peers(draft: bool, quick: bool) -> list[Contender]:
    draft_lens = (4,) if quick else (4, 8)
    return [
        Contender("openvino", "plain"),
        *(Contender("openvino", "lookup", n) for n in draft_lens),
        *(Contender("openvino", "draft", n) for n in draft_lens if draft),
        Contender("vllm", "compiled"),
        Contender("transformers", "generate"),
        # The lengths of its own documentation; it refuses batches with them. An assistant stops
        # before 20 where it is not sure of a token.
        Contender("transformers", "lookup", 10, max_batch_size=1),
        *([Contender("transformers", "assisted", 20, max_batch_size=1)] if draft else []),
        Contender("transformers", "generate_batch"),
    ]
