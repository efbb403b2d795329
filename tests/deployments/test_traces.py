"""Spans of requests, in memory; and what the standard variables make of them."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from transformers import PreTrainedTokenizerFast

from cluster.metrics.definitions import Outcome
from cluster.metrics.requests import RequestRecord
from deployments.traces import RequestTraces, TraceParents, provider_of_environment
from engine.errors import ConfigError, EngineFull
from engine.request import FinishReason, TokenDelta
from tests.deployments.api_app import CHAT, COMPLETION, App, tokens
from tests.deployments.fake_loop import Step
from tests.tiny_tokenizer import byte_level_tokenizer

ROOT = Path(__file__).parents[2]
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACE_PARENT = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
MS = 1_000_000


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return byte_level_tokenizer()


class Traced:
    """What a provider was told."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def app(self, tokenizer: PreTrainedTokenizerFast, steps: list[Step]) -> App:
        app = App(tokenizer, steps, tell=RequestTraces(self.provider, "tiny").record)
        app.asgi.add_middleware(TraceParents)
        return app

    def finished(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()

    def spans(self) -> dict[str, ReadableSpan]:
        """Since the last call, by name."""
        found = self.finished()
        self._exporter.clear()
        assert len({span.name for span in found}) == len(found)
        return {span.name: span for span in found}


@pytest.fixture
def traced() -> Iterator[Traced]:
    one = Traced()
    yield one
    one.provider.shutdown()


def starts_and_ends(span: ReadableSpan) -> tuple[int, int]:
    assert span.start_time is not None
    assert span.end_time is not None
    return span.start_time, span.end_time


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_is_a_span_below_its_callers_with_three_of_its_own(
    stream: bool, tokenizer: PreTrainedTokenizerFast, traced: Traced
) -> None:
    kept = TokenDelta("", (70, 71, 72), num_drafted=4, num_accepted=2, num_cached_tokens=3)
    last = TokenDelta("", (1,), FinishReason.STOP, num_drafted=4, ends_with_stop_token=True)
    app = traced.app(tokenizer, [kept, last])
    headers = {**TRACE_PARENT, "x-request-id": "order-66"}
    answer = await app.post("/v1/chat/completions", json=CHAT | {"stream": stream}, headers=headers)
    assert answer.status_code == 200
    spans = traced.spans()
    assert set(spans) == {"chat tiny", "queue", "prefill", "decode"}
    whole = spans.pop("chat tiny")
    assert whole.kind is SpanKind.SERVER
    assert whole.context.trace_id == int(TRACE, 16)
    assert whole.parent is not None
    assert whole.parent.span_id == int(SPAN, 16)
    assert whole.attributes is not None
    assert (
        whole.attributes.items()
        >= {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "tiny",
            "gen_ai.usage.output_tokens": 4,
            "paceline.request_id": "order-66",
            "paceline.outcome": "finished",
        }.items()
    )
    assert whole.status.status_code is StatusCode.UNSET
    assert spans["decode"].attributes == {
        "paceline.rounds": 2,
        "paceline.drafted_tokens": 8,
        "paceline.accepted_tokens": 2,
    }
    assert spans["prefill"].attributes == {"paceline.cached_tokens": 3}
    for part in spans.values():
        assert part.parent is not None
        assert part.parent.span_id == whole.context.span_id
    begins, ends = starts_and_ends(whole)
    (queue, admitted), (_, first), (_, end) = (
        starts_and_ends(spans[name]) for name in ("queue", "prefill", "decode")
    )
    assert begins <= queue <= admitted <= first <= end <= ends


def test_parts_follow_each_other_as_they_were_timed(traced: Traced) -> None:
    record = RequestRecord(
        Outcome.FINISHED,
        seconds=1.0,
        first_token_s=0.25,
        queue_s=(0.1, 0.2),
        arrived_s=50.0,
        prepare_s=0.05,
        operation="text_completion",
    )
    now_ns = 10**18
    RequestTraces(traced.provider, "tiny", lambda: 51.5, lambda: now_ns).record(record)
    begin = now_ns - 1500 * MS
    assert {name: starts_and_ends(span) for name, span in traced.spans().items()} == {
        "text_completion tiny": (begin, now_ns),
        "queue": (begin + 50 * MS, begin + 150 * MS),
        "prefill": (begin + 150 * MS, begin + 250 * MS),
        "decode": (begin + 250 * MS, begin + 1000 * MS),
    }


async def test_a_refused_request_is_a_span_with_an_error_and_no_parts(
    tokenizer: PreTrainedTokenizerFast, traced: Traced
) -> None:
    app = traced.app(tokenizer, [EngineFull("full", retry_s=3)])
    assert (await app.post("/v1/completions", json=COMPLETION)).status_code == 503
    ((name, span),) = traced.spans().items()
    assert name == "text_completion tiny"
    assert span.parent is None
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "full")
    # Refused before it was anybody's: nothing to tell.
    assert (await app.post("/v1/completions", json=COMPLETION | {"n": 0})).status_code == 400
    assert traced.spans() == {}


