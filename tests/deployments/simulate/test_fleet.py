"""Fleets on the virtual clock: nothing is lost, seeds repeat, and computing steps late changes
nothing."""

from dataclasses import replace
from typing import Any

import pytest

from deployments.autoscaling.decision import Targets
from deployments.simulate.arms import ARMS
from deployments.simulate.fleet import Fleet, Scaling
from deployments.simulate.outcome import NEVER, Slo
from deployments.simulate.replica import SimulatedReplica
from deployments.simulate.run import Settings, Stopped, replicas_needed
from deployments.simulate.traffic import Arrival, gamma
from tests.deployments.simulate.fleets import ACCEPTANCE, fleet, small_profile


def told(run: Fleet) -> dict[str, Any]:
    return {
        "first": list(run.outcomes.first_s),
        "end": list(run.outcomes.end_s),
        **run.as_json(),
    }


@pytest.mark.parametrize("arm", ARMS)
def test_every_request_is_answered_once_and_whole(arm: str) -> None:
    run = fleet(arm)
    run.run()
    outcomes = run.outcomes
    assert outcomes.num_ended == outcomes.num_first == len(outcomes.arrivals)
    assert outcomes.num_open == outcomes.num_refused == 0
    asked = sum(arrival.new_tokens for arrival in outcomes.arrivals)
    totals = run.totals
    assert totals.emitted_tokens == asked
    assert totals.accepted_tokens + totals.rounds == asked
    for arrival, first_s, end_s in zip(
        outcomes.arrivals, outcomes.first_s, outcomes.end_s, strict=True
    ):
        assert arrival.at_s < first_s <= end_s


def test_requests_beyond_the_queue_are_refused_and_counted() -> None:
    arrivals = [Arrival(1.0, 20, 4)] * 1200
    run = fleet("off", replicas=1, arrivals=arrivals)
    run.run()
    outcomes = run.outcomes
    assert outcomes.num_refused > 0
    assert outcomes.num_ended + outcomes.num_refused == 1200
    assert run.totals.emitted_tokens == 4 * outcomes.num_ended


def test_a_seed_repeats_a_run_and_another_does_not() -> None:
    runs = [fleet("adaptive", seed=seed) for seed in (1, 1, 2)]
    for run in runs:
        run.run()
    first, again, other = map(told, runs)
    assert first == again
    assert first["end"] != other["end"]


class EachStep(Fleet):
    """Looks at every replica at the end of every step."""

    def _look_again(self, replica: SimulatedReplica) -> None:
        engine = replica._engine
        least = engine.least_seconds_to_end
        engine.least_seconds_to_end = lambda: 0.0  # type: ignore[method-assign]
        super()._look_again(replica)
        engine.least_seconds_to_end = least  # type: ignore[method-assign]


@pytest.mark.parametrize("scaled", [False, True], ids=["fixed size", "scaled"])
@pytest.mark.parametrize("arm", ARMS)
def test_steps_computed_late_come_to_the_same(arm: str, scaled: bool) -> None:
    options: dict[str, Any] = {}
    if scaled:
        targets = Targets(max_replicas=6, target_tpot_ms=20.0, start_s=2.0, downscale_delay_s=5.0)
        options = {"replicas": 1, "scaling": Scaling(targets, start_s=2.0)}
    runs = [fleet(arm, kind=kind, count=120, **options) for kind in (Fleet, EachStep)]
    for run in runs:
        run.run()
    assert told(runs[0]) == told(runs[1])


def test_replicas_come_with_the_load_and_go_with_it() -> None:
    targets = Targets(
        max_replicas=6, target_tpot_ms=12.0, start_s=2.0, downscale_delay_s=5.0, upscale_delay_s=1.0
    )
    busy = gamma(0.01, 1.0, 1500, 100, 100, 0)
    quiet = gamma(0.5, 1.0, 80, 100, 20, 1)
    arrivals = busy + [one._replace(at_s=one.at_s + busy[-1].at_s) for one in quiet]
    run = fleet("off", replicas=1, arrivals=arrivals, scaling=Scaling(targets, 2.0))
    run.run()
    sizes = [size for _, size in run.sizes]
    assert max(sizes) > 1
    assert sizes[-1] < max(sizes)
    assert run.outcomes.num_ended == len(arrivals)
    assert small_profile().max_num_seqs == 8


def test_what_was_simulated_until_a_stop_is_kept() -> None:
    run = fleet("off")

    def stop(share: float) -> None:
        if share >= 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.run(stop)
    assert run.outcomes.num_arrived == 30
    assert 0 < run.outcomes.num_ended <= 30


def test_a_stop_is_heard_after_the_last_arrival_and_everything_until_then_is_counted() -> None:
    lengths = [20 + number % 37 for number in range(400)]
    run = fleet("off", replicas=2, arrivals=[Arrival(1.0, 20, length) for length in lengths])

    def stop(share: float) -> None:
        if run.outcomes.num_ended:  # nothing ends before the last has come
            assert share == 1.0
            raise Stopped

    with pytest.raises(Stopped):
        run.run(stop)
    outcomes = run.outcomes
    assert outcomes.num_arrived == 400
    assert 0 < outcomes.num_open < 400
    # All tokens of those that have ended, and those so far of those that have begun.
    of_ended = sum(lengths[n] for n in range(400) if outcomes.end_s[n] != NEVER)
    of_begun = sum(lengths[n] for n in range(400) if outcomes.first_s[n] != NEVER)
    num_under_way = outcomes.num_first - outcomes.num_ended
    assert of_ended + num_under_way <= run.totals.emitted_tokens < of_begun
    figures = run.as_json()
    assert figures["replicas"]["mean"] == pytest.approx(2.0)
    assert figures["steps"] == run.totals.steps > 56


def test_a_replica_that_starts_as_a_run_ends_takes_no_time() -> None:
    targets = Targets(max_replicas=6, target_tpot_ms=12.0, start_s=1e6, upscale_delay_s=1.0)
    busy = gamma(0.01, 1.0, 600, 100, 100, 0)
    run = fleet("off", replicas=1, arrivals=busy, scaling=Scaling(targets, 1e6))
    run.run()
    assert max(size for _, size in run.sizes) > 1
    assert run.as_json()["replicas"]["mean"] == pytest.approx(1.0)


def test_the_fewest_replicas_are_looked_for_without_scaling() -> None:
    arrivals = [Arrival(1.0 + 0.02 * n, 100, 50) for n in range(400)]
    settings = Settings(small_profile(), arrivals, ACCEPTANCE, 1, Slo(0.5, 0.02, 0.95))
    needed = replicas_needed(settings, "off", lambda what, share: None, 20)
    assert needed is not None
    assert needed > 1
    targets = Targets(max_replicas=1, target_tpot_ms=20.0)
    scaled = replace(settings, scaling=Scaling(targets, 1.0))
    assert replicas_needed(scaled, "off", lambda what, share: None, 20) == needed


def test_the_actor_hears_of_every_table_and_replica() -> None:
    run = fleet("adaptive", count=400)
    run.run()
    actor = run.actor
    assert actor.reports > 3
    assert actor.tables == len(run.history) - 2  # but the configuration's and the first
    assert actor.answers == 3 * actor.tables
