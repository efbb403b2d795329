"""What Prometheus works out of the metrics, and when it calls for help.

Made from the definitions. Recorded names follow Prometheus' own custom: what is left of the labels,
the metric, and what was done with it.
"""

from dataclasses import dataclass
from typing import Any, Final

from cluster.metrics import definitions as defined
from cluster.metrics.definitions import Outcome
from cluster.metrics.metric import REPLICA_LABELS, Metric

SHORT: Final = "1m"
"""Of rates: a dozen scrapes."""
LONG: Final = "6h"
"""What is usual."""
QUANTILES: Final = (0.5, 0.95, 0.99)

JOB: Final = "paceline"
"""What the scrape configuration calls us."""
KV_NEARLY_FULL: Final = 0.95
COLLAPSED: Final = 0.5
"""Of the usual acceptance."""
STALE_S: Final = 120
"""A long poll is answered within a quarter of it, whether there is news or not."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A series that Prometheus keeps beside those it scrapes."""

    name: str
    expr: str
    help: str

    def as_yaml(self) -> dict[str, Any]:
        return {"record": self.name, "expr": self.expr}


@dataclass(frozen=True, slots=True)
class Alert:
    name: str
    expr: str
    lasting: str
    """How long it must hold."""
    severity: str
    summary: str
    description: str

    def as_yaml(self) -> dict[str, Any]:
        return {
            "alert": self.name,
            "expr": self.expr,
            "for": self.lasting,
            "labels": {"severity": self.severity},
            "annotations": {"summary": self.summary, "description": self.description},
        }


def rate(metric: Metric, window: str = SHORT, *labels: str) -> str:
    """By replica, and by more labels: how fast a counter rises each second."""
    return f"sum by ({', '.join((*REPLICA_LABELS, *labels))}) (rate({metric.series}[{window}]))"


def share(part: Metric, whole: Metric, window: str = SHORT) -> str:
    """By replica; 0 where the part never happened, and nothing where the whole did not."""
    whole_rate = rate(whole, window)
    return f"({rate(part, window)} or 0 * {whole_rate}) / ({whole_rate} > 0)"


def quantile(q: float, metric: Metric, window: str = "5m") -> str:
    """By application."""
    return (
        f"histogram_quantile({q:g}, "
        f"sum by (application, le) (rate({metric.series}_bucket[{window}])))"
    )


_TIMED: Final = (
    (defined.TIME_TO_FIRST_TOKEN, "time to the first token"),
    (defined.TIME_PER_OUTPUT_TOKEN, "time per token"),
    (defined.END_TO_END, "time of a whole request"),
    (defined.QUEUE_TIME, "time in the queue"),
)
_STEP_SECONDS: Final = " + ".join(
    rate(metric, "5m")
    for metric in (defined.DRAFT_SECONDS, defined.TARGET_SECONDS, defined.VERIFY_SECONDS)
)

ACCEPTANCE: Final = Recording(
    "replica:paceline_acceptance:ratio_rate5m",
    share(defined.NUM_ACCEPTED_TOKENS, defined.NUM_DRAFT_TOKENS, "5m"),
    "Share of the draft tokens that were accepted.",
)
USUAL_ACCEPTANCE: Final = Recording(
    "replica:paceline_acceptance:ratio_rate6h",
    share(defined.NUM_ACCEPTED_TOKENS, defined.NUM_DRAFT_TOKENS, LONG),
    "The same over six hours.",
)
ACCEPTANCE_PER_POS: Final = Recording(
    "replica_position:paceline_acceptance:ratio_rate5m",
    f"{rate(defined.NUM_ACCEPTED_TOKENS_PER_POS, '5m', 'position')} / "
    f"({rate(defined.NUM_DRAFT_TOKENS_PER_POS, '5m', 'position')} > 0)",
    "Share of the draft tokens at a position that were accepted.",
)
MEAN_BATCH_SIZE: Final = Recording(
    "replica:paceline_batch_size:mean_rate1m",
    f"{rate(defined.ROUNDS)} / ({rate(defined.STEPS)} > 0)",
    "Sequences that got a token in a step, on average.",
)
STEPS_AT_0: Final = Recording(
    "replica:paceline_steps_without_draft:ratio_rate1m",
    share(defined.STEPS_WITHOUT_DRAFT, defined.STEPS),
    "Share of the steps at length 0.",
)
TOKENS_PER_ROUND: Final = Recording(
    "replica:paceline_tokens_per_round:mean_rate1m",
    f"{rate(defined.GENERATION_TOKENS)} / ({rate(defined.ROUNDS)} > 0)",
    "Tokens that a sequence got in a step, on average.",
)
PROBE_SHARE: Final = Recording(
    "replica:paceline_probe_seconds:ratio_rate5m",
    f"({rate(defined.PROBE_SECONDS, '5m')} or 0 * {rate(defined.STEPS, '5m')}) / "
    f"(({_STEP_SECONDS}) > 0)",
    "Share of the engine's time that probes took beyond other steps.",
)
KV_USE: Final = Recording(
    "replica:paceline_kv_blocks_used:ratio",
    f"sum by ({', '.join(REPLICA_LABELS)}) ({defined.KV_BLOCKS_USED.series}) / "
    f"sum by ({', '.join(REPLICA_LABELS)}) ({defined.KV_BLOCKS.series})",
    "Share of the KV blocks that running sequences hold.",
)
PREFIX_HITS: Final = Recording(
    "replica:paceline_prefix_cache_hits:ratio_rate5m",
    share(defined.PREFIX_CACHE_HITS, defined.PREFIX_CACHE_QUERIES, "5m"),
    "Share of the prompt tokens that the prefix cache had.",
)
TOKENS_PER_SECOND: Final = Recording(
    "application:paceline_generation_tokens:rate1m",
    f"sum by (application) (rate({defined.GENERATION_TOKENS.series}[{SHORT}]))",
    "Tokens a second of all replicas.",
)

