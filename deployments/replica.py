"""The Serve deployment: one engine, its text service, its policy subscription, its own ingress.

Heavy imports (torch, transformers) happen while loading, in the replica's process alone.
"""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, Final

import ray
from ray import serve

from cluster.metrics.exporter import MetricsExporter, Sources
from cluster.metrics.requests import RequestMetrics, RequestRecord
from cluster.metrics.serve_instruments import ServeInstruments
from cluster.metrics.targets import metric_addresses
from cluster.metrics.windows import WindowMetrics
from cluster.policy_channel import PolicyActorLost, PolicyChannel
from cluster.policy_client import ANSWER_S, connect_policy_actor
from deployments import garbage
from deployments.api_keys import KeyRing
from deployments.config import AppConfig
from deployments.limits import Limits
from deployments.live_settings import LiveSettings, parse_live
from deployments.logs import forward_to_serve, log_request
from deployments.policy_access import PolicyAccess
from deployments.routing.books import OUTSTANDING, PROMPT_SHARE
from deployments.traces import RequestTraces, TraceParents, provider_of_environment
from engine.errors import in_one_line
from policy.board import Introduction, initial_publication

if TYPE_CHECKING:
    from fastapi import FastAPI

    from cluster.ranks import RayRanks
    from deployments.autoscaling.report import LoadReport
    from deployments.knowledge import Knowledge
    from deployments.service import GenerationService
    from engine.loop import EngineLoop

logger = logging.getLogger(__name__)

REPORT_FAILURE_S: Final = 5.0


