"""When to do otherwise than the table says: to draft more, so that it is noticed when longer drafts
(or any) begin to pay, and not to draft where it says so, to know what drafts add to a step."""

from dataclasses import dataclass

_FURTHER = 2
_EVERY = 8
"""Steps from one probe to the next at least, however little they cost."""
_PLAIN_EVERY = 128
"""Steps with drafts before one without: less than a hundredth of what drafting gains."""
_SHARE_OF_DRAFTING = 0.3
"""What may be lost where the table has drafts, of what may be lost where it has none: more is known
there, and what is known fades less."""
_MOST_CREDIT_S = 0.1
"""Saved up at most: after a long quiet time there is no burst of probes."""
_NEWEST = 0.2
"""What the latest step weighs in what steps usually take and give."""


@dataclass(slots=True)
class _Usual:
    """Of a step without a probe."""

    seconds: float
    tokens: float
    """Emitted, of all sequences."""


class Prober:
    """Spends at most a share of the time on probes: other steps earn credit, a probe is booked with
    what it lost against them. One that pays for itself is free, and so the next is soon made. Lives
    in the engine, and knows its clock only."""

    def __init__(self) -> None:
        self._credit_s = 0.0
        self._since_probe = 0
        self._since_plain = 0
        self._usual: dict[tuple[int, int], _Usual] = {}
        """By batch size and the table's length."""
        self._share = 0.0

    def further(self, share: float) -> int:
        """Tokens beyond the table's length that one sequence may draft in the next step: none while
        probes have had their `share` of the time."""
        self._share = share
        return _FURTHER if self._credit_s > 0.0 and self._since_probe >= _EVERY else 0

    @property
    def is_plain_due(self) -> bool:
        """Whether the next step should have no drafts. While all steps have as many, nothing tells
        what a target pass takes without them from what they add to it."""
        return self._since_plain >= _PLAIN_EVERY

    def planned(self, *, has_drafts: bool, is_probe: bool) -> None:
        """Take note of a step. `has_drafts`: by the table."""
        self._since_plain = self._since_plain + 1 if has_drafts else 0
        self._since_probe = 0 if is_probe else self._since_probe + 1

    def record(self, batch_size: int, draft_len: int, seconds: float, tokens: int) -> None:
        """Book a step without a probe in which all decoded, and `tokens` were emitted."""
        share = _SHARE_OF_DRAFTING * self._share if draft_len else self._share
        self._credit_s = min(_MOST_CREDIT_S, self._credit_s + share * seconds)
        usual = self._usual.setdefault((batch_size, draft_len), _Usual(seconds, tokens))
        usual.seconds += _NEWEST * (seconds - usual.seconds)
        usual.tokens += _NEWEST * (tokens - usual.tokens)

    def record_probe(
        self, batch_size: int, draft_len: int, seconds: float, own_tokens: int
    ) -> float:
        """Book a probe where the table's length is `draft_len`: the seconds that it took beyond a
        usual step. `own_tokens`: emitted of the one sequence; the others' are luck."""
        usual = self._usual.get((batch_size, draft_len))
        if usual is None:
            # Nothing to compare with: all of it, to be on the safe side.
            self._credit_s -= seconds
            return seconds
        won_s = (own_tokens - usual.tokens / batch_size) * usual.seconds / max(1.0, usual.tokens)
        self._credit_s = min(_MOST_CREDIT_S, self._credit_s - (seconds - usual.seconds) + won_s)
        return max(0.0, seconds - usual.seconds)
