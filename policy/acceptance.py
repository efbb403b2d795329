"""How many draft tokens are kept: by position, from counts that fade, with a prior; and the paper's
power law l(s) = c * s^gamma beyond the positions seen (Su, Giannoula, Pekhimenko 2023,
arXiv 2310.18813)."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from policy.paper import fit_power_law
from policy.quoting import shown
from policy.stats import DraftCounts, PositionCounts, batch_bucket
from policy.table import MAX_DRAFT_LEN

PRIOR_ACCEPTANCE = 0.4
_PRIOR_TOKENS = 6.0
_PRIOR_ROUNDS = 4.0
_SEEN = 5.0
"""Drafts that reached a position before its own count says something."""
_SEEN_HALF_LIFE = 5.0
"""Drafts that reached a position since, for those before to count half at the earliest."""
_SLOWEST = 10.0
"""Times the half-life of the rest: where hardly any came, what was seen fades all the same."""
_LEAST_ROUNDS = 100.0
_LEAST_Z = 3.0


def mean_conditional(survival: Sequence[float]) -> float:
    """How often a token is kept whose forerunners were: as of a draft that goes on for ever with
    the same chance, and keeps as many."""
    kept = sum(survival)
    return kept / (1.0 + kept - survival[-1]) if survival else PRIOR_ACCEPTANCE


@dataclass(frozen=True, slots=True)
class Source:
    """Drafts that a model makes, or that are looked up."""

    has_draft: float
    """Share of all rounds, if this source may draft in all of them."""
    survival: tuple[float, ...]
    """Entry k: probability that a draft's tokens at positions 0 to k are all kept; never rising."""

    @property
    def mean_conditional(self) -> float:
        return mean_conditional(self.survival)


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Of drafts at one batch size."""

    has_draft: float
    """Share of the rounds in which a draft was asked for and there was one."""
    survival: tuple[float, ...]
    """Of all drafts together, as in `Source`."""
    c: float
    gamma: float
    """l(s) = c * s^gamma of drafts that there were."""
    rounds: float = 0.0
    """Evidence, faded."""
    by_source: tuple[Source, Source] | None = None
    """Modelled and looked up drafts; None where all are of one kind."""

    @property
    def sources(self) -> tuple[Source, Source]:
        """The same, always: where all are of one kind there are none of the other, which would
        fare alike."""
        if self.by_source is not None:
            return self.by_source
        return Source(self.has_draft, self.survival), Source(0.0, self.survival)

    def accepted(self, draft_len: int) -> float:
        """l(s): tokens kept in a round on average, rounds without a draft included."""
        return self.has_draft * sum(self.survival[:draft_len])

    @property
    def mean_conditional(self) -> float:
        """As of `mean_conditional`, of all drafts together."""
        return mean_conditional(self.survival)


class AcceptanceTracker:
    """Counts by batch size, fading, and the estimate they give."""

    def __init__(self, max_len: int) -> None:
        self.max_len = max_len
        self._counts: dict[int, DraftCounts] = {}

    def observe(
        self, fresh: Mapping[int, DraftCounts], steps: float, half_life_steps: float
    ) -> None:
        """Take in what came in `steps` steps with drafts; what was before fades.

        It fades to twice what steps like these would have left at most: a few probes would else
        take for ever to outweigh what a large batch said long ago. Positions that were hardly
        reached since fade less: only probes, and look-ups in hindsight, see those beyond the
        table's length.
        """
        if steps > 0:
            kept = 0.5 ** (steps / half_life_steps)
            asked = self._all().asked
            new = _sum(fresh.values())
            # One a step at least: steps in which nobody was asked are no evidence.
            most = 2.0 * max(1.0, new.asked / steps) * half_life_steps / math.log(2)
            if asked * kept > most:
                kept = most / asked
            slowest = 0.5 ** (steps / (_SLOWEST * half_life_steps))
            for before in self._counts.values():
                before.asked *= kept
            for index, source in enumerate(new.by_source):
                # Entry 0 is of rounds, and of first tokens, whose share of them must stay.
                since = [source.asked, *source.reached[1:], *[0.0] * self.max_len]
                factors = [
                    max(kept, min(slowest, 0.5 ** (more / _SEEN_HALF_LIFE))) for more in since
                ]
                for before in self._counts.values():
                    before.by_source[index].scale(factors)
        for bucket, counts in fresh.items():
            self._counts.setdefault(bucket, DraftCounts()).merge(counts)

    def estimate(self, batch_size: int) -> Acceptance:
        """Of all traffic together, unless the drafts at this batch size plainly fare otherwise."""
        pooled = self._all()
        own = self._counts.get(batch_bucket(batch_size))
        if own is not None and _differ(own, pooled):
            return self._of(own)
        return self._of(pooled)

    def pooled(self) -> Acceptance:
        """Of all traffic together."""
        return self._of(self._all())

    def _all(self) -> DraftCounts:
        return _sum(self._counts.values())

    def _of(self, counts: DraftCounts) -> Acceptance:
        """A mixture: what can be looked up is not asked of a model, and they fare unlike."""
        text, model = counts.looked_up, counts.modelled
        found = sum(text.reached[:1]) / text.asked if text.asked else 0.0
        made = (sum(model.reached[:1]) + _PRIOR_ROUNDS) / (model.asked + _PRIOR_ROUNDS)
        sources = (
            Source(min(1.0, made) * (1.0 - found), tuple(self._survival(model))),
            Source(found, tuple(self._survival(text))),
        )
        has_draft = sum(source.has_draft for source in sources)
        survival = tuple(
            sum(source.has_draft * source.survival[k] for source in sources) / has_draft
            for k in range(self.max_len)
        )
        c, gamma = fit_power_law([(s, sum(survival[:s])) for s in range(1, self.max_len + 1)])
        return Acceptance(has_draft, survival, c, gamma, counts.asked, sources)

    def _survival(self, counts: PositionCounts) -> list[float]:
        survival: list[float] = []
        chance, alive = PRIOR_ACCEPTANCE, 1.0
        for position in range(self.max_len):
            reached = counts.reached[position] if position < len(counts.reached) else 0.0
            kept = counts.kept[position] if position < len(counts.kept) else 0.0
            if position and reached < _SEEN:
                break
            chance = (kept + _PRIOR_TOKENS * chance) / (reached + _PRIOR_TOKENS)
            alive *= chance
            survival.append(alive)
        lengths = range(1, len(survival) + 1)
        c, gamma = fit_power_law([(s, sum(survival[:s])) for s in lengths])
        while len(survival) < self.max_len:
            s = len(survival) + 1
            more = c * (s**gamma - (s - 1) ** gamma)
            # The law has each next token likelier kept than the last, in the end for certain: with
            # no more than luck at the last position seen, that would ask for the longest drafts.
            survival.append(max(0.0, min(more, survival[-1] * chance)))
        return survival

    def as_json(self) -> dict[str, Any]:
        return {
            "max_len": self.max_len,
            "counts": {str(bucket): asdict(counts) for bucket, counts in self._counts.items()},
        }

    @classmethod
    def from_json(cls, value: object) -> "AcceptanceTracker":
        """Raises ValueError for anything that `as_json` never made."""
        try:
            max_len = int(value["max_len"])  # type: ignore[index]
            if not 0 <= max_len <= MAX_DRAFT_LEN:
                raise ValueError(f"max_len must be from 0 to {MAX_DRAFT_LEN}, got {shown(max_len)}")
            tracker = cls(max_len)
            for bucket, counts in value["counts"].items():  # type: ignore[index]
                asked = float(counts["asked"])
                modelled, looked_up = (
                    _positions(bucket, counts[source]) for source in ("modelled", "looked_up")
                )
                if not (math.isfinite(asked) and asked >= 0):
                    raise ValueError(f"counts of batch size {bucket} must be finite, from 0 on")
                tracker._counts[int(bucket)] = DraftCounts(asked, modelled, looked_up)
        except (TypeError, KeyError, AttributeError, OverflowError) as error:
            raise ValueError(f"not a state of acceptance: {error}") from None
        return tracker


def _positions(bucket: str, value: Any) -> PositionCounts:
    found = PositionCounts(
        float(value["asked"]),
        [float(number) for number in value["reached"]],
        [float(number) for number in value["kept"]],
    )
    if not all(math.isfinite(n) and n >= 0 for n in (found.asked, *found.reached, *found.kept)):
        raise ValueError(f"counts of batch size {bucket} must be finite, from 0 on")
    reached = found.reached + [0.0] * len(found.kept)
    if any(kept > tried for kept, tried in zip(found.kept, reached, strict=False)):
        raise ValueError(f"counts of batch size {bucket} have more kept than reached")
    if sum(found.reached[:1]) > found.asked * (1 + 1e-9):
        raise ValueError(f"counts of batch size {bucket} have more drafts than were asked for")
    return found


def _sum(counts: Iterable[DraftCounts]) -> DraftCounts:
    total = DraftCounts()
    for one in counts:
        total.merge(one)
    return total


def _differ(own: DraftCounts, pooled: DraftCounts) -> bool:
    """Whether some drafts fare otherwise than the rest: two proportions, z at least 3."""
    n, m = own.drafts, pooled.drafts - own.drafts
    return _z(own.kept_first, n, pooled.kept_first - own.kept_first, m) >= _LEAST_Z or (
        _z(n, own.asked, m, pooled.asked - own.asked) >= _LEAST_Z
    )


def _z(a: float, n: float, b: float, m: float) -> float:
    if n < _LEAST_ROUNDS or m < _LEAST_ROUNDS:
        return 0.0
    both = (a + b) / (n + m)
    variance = both * (1 - both) * (1 / n + 1 / m)
    return abs(a / n - b / m) / math.sqrt(variance) if variance > 0 else 0.0