RECORDINGS: Final = (
    TOKENS_PER_SECOND,
    MEAN_BATCH_SIZE,
    TOKENS_PER_ROUND,
    STEPS_AT_0,
    ACCEPTANCE,
    USUAL_ACCEPTANCE,
    ACCEPTANCE_PER_POS,
    PROBE_SHARE,
    KV_USE,
    PREFIX_HITS,
    *(
        Recording(
            f"application:{metric.name}:p{100 * q:g}_rate5m",
            quantile(q, metric),
            f"{what[0].upper()}{what[1:]}: {q:.0%} took no longer.",
        )
        for metric, what in _TIMED
        for q in QUANTILES
    ),
)

_LOAD: Final = (
    f"(sum by ({', '.join(REPLICA_LABELS)}) ({defined.NUM_REQUESTS_RUNNING.series}) + "
    f"sum by ({', '.join(REPLICA_LABELS)}) ({defined.NUM_REQUESTS_WAITING.series}))"
)
ALERTS: Final = (
    Alert(
        "PacelineReplicaNotStepping",
        f"{_LOAD} > 0 unless {rate(defined.STEPS)} > 0",
        "1m",
        "critical",
        "Replica {{ $labels.replica }} has {{ $value }} requests and makes no steps",
        "Its health check should fail and Serve replace it; look at its log if it does not.",
    ),
    Alert(
        "PacelineAcceptanceCollapsed",
        f"{ACCEPTANCE.name} < {COLLAPSED:g} * {USUAL_ACCEPTANCE.name}",
        "5m",
        "warning",
        "Replica {{ $labels.replica }} accepts {{ $value | humanizePercentage }} of the draft "
        "tokens, less than half of what is usual",
        "Other traffic, or a draft model that does not fit. The policy shortens drafts by itself.",
    ),
    Alert(
        "PacelineTableStale",
        f"{defined.POLICY_SILENCE.series} > {STALE_S}",
        "1m",
        "warning",
        "Replica {{ $labels.replica }} has not heard of the policy actor for {{ $value }} s",
        "It keeps its table. Serve starts a new actor; see `serve status`.",
    ),
    Alert(
        "PacelineQueueFull",
        f"sum by ({', '.join(REPLICA_LABELS)}) "
        f'(increase({defined.REQUESTS.series}{{outcome="{Outcome.FULL}"}}[{SHORT}])) > 0',
        "1m",
        "warning",
        "Replica {{ $labels.replica }} refuses requests: its queue is full",
        "More replicas, or a longer queue (engine.max_num_waiting).",
    ),
    Alert(
        "PacelineKVNearlyFull",
        f"{KV_USE.name} > {KV_NEARLY_FULL:g}",
        "5m",
        "warning",
        "Replica {{ $labels.replica }} has {{ $value | humanizePercentage }} of its KV blocks in "
        "use",
        "Sequences are preempted and computed again when they run out (engine.kv_cache_mb).",
    ),
    Alert(
        "PacelineMetricsGone",
        f'up{{job="{JOB}"}} == 0',
        "1m",
        "critical",
        "{{ $labels.instance }} exports no metrics",
        "The machine, or Ray on it, does not answer. One that Ray itself has given up is no longer "
        "asked: see `ray status`.",
    ),
)


def rule_file() -> dict[str, Any]:
    """As Prometheus reads it, in YAML."""
    return {
        "groups": [
            {"name": "paceline-recorded", "rules": [rule.as_yaml() for rule in RECORDINGS]},
            {"name": "paceline-alerts", "rules": [alert.as_yaml() for alert in ALERTS]},
        ]
    }
