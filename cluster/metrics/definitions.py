"""Every metric of Paceline, once: name, kind, unit, help, labels, buckets. Imports no Ray.

Export (`exporter.py`), rules (`rules.py`), the docs' table and dashboards are made from these.

Names are given here as `ray.serve.metrics` takes them; `Metric.series` is what Prometheus has. Ray
adds `ray_` before every name and `_total` behind a counter's, and to each series the labels
`application`, `deployment` and `replica`. What vLLM has too is called as it is there
(`vllm:num_requests_running`, `vllm:spec_decode_num_drafts`, ...), with `paceline_` for `vllm:`, so
that its queries need no more than another prefix.

A histogram's `_sum` is no sum: Ray's agent gets the counts of buckets, and makes it of their
middles. Ask for quantiles. Ray exports a counter from its first increment on, and drops a gauge
that is no longer set: series of things that never happened, and gauges of replicas that are gone,
are missing.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

RAY_PREFIX: Final = "ray_"

REPLICA_LABELS: Final = ("application", "deployment", "replica")
"""Ray Serve's own, on every series."""


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Group(StrEnum):
    """What a metric is about; the order of docs and dashboards."""

    REQUESTS = "Requests"
    LOAD = "Load"
    MEMORY = "Memory"
    STEPS = "Steps"
    SPECULATION = "Speculation"
    POLICY = "Policy"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. Raises ValueError where buckets and kind don't go together."""

    name: str
    kind: Kind
    group: Group
    unit: str
    help: str
    labels: tuple[str, ...] = ()
    """Beside `REPLICA_LABELS`."""
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram's, in `unit`, strictly rising; the last, +Inf, is understood."""

    def __post_init__(self) -> None:
        if (self.kind is Kind.HISTOGRAM) != bool(self.buckets):
            raise ValueError(f"{self.name}: a histogram, and nothing else, has buckets")

    @property
    def series(self) -> str:
        """Its name in Prometheus; of a histogram, what `_bucket` and `_count` are added to."""
        return f"{RAY_PREFIX}{self.name}{'_total' if self.kind is Kind.COUNTER else ''}"


class Outcome(StrEnum):
    """How a request ended: the label `outcome`."""

    FINISHED = "finished"
    """Whole: a stop, a finished grammar, or its length."""
    INVALID = "invalid"
    """Refused for what it asks."""
    FULL = "full"
    """Refused because the engine, or its tenant's part of the queue, was full."""
    DEADLINE = "deadline"
    """Its time was up."""
    GONE = "gone"
    """The client went away, or gave it up."""
    FAILED = "failed"
    """The engine failed, or failed at it."""


_LATENCY_S: Final = (
    *(0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75),
    *(1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0),
)
_TOKEN_S: Final = (
    *(0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08),
    *(0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0),
)
_QUEUE_S: Final = (0.001, 0.002, *_LATENCY_S)

# ---- requests: counted where they end

REQUESTS: Final = Metric(
    "paceline_requests",
    Kind.COUNTER,
    Group.REQUESTS,
    "requests",
    "Requests that ended, by how: " + ", ".join(Outcome) + ".",
    labels=("outcome",),
)
TIME_TO_FIRST_TOKEN: Final = Metric(
    "paceline_time_to_first_token_seconds",
    Kind.HISTOGRAM,
    Group.REQUESTS,
    "seconds",
    "From a request's arrival to its first token.",
    buckets=_LATENCY_S,
)
TIME_PER_OUTPUT_TOKEN: Final = Metric(
    "paceline_request_time_per_output_token_seconds",
    Kind.HISTOGRAM,
    Group.REQUESTS,
    "seconds",
    "Of an answer of several tokens that was finished, mean time from one to the next.",
    buckets=_TOKEN_S,
)
END_TO_END: Final = Metric(
    "paceline_e2e_request_latency_seconds",
    Kind.HISTOGRAM,
    Group.REQUESTS,
    "seconds",
    "From a request's arrival to its end, of those that were finished.",
    buckets=_LATENCY_S,
)
QUEUE_TIME: Final = Metric(
    "paceline_request_queue_time_seconds",
    Kind.HISTOGRAM,
    Group.REQUESTS,
    "seconds",
    "From a request's entry into the engine to the step that began with it.",
    buckets=_QUEUE_S,
)
PROMPT_TOKENS: Final = Metric(
    "paceline_prompt_tokens",
    Kind.COUNTER,
    Group.REQUESTS,
    "tokens",
    "Tokens of the prompts that were begun, found in the prefix cache or not; once for each choice "
    "of a request.",
)
GENERATION_TOKENS: Final = Metric(
    "paceline_generation_tokens",
    Kind.COUNTER,
    Group.REQUESTS,
    "tokens",
    "Tokens that the engine generated.",
)

