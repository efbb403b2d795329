"""A run of a real engine against its own simulation, on recorded times
(`python -m benchmarks.validate_simulation`; of its JSON the run without drafts)."""

import json
from pathlib import Path
from typing import Any

import pytest

from deployments.simulate.validation import MOST_MEAN, MOST_P95, compare

RECORD: dict[str, Any] = json.loads(Path(__file__).with_name("recorded_run.json").read_text())


@pytest.mark.parametrize("run", RECORD["runs"], ids=lambda run: f"length {run['draft_len']}")
def test_simulated_latencies_are_those_that_were_measured(run: dict[str, Any]) -> None:
    told = compare(RECORD, run)
    assert told.mean == pytest.approx(1.0, abs=MOST_MEAN)
    assert told.p95 == pytest.approx(1.0, abs=MOST_P95)


def test_a_machine_half_as_fast_would_be_told_from_this_one() -> None:
    slower = {
        **RECORD,
        "calibration": {
            "cells": [
                {**cell, "target_seconds": 2 * cell["target_seconds"]}
                for cell in RECORD["calibration"]["cells"]
            ]
        },
    }
    assert compare(slower, RECORD["runs"][0]).mean > 1 + 3 * MOST_MEAN
