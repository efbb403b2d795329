"""When to draft although the table says 0, so that it is noticed when drafts begin to pay."""

_PROBE_LEN = 2
_EVERY = 8
"""Steps from one probe to the next at least, however little they cost."""
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
        self._plain_s: dict[int, float] = {}
        """Seconds of a step without drafts, by batch size."""
        self._share = 0.0

    def draft_len(self, share: float) -> int:
        """Tokens that one sequence may draft in the next step if the table's length is 0: none
        while probes have had their `share` of the time."""
        self._share = share
        return _PROBE_LEN if self._credit_s > 0.0 and self._since_probe >= _EVERY else 0

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
