"""Which draft lengths are in force, and what they gain."""

from typing import Final

from cluster.dashboard.panel import Panel, Query, Row
from cluster.dashboard.promql import now
from cluster.dashboard.rows.measures import BY_REPLICA
from cluster.metrics import definitions as defined

ROW: Final = Row(
    4,
    "Policy",
    (
        Panel(
            41,
            "Draft length by batch size",
            "The table in force: the longest of all chosen replicas.",
            (Query(now(defined.DRAFT_LENGTH, "max", ("batch_size",)), "batch {{batch_size}}"),),
            leads_to=("Estimated speed-up by batch size",),
        ),
        Panel(
            42,
            "Estimated speed-up by batch size",
            "Mean over replicas. 1 where the table has length 0.",
            (
                Query(
                    now(defined.ESTIMATED_SPEEDUP, "avg", ("batch_size",)),
                    "batch {{batch_size}}",
                ),
            ),
            leads_to=("Draft length by batch size",),
        ),
        Panel(
            43,
            "Draft length in force",
            "At the present batch sizes.",
            (Query(now(defined.DRAFT_LENGTH_IN_FORCE, "max", BY_REPLICA), "{{replica}}"),),
            leads_to=("Batch size by replica",),
        ),
        Panel(
            44,
            "Version of the table",
            "All replicas of one kind have the same, but for the moment of a change.",
            (Query(now(defined.TABLE_VERSION, "max", BY_REPLICA), "{{replica}}"),),
            leads_to=("Draft length by batch size",),
        ),
        Panel(
            45,
            "Silence of the policy actor",
            "A replica that does not hear of it keeps its table. It should stay below a minute.",
            (Query(now(defined.POLICY_SILENCE, "max", BY_REPLICA), "{{replica}}"),),
            leads_to=("Version of the table",),
        ),
        Panel(
            46,
            "Age of table and calibration",
            "The oldest of all chosen replicas. Old is not wrong: a change needs a reason.",
            (
                Query(now(defined.TABLE_AGE, "max"), "table"),
                Query(now(defined.CALIBRATION_AGE, "max"), "calibration"),
            ),
            leads_to=("Version of the table",),
        ),
    ),
)
