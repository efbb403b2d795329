"""The router deployment: an ingress whose engines are elsewhere, and may die under its requests.

It keeps each answer's tokens, and so it alone has to live for an answer to be completed. It holds
no model, only the tokenizer.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray import serve

from cluster.metrics.requests import RequestRecord
from cluster.metrics.serve_instruments import ServeInstruments
from deployments import garbage
from deployments.api_keys import KeyRing
from deployments.config import AppConfig
from deployments.failover.serve_replicas import ServeReplicas
from deployments.failover.source import FailoverSource
from deployments.ingress import Ingress, build_service
from deployments.live_settings import LiveSettings
from deployments.logs import forward_to_serve
from deployments.request_recorder import RequestRecorder

if TYPE_CHECKING:
    from deployments.failover.replies import Facts
    from deployments.service import GenerationService


@serve.ingress()
class PacelineRouter(Ingress):
    """Answers clients; its tokens come from whichever `EngineReplica` lives."""

    async def __init__(self, config: AppConfig, engines: Any) -> None:  # type: ignore[misc]  # Serve awaits it
        """`engines`: the DeploymentHandle of their deployment. Waits for the first of them."""
        self._config = config
        forward_to_serve()
        self._keys = KeyRing(LiveSettings().keys_path(config), os.environ)
        self._recorder = RequestRecorder(
            ServeInstruments(),
            config.model_name,
            serve.get_replica_context().replica_id.unique_id,
            os.environ,
        )
        self._replicas = ServeReplicas(engines)
        facts = await self._replicas.facts()
        self._service = await asyncio.to_thread(
            _build, config, self._replicas, facts, self._recorder.record
        )
        self._apply(LiveSettings(), self._keys)

    def policy_port(self) -> ServeReplicas:
        return self._replicas

    async def configure_policy(self, setting: str | dict[str, Any]) -> None:
        await self._replicas.configure(setting)

    async def __del__(self) -> None:
        """Called by Serve once the requests in flight have ended."""
        if self._recorder is not None:
            await asyncio.to_thread(self._recorder.close)


def _build(
    config: AppConfig,
    replicas: ServeReplicas,
    facts: "Facts",
    tell: Callable[[RequestRecord], None],
) -> "GenerationService":
    """Raises ConfigError."""
    from engine.grammar import GrammarCompiler
    from engine.model import load_tokenizer

    folder = Path(config.with_models_found().model)
    grammars = GrammarCompiler(folder, facts.vocab_size, facts.eos_token_ids)
    source = FailoverSource(replicas, grammars.prepare, max_wait_s=config.router.max_wait_s)
    service = build_service(config, load_tokenizer(folder), source, facts, tell)
    garbage.settle()
    return service
