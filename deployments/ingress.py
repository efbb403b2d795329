"""What clients meet: HTTP and `generate`, over a text service, whatever stands behind that."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from ray import serve

from cluster.metrics.requests import RequestRecord
from cluster.metrics.targets import metric_addresses
from deployments.api_keys import KeyRing
from deployments.config import AppConfig
from deployments.limits import Limits
from deployments.live_settings import LiveSettings, parse_live
from deployments.request_recorder import RequestRecorder
from deployments.routing.steering import Steering
from deployments.traces import TraceParents

if TYPE_CHECKING:
    from fastapi import FastAPI
    from transformers import PreTrainedTokenizerFast

    from deployments.api import PolicyPort
    from deployments.failover.pieces import PieceReply
    from deployments.failover.replies import Facts
    from deployments.generation.origin import Origin
    from deployments.generation.run import TokenSource, Told
    from deployments.service import GenerationService


class Ingress:
    """Of one deployment, which sets the attributes while it starts."""

    _config: AppConfig
    _keys: KeyRing
    _recorder: RequestRecorder | None = None
    _service: "GenerationService"

    def __serve_build_asgi_app__(self) -> "FastAPI":
        """Called by Serve after `__init__`: the HTTP side."""
        from deployments.api import create_api

        api = create_api(
            lambda: self._service,
            self.policy_port,
            max_body_bytes=self._config.server.max_body_bytes,
            get_keys=lambda: self._keys,
            get_metric_addresses=metric_addresses,
            cors_origins=self._config.server.cors_origins,
        )
        if self._recorder is not None and self._recorder.traces:
            api.add_middleware(TraceParents)
        return api

    async def reconfigure(self, user_config: Mapping[str, Any] | None) -> None:
        """Called by Serve after `__init__`, and when `user_config` has changed. All of it takes
        effect, or nothing: raises ConfigError or PolicyActorLost.
        """
        live = parse_live(user_config or {}, self._config)
        keys = await asyncio.to_thread(KeyRing, live.keys_path(self._config), os.environ)
        if live.policy is not None:
            await self.configure_policy(live.policy.setting)
        self._apply(live, keys)

    def _apply(self, live: LiveSettings, keys: KeyRing) -> None:
        self._keys = keys
        limits = live.limits or self._config.limits
        self._service.limits = Limits(**limits.model_dump())

    def policy_port(self) -> "PolicyPort":
        """What the API shows of the policy."""
        raise NotImplementedError

    async def configure_policy(self, setting: str | dict[str, Any]) -> None:
        """Put a configured policy in force. Raises PolicyActorLost."""
        raise NotImplementedError

    async def generate(self, body: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """Stream chunks for a completion or chat body, for callers with a DeploymentHandle.

        Raises RequestError, EngineFull, EngineDead or GenerationFailed. Cancelling the call frees
        its blocks.
        """
        async with aclosing(self._service.stream(body)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def resumable(
        self, body: Mapping[str, Any], origin: "Origin", told: "Sequence[Told]", _steering: Steering
    ) -> "AsyncGenerator[PieceReply, None]":
        """As `generate`, for callers who go on elsewhere should this replica die: `told` is what
        the pieces they have are made of (`failover/resilient_handle.py`)."""
        from deployments.failover.pieces import piece_replies

        replica_id = serve.get_replica_context().replica_id.unique_id
        replies = piece_replies(self._service, replica_id, body, origin, told)
        async with aclosing(replies):
            async for reply in replies:
                yield reply


def build_service(
    config: AppConfig,
    tokenizer: "PreTrainedTokenizerFast",
    source: "TokenSource",
    facts: "Facts",
    tell: Callable[[RequestRecord], None],
) -> "GenerationService":
    """`tell`: is told of each request at its end. Takes a while: the tokenizer's vocabulary is
    looked through."""
    from deployments.service import GenerationService

    return GenerationService(
        source,
        tokenizer,
        config.model_name,
        max_model_len=facts.max_model_len,
        vocab_size=facts.vocab_size,
        request_timeout_s=config.server.request_timeout_s,
        tell=tell,
    )