@serve.ingress()
class PacelineReplica:
    """Answers OpenAI-style HTTP, and `generate` for deployment handles."""

    async def __init__(self, config: AppConfig) -> None:  # type: ignore[misc]  # Serve awaits it
        self._config = config
        self._engine_loop: EngineLoop | None = None
        self._channel: PolicyChannel | None = None
        self._exporter: MetricsExporter | None = None
        self._traces: RequestTraces | None = None
        forward_to_serve()
        instruments = ServeInstruments()
        replica_id = serve.get_replica_context().replica_id.unique_id
        report = await _stage_reporter(replica_id)
        try:
            self._keys = KeyRing(LiveSettings().keys_path(config), os.environ)
            # In a thread: Serve's own calls on this event loop go on being answered.
            may_calibrate = _asking(asyncio.get_running_loop(), replica_id)
            loop, self._service, knowledge, self._load_report = await asyncio.to_thread(
                _load, config, report, may_calibrate, self._telling(instruments, replica_id)
            )
        except Exception as error:
            await _report_failure(replica_id, error)
            raise
        self._engine_loop = loop
        self._channel = PolicyChannel(
            replica_id,
            initial_publication(config.initial_policy),
            connect_policy_actor,
            loop.set_table,
            WindowMetrics(instruments).counted(self._load_report.timed(loop.drain_stats)),
            introduction=None if knowledge is None else knowledge.introduction,
            keep=_keep_and_learn(knowledge, self._load_report),
        )
        self._policy = PolicyAccess(
            replica_id, self._channel, connect_policy_actor, config.max_draft_len
        )
        sources = Sources(
            engine=loop.status,
            channel=self._channel.status,
            speedup=self._load_report.speedup,
            calibrated_at_unix_s=knowledge.calibrated_at_unix_s if knowledge else lambda: None,
        )
        self._exporter = MetricsExporter(instruments, sources, config.engine.max_num_seqs)
        self._apply(LiveSettings(), self._keys)
        self._channel.set_stage("ready")
        self._channel.start()
        self._exporter.start()

    def _telling(
        self, instruments: ServeInstruments, replica_id: str
    ) -> Callable[[RequestRecord], None]:
        """Who is told of each request at its end. Raises ConfigError."""
        told = [RequestMetrics(instruments).record, log_request]
        if provider := provider_of_environment(os.environ, replica_id):
            self._traces = RequestTraces(provider, self._config.model_name)
            told.append(self._traces.record)

        def tell(record: RequestRecord) -> None:
            for each in told:
                each(record)

        return tell

    def __serve_build_asgi_app__(self) -> "FastAPI":
        """Called by Serve after `__init__`: the HTTP side of this replica."""
        from deployments.api import create_api

        api = create_api(
            lambda: self._service,
            lambda: self._policy,
            max_body_bytes=self._config.server.max_body_bytes,
            get_keys=lambda: self._keys,
            get_metric_addresses=metric_addresses,
            cors_origins=self._config.server.cors_origins,
        )
        if self._traces is not None:
            api.add_middleware(TraceParents)
        return api

    async def reconfigure(self, user_config: Mapping[str, Any] | None) -> None:
        """Called by Serve after `__init__`, and when `user_config` has changed. All of it takes
        effect, or nothing: raises ConfigError or PolicyActorLost.
        """
        live = parse_live(user_config or {}, self._config)
        keys = await asyncio.to_thread(KeyRing, live.keys_path(self._config), os.environ)
        if live.policy is not None:
            client = await connect_policy_actor()
            await client.configure(live.policy.setting)
        self._apply(live, keys)

    def _apply(self, live: LiveSettings, keys: KeyRing) -> None:
        self._keys = keys
        limits = live.limits or self._config.limits
        self._service.limits = Limits(**limits.model_dump())

    async def generate(self, body: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """Stream chunks for a completion or chat body, for callers with a DeploymentHandle.

        Raises RequestError, EngineFull, EngineDead or GenerationFailed. Cancelling the call frees
        its blocks.
        """
        async with aclosing(self._service.stream(body)) as chunks:
            async for chunk in chunks:
                yield chunk

    def record_autoscaling_stats(self) -> dict[str, float]:
        """Called by Serve where replicas are added and removed by their load."""
        assert self._engine_loop is not None
        assert self._channel is not None
        load = self._load_report.load(self._engine_loop.status(), self._channel.status().held.table)
        return load.as_stats()

    def record_routing_stats(self) -> dict[str, float]:
        """Called by Serve, which hands it on to all routers."""
        return {OUTSTANDING: self._load_report.outstanding_tokens(PROMPT_SHARE)}

    def check_health(self) -> None:
        """Called by Serve; raises EngineDead, upon which Serve replaces this replica."""
        if self._engine_loop is not None:
            self._engine_loop.check_health()

    async def __del__(self) -> None:
        """Called by Serve once the requests in flight have ended."""
        if self._exporter is not None:
            await self._exporter.close()
        if self._channel is not None:
            await self._channel.close()
        if self._engine_loop is not None:
            await asyncio.to_thread(self._engine_loop.close)
        if self._traces is not None:
            await asyncio.to_thread(self._traces.close)


def _load(
    config: AppConfig,
    report: Callable[[str], None],
    may_calibrate: Callable[[Introduction], bool],
    tell: Callable[[RequestRecord], None],
) -> "tuple[EngineLoop, GenerationService, Knowledge | None, LoadReport]":
    """Build the engine, what is known of its kind, its text service and what tells of its load.
    Raises ConfigError."""
    report("importing torch")
    from deployments.autoscaling.report import LoadReport
    from deployments.knowledge import Knowledge
    from deployments.models.cache import default_home
    from deployments.service import GenerationService
    from engine.build import build_engine
    from engine.loop import EngineLoop
    from engine.model import load_tokenizer
    from engine.rehearsal import rehearse

    engine_config = config.engine_config()
    tokenizer = load_tokenizer(engine_config.model)
    table = initial_publication(config.initial_policy).table
    host = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    engine = build_engine(engine_config, table, report, ranks=_ranks(config), host=host)
    knowledge = None
    if config.max_draft_len:
        knowledge = Knowledge(engine_config, default_home() / "calibration")
        if config.initial_policy.mode == "adaptive":
            knowledge.calibrate(engine, report, may_calibrate)
    report("rehearsing")
    loop = EngineLoop(engine, token_s=rehearse(engine))
    loop.start()
    load_report = LoadReport(
        engine_config.max_num_seqs, None if knowledge is None else knowledge.introduction
    )
    service = GenerationService(
        load_report.counted(loop),
        tokenizer,
        config.model_name,
        max_model_len=engine.max_model_len,
        vocab_size=engine.vocab_size,
        request_timeout_s=config.server.request_timeout_s,
        tell=tell,
    )
    garbage.settle()
    return loop, service, knowledge, load_report


def _keep_and_learn(
    knowledge: "Knowledge | None", load_report: "LoadReport"
) -> Callable[[dict[str, Any]], None]:
    def keep(learned: dict[str, Any]) -> None:
        load_report.learn(learned)
        if knowledge is not None:
            knowledge.keep(learned)

    return keep


def _ranks(config: AppConfig) -> "RayRanks | None":
    """In this replica's placement group; None where it is alone."""
    if config.engine.tp_size == 1:
        return None
    from cluster.ranks import RayRanks

    group = ray.util.get_current_placement_group()
    assert group is not None
    return RayRanks(group, config.replicas.num_cpus, config.replicas.num_gpus)


def _asking(
    event_loop: asyncio.AbstractEventLoop, replica_id: str
) -> Callable[[Introduction], bool]:
    """Asks the policy actor, from another thread, whether to calibrate. Yes where it can't be
    asked: too much is measured then, but never too little."""

    async def ask(said: Introduction) -> bool:
        async with asyncio.timeout(ANSWER_S):
            client = await connect_policy_actor()
            return await client.may_calibrate(replica_id, said)

    def may_calibrate(said: Introduction) -> bool:
        try:
            return asyncio.run_coroutine_threadsafe(ask(said), event_loop).result()
        except Exception as error:  # whatever it is, the replica is to serve
            logger.warning("the policy actor can't be asked (%s)", type(error).__name__)
            return True

    return may_calibrate


async def _stage_reporter(replica_id: str) -> Callable[[str], None]:
    """Tells the policy actor what is being loaded; without the actor, nobody is told."""
    try:
        client = await connect_policy_actor()
    except PolicyActorLost:
        return lambda stage: logger.info("%s", stage)
    return lambda stage: client.post_stage(replica_id, stage)


async def _report_failure(replica_id: str, error: Exception) -> None:
    with suppress(Exception):
        async with asyncio.timeout(REPORT_FAILURE_S):
            client = await connect_policy_actor()
            await client.note_stage(replica_id, f"failed: {in_one_line(error)}")
