"""Runs of a fleet, one for each policy on the same arrivals, and what they come to."""

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from deployments.simulate.arms import DraftAcceptance, choices
from deployments.simulate.costs import Profile
from deployments.simulate.fleet import Fleet, Scaling
from deployments.simulate.outcome import Slo
from deployments.simulate.search import fewest
from deployments.simulate.traffic import Arrival

Report = Callable[[str, float], None]
"""Told what is simulated, and what share of it is done."""


class Stopped(Exception):
    """A person asked for an end; what was simulated is in the run's results."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What all arms have in common."""

    profile: Profile
    arrivals: Sequence[Arrival]
    acceptance: DraftAcceptance
    replicas: int
    slo: Slo
    seed: int = 0
    scaling: Scaling | None = None

    def fleet(self, arm: str, replicas: int) -> Fleet:
        return Fleet(
            self.profile,
            choices(self.profile, self.acceptance)[arm],
            replicas,
            self.arrivals,
            self.acceptance.of,
            seed=self.seed,
            scaling=self.scaling,
        )


def simulate(settings: Settings, arm: str, report: Report, into: dict[str, Any]) -> Fleet:
    """One run: its figures are put into `into`, if it is stopped as well. Raises what `report`
    raises."""
    fleet = settings.fleet(arm, settings.replicas)
    # Nothing here is in a cycle, and looking for some among millions of objects takes long.
    gc.collect()
    gc.freeze()
    started = time.process_time()
    try:
        fleet.run(lambda share: report(arm, share))
    finally:
        gc.unfreeze()
        seconds = max(1e-9, time.process_time() - started)
        outcomes = fleet.outcomes
        into.update(outcomes.as_json(settings.slo))
        into.update(fleet.as_json())
        into["cpu_s"] = seconds
        into["simulated_per_cpu_s"] = outcomes.num_ended / seconds
    return fleet


def replicas_needed(settings: Settings, arm: str, report: Report, most: int) -> int | None:
    """The fewest with which the objective holds, of fleets that stay as large as they are; None
    where `most` are not enough."""
    steady = replace(settings, scaling=None)

    def holds(replicas: int) -> bool:
        fleet = steady.fleet(arm, replicas)
        fleet.run(lambda share: report(f"{arm} with {replicas}", share))
        return fleet.outcomes.attainment(settings.slo) >= settings.slo.share

    return fewest(holds, settings.replicas, most)
