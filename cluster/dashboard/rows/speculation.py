"""What is drafted, and what is kept of it."""

from typing import Final

from cluster.dashboard.panel import Panel, Query, Row
from cluster.dashboard.promql import or_zero, rate, ratio
from cluster.dashboard.rows.measures import STEP_SECONDS, TOKENS_PER_SECOND, acceptance_by_position
from cluster.metrics import definitions as defined

ROW: Final = Row(
    3,
    "Speculation",
    (
        Panel(
            31,
            "Acceptance by position",
            "How many draft tokens at each place are kept. Long drafts pay while this stays high.",
            (Query(acceptance_by_position(), "{{position}}"),),
            leads_to=("Draft length by batch size",),
        ),
        Panel(
            32,
            "Draft tokens",
            "Between the two lines is work in vain.",
            (
                Query(rate(defined.NUM_DRAFT_TOKENS), "verified"),
                Query(or_zero(rate(defined.NUM_ACCEPTED_TOKENS)), "accepted"),
            ),
        ),
        Panel(
            33,
            "Tokens per round",
            "What a sequence gets of one pass of the target: 1 without drafts.",
            (Query(ratio(TOKENS_PER_SECOND, rate(defined.ROUNDS), "tokens")),),
        ),
        Panel(
            34,
            "Length of drafts",
            "Tokens of a draft, as verified: what the table says, cut by what a request may still "
            "get, by its own budget, and by what the drafter finds.",
            (Query(ratio(rate(defined.NUM_DRAFT_TOKENS), rate(defined.NUM_DRAFTS), "tokens")),),
            leads_to=("Draft length in force",),
        ),
        Panel(
            35,
            "Steps without drafts",
            "At length 0 speculation costs nothing, and gains nothing.",
            (Query(ratio(or_zero(rate(defined.STEPS_WITHOUT_DRAFT)), rate(defined.STEPS))),),
            leads_to=("Draft length in force",),
        ),
        Panel(
            36,
            "Share of drafting",
            "Of the time of steps: what drafting takes, and what probes take beyond other steps. "
            "Probes are held to a hundredth.",
            (
                Query(ratio(or_zero(rate(defined.DRAFT_SECONDS)), STEP_SECONDS), "draft"),
                Query(ratio(or_zero(rate(defined.PROBE_SECONDS)), STEP_SECONDS), "probes"),
            ),
            leads_to=("Time of a step",),
        ),
        Panel(
            37,
            "Probes",
            "How often a longer draft than the table's is tried.",
            (Query(or_zero(rate(defined.PROBES))),),
            leads_to=("Share of drafting",),
        ),
    ),
)
