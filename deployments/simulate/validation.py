"""A recorded run of a real engine against its own simulation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deployments.simulate.costs import measured_profile
from deployments.simulate.fleet import Fleet
from deployments.simulate.outcome import figures
from deployments.simulate.traffic import Arrival
from policy.choice import parse_choice
from policy.cost import Calibration

MOST_MEAN, MOST_P95 = 0.10, 0.20
"""By which a simulation may be off."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Of latencies from arrival to end, simulated over measured."""

    measured_mean_s: float
    mean: float
    p95: float
    ttft_mean: float


def compare(record: Mapping[str, Any], run: Mapping[str, Any]) -> Comparison:
    """A `run` of a record that `benchmarks/validate_simulation.py` has made."""
    arrivals = [Arrival(*one) for one in run["arrivals"]]
    profile = measured_profile(
        "recorded",
        Calibration.from_json(record["calibration"]),
        max_num_seqs=record["max_num_seqs"],
        max_draft_len=record["max_draft_len"],
        num_blocks=record["num_blocks"],
        prompts={int(tokens): seconds for tokens, seconds in record.get("prompts", {}).items()},
    )
    length = run["draft_len"]
    policy = parse_choice({"fixed": length} if length else "off")
    seen = run["acceptance"]
    fleet = Fleet(profile, policy, 1, arrivals, lambda request_id: (seen[int(request_id)],))
    fleet.run()
    measured = figures([e - a.at_s for a, e in zip(arrivals, run["end_s"], strict=True)])
    first = figures([f - a.at_s for a, f in zip(arrivals, run["first_s"], strict=True)])
    simulated = figures(fleet.outcomes.latencies())
    outcomes = fleet.outcomes
    ttft = figures([f - a.at_s for a, f in zip(arrivals, outcomes.first_s, strict=True)])
    assert measured is not None
    assert first is not None
    assert simulated is not None
    assert ttft is not None
    return Comparison(
        measured["mean"],
        simulated["mean"] / measured["mean"],
        simulated["p95"] / measured["p95"],
        ttft["mean"] / first["mean"],
    )
