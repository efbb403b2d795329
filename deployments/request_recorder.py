"""Who is told of each request at its end: metrics, the log, and traces where they are exported."""

from collections.abc import Callable, Mapping

from cluster.metrics.instruments import Instruments
from cluster.metrics.requests import RequestMetrics, RequestRecord
from deployments.logs import log_request
from deployments.traces import RequestTraces, provider_of_environment


class RequestRecorder:
    """Of one ingress process."""

    def __init__(
        self,
        instruments: Instruments,
        model_name: str,
        replica_id: str,
        environment: Mapping[str, str],
    ) -> None:
        """Raises ConfigError for an exporter that can't be had."""
        self._told: list[Callable[[RequestRecord], None]] = [
            RequestMetrics(instruments).record,
            log_request,
        ]
        self._traces: RequestTraces | None = None
        if provider := provider_of_environment(environment, replica_id):
            self._traces = RequestTraces(provider, model_name)
            self._told.append(self._traces.record)

    @property
    def traces(self) -> bool:
        """Whether requests are traced."""
        return self._traces is not None

    def record(self, record: RequestRecord) -> None:
        for each in self._told:
            each(record)

    def close(self) -> None:
        """Send what is left. May take seconds."""
        if self._traces is not None:
            self._traces.close()