# ---- load

NUM_REQUESTS_RUNNING: Final = Metric(
    "paceline_num_requests_running",
    Kind.GAUGE,
    Group.LOAD,
    "sequences",
    "Sequences that hold KV blocks; a request of several choices is as many.",
)
NUM_REQUESTS_WAITING: Final = Metric(
    "paceline_num_requests_waiting",
    Kind.GAUGE,
    Group.LOAD,
    "sequences",
    "Sequences that wait to be admitted.",
)
WAITING_TOKENS: Final = Metric(
    "paceline_num_waiting_tokens",
    Kind.GAUGE,
    Group.LOAD,
    "tokens",
    "Of those that wait: prompts, and all new tokens that may come.",
)
BATCH_SIZE: Final = Metric(
    "paceline_batch_size",
    Kind.GAUGE,
    Group.LOAD,
    "sequences",
    "Sequences that decode at the moment. The mean over time is that of rounds to steps.",
)
NUM_PREEMPTIONS: Final = Metric(
    "paceline_num_preemptions",
    Kind.COUNTER,
    Group.LOAD,
    "sequences",
    "Times that a running sequence had to give its KV blocks back.",
)

# ---- memory

KV_BLOCKS: Final = Metric(
    "paceline_kv_blocks",
    Kind.GAUGE,
    Group.MEMORY,
    "blocks",
    "KV blocks of the pool.",
)
KV_BLOCKS_USED: Final = Metric(
    "paceline_kv_blocks_used",
    Kind.GAUGE,
    Group.MEMORY,
    "blocks",
    "KV blocks that running sequences hold.",
)
KV_BLOCKS_CACHED: Final = Metric(
    "paceline_kv_blocks_cached",
    Kind.GAUGE,
    Group.MEMORY,
    "blocks",
    "Free KV blocks whose content the prefix cache still finds.",
)
PREFIX_CACHE_QUERIES: Final = Metric(
    "paceline_prefix_cache_queries",
    Kind.COUNTER,
    Group.MEMORY,
    "tokens",
    "Prompt tokens that were looked up in the prefix cache.",
)
PREFIX_CACHE_HITS: Final = Metric(
    "paceline_prefix_cache_hits",
    Kind.COUNTER,
    Group.MEMORY,
    "tokens",
    "Prompt tokens that were found there.",
)

# ---- steps

STEPS: Final = Metric(
    "paceline_steps",
    Kind.COUNTER,
    Group.STEPS,
    "steps",
    "Steps that the engine made.",
)
STEPS_WITHOUT_DRAFT: Final = Metric(
    "paceline_steps_without_draft",
    Kind.COUNTER,
    Group.STEPS,
    "steps",
    "Of them, those in which nothing was to be drafted: length 0.",
)
ROUNDS: Final = Metric(
    "paceline_rounds",
    Kind.COUNTER,
    Group.STEPS,
    "rounds",
    "Verifications of one sequence's draft, an empty draft included: each gives the accepted "
    "tokens and one more.",
)
DRAFT_SECONDS: Final = Metric(
    "paceline_draft_seconds",
    Kind.COUNTER,
    Group.STEPS,
    "seconds",
    "Spent on drafting.",
)
TARGET_SECONDS: Final = Metric(
    "paceline_target_seconds",
    Kind.COUNTER,
    Group.STEPS,
    "seconds",
    "Spent in the target's forward passes.",
)
VERIFY_SECONDS: Final = Metric(
    "paceline_verify_seconds",
    Kind.COUNTER,
    Group.STEPS,
    "seconds",
    "Spent on choosing the target's tokens and comparing drafts with them.",
)

# ---- speculation: vLLM's names and meanings

