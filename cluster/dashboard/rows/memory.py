"""KV blocks, and what a lack of them does."""

from typing import Final

from cluster.dashboard.panel import Panel, Query, Row
from cluster.dashboard.promql import now, or_zero, rate, ratio
from cluster.dashboard.rows.measures import BY_REPLICA, kv_used
from cluster.metrics import definitions as defined

ROW: Final = Row(
    5,
    "Memory",
    (
        Panel(
            51,
            "KV blocks",
            "What is neither used nor cached is free and empty.",
            (
                Query(now(defined.KV_BLOCKS_USED), "used"),
                Query(now(defined.KV_BLOCKS_CACHED), "cached"),
                Query(now(defined.KV_BLOCKS), "all"),
            ),
            leads_to=("KV blocks in use by replica",),
        ),
        Panel(
            52,
            "KV blocks in use by replica",
            "Near 1 sequences wait, or are preempted.",
            (Query(kv_used(BY_REPLICA), "{{replica}}"),),
            leads_to=("Preemptions", "Waiting tokens"),
        ),
        Panel(
            53,
            "Prefix cache hits",
            "Of the prompt tokens that were looked up, those that needed no computing.",
            (
                Query(
                    ratio(
                        or_zero(rate(defined.PREFIX_CACHE_HITS)),
                        rate(defined.PREFIX_CACHE_QUERIES),
                    )
                ),
            ),
            leads_to=("Time to first token",),
        ),
        Panel(
            54,
            "Preemptions",
            "Each is a prompt, and an answer so far, computed again.",
            (Query(or_zero(rate(defined.NUM_PREEMPTIONS))),),
            leads_to=("KV blocks in use by replica",),
        ),
        Panel(
            55,
            "Waiting tokens",
            "What autoscaling and the bound on the queue look at.",
            (Query(now(defined.WAITING_TOKENS)),),
            leads_to=("Queue time",),
        ),
    ),
)