@pytest.mark.parametrize("sent", ["", "nonsense", f"00-{TRACE}-{'0' * 16}-01"])
async def test_a_damaged_parent_is_none(
    sent: str, tokenizer: PreTrainedTokenizerFast, traced: Traced
) -> None:
    app = traced.app(tokenizer, tokens(tokenizer, "a"))
    answer = await app.post("/v1/completions", json=COMPLETION, headers={"traceparent": sent})
    assert answer.status_code == 200
    assert traced.spans()["text_completion tiny"].parent is None


async def test_requests_at_once_keep_their_parents(
    tokenizer: PreTrainedTokenizerFast, traced: Traced
) -> None:
    gate = asyncio.Event()
    app = traced.app(tokenizer, [gate, *tokens(tokenizer, "a")])
    async with app.client() as client:

        async def ask(**headers: str) -> httpx.Response:
            return await client.post("/v1/completions", json=COMPLETION, headers=headers)

        with_parent = asyncio.create_task(ask(**TRACE_PARENT))
        await app.loop.started.wait()
        app.loop.started.clear()
        without = asyncio.create_task(ask())
        await app.loop.started.wait()
        gate.set()
        await asyncio.gather(with_parent, without)
    parents = {
        span.parent and span.parent.span_id
        for span in traced.finished()
        if span.name == "text_completion tiny"
    }
    assert parents == {None, int(SPAN, 16)}


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OTEL_TRACES_EXPORTER": "none"},
        {"OTEL_TRACES_EXPORTER": "console", "OTEL_SDK_DISABLED": "true"},
        {"OTEL_SERVICE_NAME": "ours"},
    ],
)
def test_without_an_exporter_nothing_is_imported(environment: dict[str, str]) -> None:
    code = (
        "import json, sys; from deployments.traces import provider_of_environment as made; "
        "assert made(json.loads(sys.argv[1]), 'r') is None; "
        "sys.exit('opentelemetry.sdk.trace' in sys.modules)"
    )
    command = [sys.executable, "-c", code, json.dumps(environment)]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def test_the_standard_variables_choose_the_exporter() -> None:
    code = (
        "from deployments.traces import *; "
        "traces = RequestTraces(provider_of_environment({EXPORTER: 'console'}, 'replica-7'), 'm'); "
        "traces.record(RequestRecord(Outcome.DEADLINE, arrived_s=0.0, operation='chat')); "
        "traces.close()"
    )
    command = [sys.executable, "-c", code]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("OTEL_")}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, env=environment, check=True)
    told = json.loads(done.stdout)
    assert told["name"] == "chat m"
    attributes = told["resource"]["attributes"]
    assert attributes["service.name"] == "paceline"
    assert attributes["service.instance.id"] == "replica-7"


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin2"}, "OTEL_TRACES_EXPORTER: no exporter 'zipkin2'"),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "x"}, "PROTOCOL must be"),
    ],
)
def test_an_exporter_that_is_not_there_is_named(environment: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        provider_of_environment(environment, "r")


def test_an_endpoint_alone_asks_for_otlp() -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    provider = provider_of_environment({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:1"}, "r")
    assert provider is not None
    provider.shutdown()
