"""How long requests take, and where their time goes."""

from typing import Final

from cluster.dashboard.panel import Look, Panel, Query, Row
from cluster.dashboard.promql import buckets
from cluster.dashboard.rows.measures import per_step, quantiles
from cluster.metrics import definitions as defined

ROW: Final = Row(
    2,
    "Latency",
    (
        Panel(
            21,
            "Time to first token",
            "Queue and prompt.",
            quantiles(defined.TIME_TO_FIRST_TOKEN),
            leads_to=("Queue time",),
        ),
        Panel(
            22,
            "Time per output token",
            "How fast a reader sees text grow: the time of a step over the tokens it gives.",
            quantiles(defined.TIME_PER_OUTPUT_TOKEN),
            leads_to=("Time of a step", "Tokens per round"),
        ),
        Panel(23, "End-to-end latency", "Whole answers.", quantiles(defined.END_TO_END)),
        Panel(
            24,
            "Queue time",
            "Part of the time to first token.",
            quantiles(defined.QUEUE_TIME),
            leads_to=("Sequences",),
        ),
        Panel(
            25,
            "Time per output token, spread",
            "Two bands are two kinds of traffic, or two of replicas.",
            (Query(buckets(defined.TIME_PER_OUTPUT_TOKEN), "{{le}}"),),
            Look.HEATMAP,
        ),
        Panel(
            26,
            "Time of a step",
            "Where the time goes. What is missing to the time per token is spent between steps.",
            (
                Query(per_step(defined.TARGET_SECONDS, "seconds"), "target"),
                Query(per_step(defined.DRAFT_SECONDS, "seconds"), "draft"),
                Query(per_step(defined.VERIFY_SECONDS, "seconds"), "verify"),
            ),
            leads_to=("Share of drafting",),
        ),
    ),
)
