"""The policies that are compared, and the acceptance of drafts that they meet."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from deployments.simulate.costs import Profile
from engine.errors import ConfigError
from policy.acceptance import Acceptance
from policy.choice import PolicyChoice, parse_choice
from policy.cost import CostModel
from policy.optimize import decide, rungs_of
from policy.paper import fit_power_law
from policy.table import MAX_DRAFT_LEN

ARMS = ("off", "fixed-2", "fixed-4", "table", "adaptive")


@dataclass(frozen=True, slots=True)
class DraftAcceptance:
    """How likely draft tokens are right. `by_position`: of those whose forerunners were; the last
    holds for all further ones. `spread`: standard deviation of requests from it."""

    by_position: tuple[float, ...]
    spread: float = 0.0
    seed: int = 0

    def of(self, request_id: str) -> tuple[float, ...]:
        """A request's own, for all its drafts."""
        if not self.spread:
            return self.by_position
        away = Random(f"acceptance {self.seed} {request_id}").gauss(0.0, self.spread)
        return tuple(min(0.99, max(0.01, chance + away)) for chance in self.by_position)

    def chance(self, position: int) -> float:
        return self.by_position[min(position, len(self.by_position) - 1)]

    def known(self, max_len: int) -> Acceptance:
        """As it would have been profiled offline, for the paper's table."""
        survival, kept = [], 1.0
        for position in range(max_len):
            kept *= self.chance(position)
            survival.append(kept)
        pairs = [(length, sum(survival[:length])) for length in range(1, max_len + 1)]
        return Acceptance(1.0, tuple(survival), *fit_power_law(pairs))


def parse_acceptance(text: str, spread: float, seed: int) -> DraftAcceptance:
    """Numbers with commas between. Raises ConfigError."""
    try:
        chances = tuple(float(part) for part in text.split(","))
    except ValueError:
        chances = ()
    if not 1 <= len(chances) <= MAX_DRAFT_LEN or not all(0 <= c <= 1 for c in chances):
        raise ConfigError(
            f"--acceptance must be 1 to {MAX_DRAFT_LEN} numbers from 0 to 1 with commas between, "
            f"got {text!r}"
        )
    return DraftAcceptance(chances, spread, seed)


def parse_arms(text: str) -> tuple[str, ...]:
    """Raises ConfigError."""
    arms = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    unknown = [arm for arm in arms if arm not in ARMS]
    if unknown:
        raise ConfigError(f"--arms must be of {', '.join(ARMS)}, got {unknown[0]!r}")
    return arms


def choices(profile: Profile, acceptance: DraftAcceptance) -> Mapping[str, PolicyChoice]:
    """What each arm asks the policy for. `table` is the paper's: the best length for each batch
    size, found offline with cost and mean acceptance known, and kept."""
    decision = decide(
        CostModel(profile.calibration),
        lambda _: acceptance.known(profile.max_draft_len),
        max_batch=profile.max_num_seqs,
        max_len=profile.max_draft_len,
        context=float(statistics.median_low(profile.calibration.contexts)),
        previous=None,
        min_gain=0.0,
    )
    rungs = rungs_of(decision)
    return {
        "off": parse_choice("off"),
        "fixed-2": parse_choice({"fixed": min(2, profile.max_draft_len)}),
        "fixed-4": parse_choice({"fixed": min(4, profile.max_draft_len)}),
        "table": PolicyChoice("table", rungs),
        "adaptive": parse_choice("adaptive"),
    }
