"""Small fleets for the tests of the simulation."""

from typing import Any

from deployments.simulate.arms import DraftAcceptance, choices
from deployments.simulate.costs import Profile, profile_of
from deployments.simulate.fleet import Fleet
from deployments.simulate.traffic import Arrival, gamma

ACCEPTANCE = DraftAcceptance((0.8, 0.6), spread=0.1)


def small_profile() -> Profile:
    return profile_of("a100-7b", max_num_seqs=8)


def fleet(
    arm: str,
    *,
    replicas: int = 3,
    count: int = 60,
    seed: int = 0,
    arrivals: list[Arrival] | None = None,
    kind: type[Fleet] = Fleet,
    **options: Any,
) -> Fleet:
    profile = small_profile()
    policy = choices(profile, ACCEPTANCE)[arm]
    asked = gamma(0.04, 2.0, count, 200, 40, seed) if arrivals is None else arrivals
    return kind(profile, policy, replicas, asked, ACCEPTANCE.of, seed=seed, **options)
