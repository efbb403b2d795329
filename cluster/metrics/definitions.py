"""Every metric of Paceline, once. Imports no Ray.

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

from enum import StrEnum
from typing import Final

from cluster.metrics.metric import Group, Kind, Metric


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


def _counter(group: Group, name: str, unit: str, help: str, *labels: str) -> Metric:
    return Metric(f"paceline_{name}", Kind.COUNTER, group, unit, help, labels)


def _gauge(group: Group, name: str, unit: str, help: str, *labels: str) -> Metric:
    return Metric(f"paceline_{name}", Kind.GAUGE, group, unit, help, labels)


def _histogram(group: Group, name: str, unit: str, buckets: tuple[float, ...], help: str) -> Metric:
    return Metric(f"paceline_{name}", Kind.HISTOGRAM, group, unit, help, buckets=buckets)


# ---- requests: counted where they end

REQUESTS: Final = _counter(
    Group.REQUESTS,
    "requests",
    "requests",
    "Requests that ended, by how: " + ", ".join(Outcome) + ".",
    "outcome",
)
TIME_TO_FIRST_TOKEN: Final = _histogram(
    Group.REQUESTS,
    "time_to_first_token_seconds",
    "seconds",
    _LATENCY_S,
    "From a request's arrival to its first token.",
)
TIME_PER_OUTPUT_TOKEN: Final = _histogram(
    Group.REQUESTS,
    "request_time_per_output_token_seconds",
    "seconds",
    _TOKEN_S,
    "Of an answer of several tokens that was finished, mean time from one to the next.",
)
END_TO_END: Final = _histogram(
    Group.REQUESTS,
    "e2e_request_latency_seconds",
    "seconds",
    _LATENCY_S,
    "From a request's arrival to its end, of those that were finished.",
)
QUEUE_TIME: Final = _histogram(
    Group.REQUESTS,
    "request_queue_time_seconds",
    "seconds",
    _QUEUE_S,
    "From a request's entry into the engine to the step that began with it.",
)
PROMPT_TOKENS: Final = _counter(
    Group.REQUESTS,
    "prompt_tokens",
    "tokens",
    "Tokens of the prompts that were begun, found in the prefix cache or not; once for each "
    "choice of a request.",
)
GENERATION_TOKENS: Final = _counter(
    Group.REQUESTS, "generation_tokens", "tokens", "Tokens that the engine generated."
)

# ---- load

NUM_REQUESTS_RUNNING: Final = _gauge(
    Group.LOAD,
    "num_requests_running",
    "sequences",
    "Sequences that hold KV blocks; a request of several choices is as many.",
)
NUM_REQUESTS_WAITING: Final = _gauge(
    Group.LOAD, "num_requests_waiting", "sequences", "Sequences that wait to be admitted."
)
WAITING_TOKENS: Final = _gauge(
    Group.LOAD,
    "num_waiting_tokens",
    "tokens",
    "Of those that wait: prompts, and all new tokens that may come.",
)
BATCH_SIZE: Final = _gauge(
    Group.LOAD,
    "batch_size",
    "sequences",
    "Sequences that decode at the moment. The mean over time is that of rounds to steps.",
)
NUM_PREEMPTIONS: Final = _counter(
    Group.LOAD,
    "num_preemptions",
    "sequences",
    "Times that a running sequence had to give its KV blocks back.",
)

# ---- memory

KV_BLOCKS: Final = _gauge(Group.MEMORY, "kv_blocks", "blocks", "KV blocks of the pool.")
KV_BLOCKS_USED: Final = _gauge(
    Group.MEMORY, "kv_blocks_used", "blocks", "KV blocks that running sequences hold."
)
KV_BLOCKS_CACHED: Final = _gauge(
    Group.MEMORY,
    "kv_blocks_cached",
    "blocks",
    "Free KV blocks whose content the prefix cache still finds.",
)
PREFIX_CACHE_QUERIES: Final = _counter(
    Group.MEMORY,
    "prefix_cache_queries",
    "tokens",
    "Prompt tokens that were looked up in the prefix cache.",
)
PREFIX_CACHE_HITS: Final = _counter(
    Group.MEMORY, "prefix_cache_hits", "tokens", "Prompt tokens that were found there."
)

# ---- steps

STEPS: Final = _counter(Group.STEPS, "steps", "steps", "Steps that the engine made.")
STEPS_WITHOUT_DRAFT: Final = _counter(
    Group.STEPS,
    "steps_without_draft",
    "steps",
    "Of them, those in which nothing was to be drafted: length 0.",
)
ROUNDS: Final = _counter(
    Group.STEPS,
    "rounds",
    "rounds",
    "Verifications of one sequence's draft, an empty draft included: each gives the accepted "
    "tokens and one more.",
)
DRAFT_SECONDS: Final = _counter(Group.STEPS, "draft_seconds", "seconds", "Spent on drafting.")
TARGET_SECONDS: Final = _counter(
    Group.STEPS, "target_seconds", "seconds", "Spent in the target's forward passes."
)
VERIFY_SECONDS: Final = _counter(
    Group.STEPS,
    "verify_seconds",
    "seconds",
    "Spent on choosing the target's tokens and comparing drafts with them.",
)

# ---- speculation: vLLM's names and meanings

NUM_DRAFTS: Final = _counter(
    Group.SPECULATION,
    "spec_decode_num_drafts",
    "drafts",
    "Drafts of at least one token that were verified.",
)
NUM_DRAFT_TOKENS: Final = _counter(
    Group.SPECULATION, "spec_decode_num_draft_tokens", "tokens", "Draft tokens that were verified."
)
NUM_ACCEPTED_TOKENS: Final = _counter(
    Group.SPECULATION,
    "spec_decode_num_accepted_tokens",
    "tokens",
    "Draft tokens that were accepted.",
)
NUM_ACCEPTED_TOKENS_PER_POS: Final = _counter(
    Group.SPECULATION,
    "spec_decode_num_accepted_tokens_per_pos",
    "tokens",
    "Accepted draft tokens by their position in the draft, from 0 on.",
    "position",
)
NUM_DRAFT_TOKENS_PER_POS: Final = _counter(
    Group.SPECULATION,
    "spec_decode_num_draft_tokens_per_pos",
    "tokens",
    "Verified draft tokens by their position in the draft, from 0 on. Not of vLLM, whose "
    "drafts are all of one length.",
    "position",
)
PROBES: Final = _counter(
    Group.SPECULATION,
    "probes",
    "steps",
    "Steps in which one sequence drafted more than the table says, to see what would be kept.",
)
PROBE_SECONDS: Final = _counter(
    Group.SPECULATION, "probe_seconds", "seconds", "What those steps took beyond others."
)

# ---- policy

DRAFT_LENGTH: Final = _gauge(
    Group.POLICY,
    "draft_length",
    "tokens",
    "Draft length that the table in force has for a batch size: powers of two, and the largest.",
    "batch_size",
)
DRAFT_LENGTH_IN_FORCE: Final = _gauge(
    Group.POLICY,
    "draft_length_in_force",
    "tokens",
    "Draft length of the sequences that decode at the moment; 0 where none does.",
)
ESTIMATED_SPEEDUP: Final = _gauge(
    Group.POLICY,
    "estimated_speedup",
    "ratio",
    "Tokens a second with the table's length over those with length 0, as the policy's cost "
    "model has it, by batch size as above. Missing while no cost is known.",
    "batch_size",
)
ESTIMATED_SPEEDUP_IN_FORCE: Final = _gauge(
    Group.POLICY,
    "estimated_speedup_in_force",
    "ratio",
    "The same at the present batch size. Missing while nothing decodes.",
)
TABLE_VERSION: Final = _gauge(
    Group.POLICY,
    "table_version",
    "version",
    "Of the table in force, as the engine has it; 0 before the first was published.",
)
TABLE_AGE: Final = _gauge(
    Group.POLICY,
    "table_age_seconds",
    "seconds",
    "Since the table that the replica holds was decided. A table that still fits may be old.",
)
POLICY_SILENCE: Final = _gauge(
    Group.POLICY,
    "policy_silence_seconds",
    "seconds",
    "Since the policy actor last answered the replica: whether its table is up to date.",
)
CALIBRATION_AGE: Final = _gauge(
    Group.POLICY,
    "calibration_age_seconds",
    "seconds",
    "Since the cost of steps was measured on this kind of replica. Missing where it was not.",
)

METRICS: Final = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
"""All of them, as they stand above."""