NUM_DRAFTS: Final = Metric(
    "paceline_spec_decode_num_drafts",
    Kind.COUNTER,
    Group.SPECULATION,
    "drafts",
    "Drafts of at least one token that were verified.",
)
NUM_DRAFT_TOKENS: Final = Metric(
    "paceline_spec_decode_num_draft_tokens",
    Kind.COUNTER,
    Group.SPECULATION,
    "tokens",
    "Draft tokens that were verified.",
)
NUM_ACCEPTED_TOKENS: Final = Metric(
    "paceline_spec_decode_num_accepted_tokens",
    Kind.COUNTER,
    Group.SPECULATION,
    "tokens",
    "Draft tokens that were accepted.",
)
NUM_ACCEPTED_TOKENS_PER_POS: Final = Metric(
    "paceline_spec_decode_num_accepted_tokens_per_pos",
    Kind.COUNTER,
    Group.SPECULATION,
    "tokens",
    "Accepted draft tokens by their position in the draft, from 0 on.",
    labels=("position",),
)
NUM_DRAFT_TOKENS_PER_POS: Final = Metric(
    "paceline_spec_decode_num_draft_tokens_per_pos",
    Kind.COUNTER,
    Group.SPECULATION,
    "tokens",
    "Verified draft tokens by their position in the draft, from 0 on. Not of vLLM, whose drafts "
    "are all of one length.",
    labels=("position",),
)
PROBES: Final = Metric(
    "paceline_probes",
    Kind.COUNTER,
    Group.SPECULATION,
    "steps",
    "Steps in which one sequence drafted more than the table says, to see what would be kept.",
)
PROBE_SECONDS: Final = Metric(
    "paceline_probe_seconds",
    Kind.COUNTER,
    Group.SPECULATION,
    "seconds",
    "What those steps took beyond others.",
)

# ---- policy

DRAFT_LENGTH: Final = Metric(
    "paceline_draft_length",
    Kind.GAUGE,
    Group.POLICY,
    "tokens",
    "Draft length that the table in force has for a batch size: powers of two, and the largest.",
    labels=("batch_size",),
)
DRAFT_LENGTH_IN_FORCE: Final = Metric(
    "paceline_draft_length_in_force",
    Kind.GAUGE,
    Group.POLICY,
    "tokens",
    "Draft length of the sequences that decode at the moment; 0 where none does.",
)
ESTIMATED_SPEEDUP: Final = Metric(
    "paceline_estimated_speedup",
    Kind.GAUGE,
    Group.POLICY,
    "ratio",
    "Tokens a second with the table's length over those with length 0, as the policy's cost model "
    "has it, by batch size as above. Missing while no cost is known.",
    labels=("batch_size",),
)
ESTIMATED_SPEEDUP_IN_FORCE: Final = Metric(
    "paceline_estimated_speedup_in_force",
    Kind.GAUGE,
    Group.POLICY,
    "ratio",
    "The same at the present batch size. Missing while nothing decodes.",
)
TABLE_VERSION: Final = Metric(
    "paceline_table_version",
    Kind.GAUGE,
    Group.POLICY,
    "version",
    "Of the table in force, as the engine has it; 0 before the first was published.",
)
TABLE_AGE: Final = Metric(
    "paceline_table_age_seconds",
    Kind.GAUGE,
    Group.POLICY,
    "seconds",
    "Since the table that the replica holds was decided. A table that still fits may be old.",
)
POLICY_SILENCE: Final = Metric(
    "paceline_policy_silence_seconds",
    Kind.GAUGE,
    Group.POLICY,
    "seconds",
    "Since the policy actor last answered the replica: whether its table is up to date.",
)
CALIBRATION_AGE: Final = Metric(
    "paceline_calibration_age_seconds",
    Kind.GAUGE,
    Group.POLICY,
    "seconds",
    "Since the cost of steps was measured on this kind of replica. Missing where it was not.",
)

METRICS: Final = (
    REQUESTS,
    TIME_TO_FIRST_TOKEN,
    TIME_PER_OUTPUT_TOKEN,
    END_TO_END,
    QUEUE_TIME,
    PROMPT_TOKENS,
    GENERATION_TOKENS,
    NUM_REQUESTS_RUNNING,
    NUM_REQUESTS_WAITING,
    WAITING_TOKENS,
    BATCH_SIZE,
    NUM_PREEMPTIONS,
    KV_BLOCKS,
    KV_BLOCKS_USED,
    KV_BLOCKS_CACHED,
    PREFIX_CACHE_QUERIES,
    PREFIX_CACHE_HITS,
    STEPS,
    STEPS_WITHOUT_DRAFT,
    ROUNDS,
    DRAFT_SECONDS,
    TARGET_SECONDS,
    VERIFY_SECONDS,
    NUM_DRAFTS,
    NUM_DRAFT_TOKENS,
    NUM_ACCEPTED_TOKENS,
    NUM_ACCEPTED_TOKENS_PER_POS,
    NUM_DRAFT_TOKENS_PER_POS,
    PROBES,
    PROBE_SECONDS,
    DRAFT_LENGTH,
    DRAFT_LENGTH_IN_FORCE,
    ESTIMATED_SPEEDUP,
    ESTIMATED_SPEEDUP_IN_FORCE,
    TABLE_VERSION,
    TABLE_AGE,
    POLICY_SILENCE,
    CALIBRATION_AGE,
)
"""All of them, in the order of their groups."""
