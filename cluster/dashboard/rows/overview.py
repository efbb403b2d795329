"""How the application does, in one look."""

from typing import Final

from cluster.dashboard.panel import Look, Panel, Query, Row
from cluster.dashboard.promql import now, number_of_replicas, quantile, rate
from cluster.dashboard.rows.measures import TOKENS_PER_SECOND, acceptance
from cluster.metrics import definitions as defined

ROW: Final = Row(
    1,
    "Overview",
    (
        Panel(
            11,
            "Generated tokens",
            "What all chosen replicas generate together.",
            (Query(TOKENS_PER_SECOND),),
            Look.NUMBER,
            width=4,
            leads_to=("Generated tokens by replica",),
        ),
        Panel(
            12,
            "Running sequences",
            "In all batches at the moment.",
            (Query(now(defined.NUM_REQUESTS_RUNNING)),),
            Look.NUMBER,
            width=4,
            leads_to=("Sequences",),
        ),
        Panel(
            13,
            "Median time to first token",
            "Half of the requests wait no longer.",
            (Query(quantile(0.5, defined.TIME_TO_FIRST_TOKEN)),),
            Look.NUMBER,
            width=4,
            leads_to=("Time to first token",),
        ),
        Panel(
            14,
            "Estimated speed-up",
            "Mean over the replicas that decode: what drafting gains now, against length 0.",
            (Query(now(defined.ESTIMATED_SPEEDUP_IN_FORCE, "avg")),),
            Look.NUMBER,
            width=4,
            leads_to=("Estimated speed-up by batch size",),
        ),
        Panel(
            15,
            "Acceptance",
            "Of the draft tokens that were verified, those that were kept.",
            (Query(acceptance()),),
            Look.NUMBER,
            width=4,
            leads_to=("Acceptance by position",),
        ),
        Panel(
            16,
            "Replicas",
            "Those that export metrics.",
            (Query(number_of_replicas()),),
            Look.NUMBER,
            width=4,
            leads_to=("Generated tokens by replica",),
        ),
        Panel(
            17,
            "Requests by outcome",
            "What is not finished was refused, given up, or failed.",
            (Query(rate(defined.REQUESTS, ("outcome",)), "{{outcome}}"),),
            leads_to=("End-to-end latency",),
        ),
        Panel(
            18,
            "Tokens in and out",
            "Prompts are read at once, answers are written step by step.",
            (
                Query(rate(defined.PROMPT_TOKENS), "prompts"),
                Query(TOKENS_PER_SECOND, "generated"),
            ),
            leads_to=("Prefix cache hits",),
        ),
        Panel(
            19,
            "Sequences",
            "Whoever waits for long needs more replicas.",
            (
                Query(now(defined.NUM_REQUESTS_RUNNING), "running"),
                Query(now(defined.NUM_REQUESTS_WAITING), "waiting"),
                Query(now(defined.BATCH_SIZE), "decoding"),
            ),
            leads_to=("Queue time", "KV blocks in use by replica"),
        ),
    ),
)
