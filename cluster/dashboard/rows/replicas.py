"""Each replica beside the others."""

from typing import Final

from cluster.dashboard.panel import Panel, Query, Row
from cluster.dashboard.promql import now, rate, ratio
from cluster.dashboard.rows.measures import BY_REPLICA, acceptance
from cluster.metrics import definitions as defined

ROW: Final = Row(
    6,
    "Replicas",
    (
        Panel(
            61,
            "Generated tokens by replica",
            "One that lags behind the others is slower, or gets less to do.",
            (Query(rate(defined.GENERATION_TOKENS, BY_REPLICA), "{{replica}}"),),
        ),
        Panel(
            62,
            "Steps by replica",
            "One that has work and makes no step is stuck: it will be replaced.",
            (Query(rate(defined.STEPS, BY_REPLICA), "{{replica}}"),),
        ),
        Panel(
            63,
            "Batch size by replica",
            "Mean over time: sequences that decode in a step.",
            (
                Query(
                    ratio(
                        rate(defined.ROUNDS, BY_REPLICA),
                        rate(defined.STEPS, BY_REPLICA),
                        "sequences",
                    ),
                    "{{replica}}",
                ),
            ),
            leads_to=("Draft length in force",),
        ),
        Panel(
            64,
            "Running and waiting by replica",
            "Waiting here and not there: requests follow the beginnings that a replica knows.",
            (
                Query(now(defined.NUM_REQUESTS_RUNNING, by=BY_REPLICA), "{{replica}} running"),
                Query(now(defined.NUM_REQUESTS_WAITING, by=BY_REPLICA), "{{replica}} waiting"),
            ),
            leads_to=("KV blocks in use by replica",),
        ),
        Panel(
            65,
            "Acceptance by replica",
            "It differs with what is asked, and with the draft.",
            (Query(acceptance(BY_REPLICA), "{{replica}}"),),
            leads_to=("Acceptance by position",),
        ),
        Panel(
            66,
            "Estimated speed-up by replica",
            "At its present batch size.",
            (Query(now(defined.ESTIMATED_SPEEDUP_IN_FORCE, "max", BY_REPLICA), "{{replica}}"),),
            leads_to=("Estimated speed-up by batch size",),
        ),
    ),
)
