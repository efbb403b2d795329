"""When to do otherwise than the table says: to draft where it says 0, so that it is noticed when
drafts begin to pay, and not to draft where it says so, to know what drafts add to a step."""

_PROBE_LEN = 2
_EVERY = 8
"""Steps from one probe to the next at least, however little they cost."""
_PLAIN_EVERY = 128
"""Steps with drafts before one without: less than a hundredth of what drafting gains."""
_MOST_CREDIT_S = 0.25
"""Saved up at most: after a long quiet time there is no burst of probes."""
_NEWEST = 0.2
"""What the latest step weighs in what a step without drafts takes."""


class Prober:
    """Spends at most a share of the time on probes: steps without drafts earn credit, a probe
    costs what it takes beyond one of them. Lives in the engine, and knows its clock only."""

    def __init__(self) -> None:
        self._credit_s = 0.0
        self._since_probe = 0
        self._since_plain = 0
        self._plain_s: dict[int, float] = {}
        """Seconds of a step without drafts, by batch size."""
        self._share = 0.0

    def draft_len(self, share: float) -> int:
        """Tokens that one sequence may draft in the next step if the table's length is 0: none
        while probes have had their `share` of the time."""
        self._share = share
        return _PROBE_LEN if self._credit_s > 0.0 and self._since_probe >= _EVERY else 0

    @property
    def is_plain_due(self) -> bool:
        """Whether the next step should have no drafts. While all steps have as many, nothing tells
        what a target pass takes without them from what they add to it."""
        return self._since_plain >= _PLAIN_EVERY

    def planned(self, has_drafts: bool) -> None:
        """Take note of a step."""
        self._since_plain = self._since_plain + 1 if has_drafts else 0

    def record(self, batch_size: int, seconds: float, is_probe: bool) -> float:
        """Book a step in which all decoded: the seconds that a probe took beyond a plain one."""
        plain_s = self._plain_s.get(batch_size)
        if is_probe:
            self._since_probe = 0
            # A batch size that was never seen without drafts: all of it, to be on the safe side.
            extra = max(0.0, seconds - (plain_s or 0.0))
            self._credit_s -= extra
            return extra
        self._since_probe += 1
        self._credit_s = min(_MOST_CREDIT_S, self._credit_s + self._share * seconds)
        self._plain_s[batch_size] = (
            seconds if plain_s is None else plain_s + _NEWEST * (seconds - plain_s)
        )
        return 0.0
