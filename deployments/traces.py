"""OpenTelemetry spans of requests, where an exporter is configured by the standard variables.

    chat smollm2-135m          from the request's arrival to its end, below the caller's span
      queue                    until the engine began with it
      prefill                  until its first token
      decode                   until its last, with its rounds, drafted and accepted tokens

They are made when a request has ended, of what was noted anyway (`RequestRecord`), so the engine
knows nothing of them; without an exporter nothing of this is imported. The attributes are those of
OpenTelemetry's conventions for generative AI, and those of `paceline.`.
"""

import time
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from cluster.metrics.definitions import Outcome
from cluster.metrics.requests import RequestRecord
from deployments.request_ids import request_id
from engine.errors import ConfigError
from policy.quoting import shown

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

EXPORTER: Final = "OTEL_TRACES_EXPORTER"
ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
DEFAULT_PROTOCOL: Final = "http/protobuf"
DISABLED: Final = "OTEL_SDK_DISABLED"
_ENTRY_POINTS: Final = "opentelemetry_traces_exporter"
"""Where packages of exporters register theirs."""
_OTLP: Final = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
_NS: Final = 1_000_000_000


def provider_of_environment(
    environment: Mapping[str, str], replica_id: str
) -> "TracerProvider | None":
    """What exports spans as the variables say; None where they name no exporter.

    Raises ConfigError, which names the variable, for an exporter that is not installed. The SDK
    itself reads the others: sampler, service name, batches, endpoint and headers.
    """
    names = _exporter_names(environment)
    if not names:
        return None
    makers = [_exporter(name, environment) for name in names]
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    own = {"service.instance.id": replica_id}
    if "OTEL_SERVICE_NAME" not in environment:
        own["service.name"] = "paceline"
    provider = TracerProvider(resource=Resource.create(own), shutdown_on_exit=False)
    for make in makers:
        provider.add_span_processor(BatchSpanProcessor(make()))
    return provider


def _exporter_names(environment: Mapping[str, str]) -> list[str]:
    if environment.get(DISABLED, "").strip().lower() == "true":
        return []
    has_endpoint = any(environment.get(name) for name in ENDPOINTS)
    chosen = environment.get(EXPORTER) or ("otlp" if has_endpoint else "none")
    names = [name.strip() for name in chosen.split(",")]
    return [name for name in names if name and name != "none"]


def _exporter(name: str, environment: Mapping[str, str]) -> Callable[[], Any]:
    """What makes it. Raises ConfigError."""
    entry = name
    if name == "otlp":
        protocol = next((environment[p] for p in PROTOCOLS if environment.get(p)), DEFAULT_PROTOCOL)
        if protocol not in _OTLP:
            raise ConfigError(
                f"{PROTOCOLS[1]} must be one of {', '.join(_OTLP)}, got {shown(protocol)}"
            )
        entry = _OTLP[protocol]
    found = next(iter(entry_points(group=_ENTRY_POINTS, name=entry)), None)
    if found is None:
        package = f"opentelemetry-exporter-{entry.replace('_', '-')}"
        raise ConfigError(f"{EXPORTER}: no exporter {shown(name)} is installed; is {package}?")
    make: Callable[[], Any] = found.load()
    return make


class RequestTraces:
    """Spans of requests of one model. Belongs to one event loop."""

    def __init__(
        self,
        provider: "TracerProvider",
        model: str,
        monotonic: Callable[[], float] = time.monotonic,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """`monotonic` is the clock of the records' times, in seconds."""
        self._provider = provider
        self._tracer = provider.get_tracer("paceline")
        self._model = model
        self._monotonic = monotonic
        self._now_ns = now_ns

    def record(self, record: RequestRecord) -> None:
        """A request has ended; the current context tells whose span is its parent."""
        if record.arrived_s is None:
            return  # it never became one
        from opentelemetry import trace

        end_ns = self._now_ns()
        start_ns = end_ns - round((self._monotonic() - record.arrived_s) * _NS)
        whole = self._tracer.start_span(
            f"{record.operation} {self._model}",
            kind=trace.SpanKind.SERVER,
            start_time=start_ns,
            attributes={
                "gen_ai.operation.name": record.operation,
                "gen_ai.request.model": self._model,
                "gen_ai.usage.input_tokens": record.num_prompt_tokens,
                "gen_ai.usage.output_tokens": record.num_new_tokens,
                "paceline.request_id": request_id(),
                "paceline.outcome": str(record.outcome),
            },
        )
        if record.outcome is not Outcome.FINISHED:
            whole.set_status(trace.StatusCode.ERROR, record.error or str(record.outcome))
        self._parts(whole, record, start_ns)
        whole.end(end_ns)

    def _parts(self, whole: Any, record: RequestRecord, start_ns: int) -> None:
        """Of a request that got a token; with several choices from the first to begin to the last
        to end."""
        if record.first_token_s is None or record.seconds is None:
            return
        from opentelemetry import trace

        queued_s = record.prepare_s
        begun_s = queued_s + min(record.queue_s, default=0.0)
        context = trace.set_span_in_context(whole)
        decoding = {
            "paceline.rounds": record.num_rounds,
            "paceline.drafted_tokens": record.num_drafted,
            "paceline.accepted_tokens": record.num_accepted,
        }
        prompt = {"paceline.cached_tokens": record.num_cached_tokens}
        first_s, last_s = record.first_token_s, record.seconds
        for name, from_s, to_s, attributes in (
            ("queue", queued_s, begun_s, {}),
            ("prefill", begun_s, first_s, prompt),
            ("decode", first_s, last_s, decoding),
        ):
            span = self._tracer.start_span(
                name, context, start_time=start_ns + round(from_s * _NS), attributes=attributes
            )
            span.end(start_ns + round(to_s * _NS))

    def close(self) -> None:
        """Send what is left. Takes up to some seconds where nobody receives it."""
        self._provider.shutdown()


class TraceParents:
    """ASGI middleware: a request's `traceparent` header is the context that it is worked on in."""

    def __init__(self, app: ASGIApp) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._app = app
        self._propagator = TraceContextTextMapPropagator()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        from opentelemetry import context

        token = context.attach(self._propagator.extract(Headers(scope=scope)))
        try:
            await self._app(scope, receive, send)
        finally:
            context.detach(token)
