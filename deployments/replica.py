"""The Serve deployments with an engine: one that is its own ingress, and one behind a router.

Heavy imports (torch, transformers) happen while loading, in the replica's process alone.
"""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import ray
from ray import serve

from cluster.metrics.exporter import MetricsExporter, Sources
from cluster.metrics.serve_instruments import ServeInstruments
from cluster.metrics.windows import WindowMetrics
from cluster.policy_channel import PolicyActorLost, PolicyChannel
from cluster.policy_client import ANSWER_S, connect_policy_actor
from deployments import garbage
from deployments.api_keys import KeyRing
from deployments.config import AppConfig
from deployments.ingress import Ingress, build_service
from deployments.live_settings import LiveSettings
from deployments.logs import forward_to_serve
from deployments.policy_access import PolicyAccess
from deployments.request_recorder import RequestRecorder
from deployments.routing.books import OUTSTANDING, PROMPT_SHARE
from deployments.routing.steering import Steering
from engine.errors import EngineDead, in_one_line
from engine.passing_thread import in_passing_thread
from policy.board import Introduction, initial_publication

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from cluster.ranks import RayRanks
    from deployments.autoscaling.report import LoadReport
    from deployments.failover.replies import Facts, Health, Reply
    from deployments.knowledge import Knowledge
    from engine.loop import EngineLoop
    from engine.request import Request

logger = logging.getLogger(__name__)

REPORT_FAILURE_S: Final = 5.0


class EngineReplica:
    """One engine and its policy subscription: tokens in, tokens out, for a router deployment."""

    async def __init__(self, config: AppConfig) -> None:  # type: ignore[misc]  # Serve awaits it
        self._config = config
        self._engine_loop: EngineLoop | None = None
        self._channel: PolicyChannel | None = None
        self._exporter: MetricsExporter | None = None
        forward_to_serve()
        self._instruments = ServeInstruments()
        self._replica_id = serve.get_replica_context().replica_id.unique_id
        async with _failures_reported(self._replica_id):
            await self._prepare()
            report = await _stage_reporter(self._replica_id)
            # In a thread: Serve's own calls on this event loop go on being answered.
            may_calibrate = _asking(asyncio.get_running_loop(), self._replica_id)
            loop, tokenizer, knowledge, self._load_report = await asyncio.to_thread(
                in_passing_thread, partial(_load, config, report, may_calibrate)
            )
            self._engine_loop = loop
            self._source = self._load_report.counted(loop)
            await self._complete(tokenizer)
        self._channel = PolicyChannel(
            self._replica_id,
            initial_publication(config.initial_policy),
            connect_policy_actor,
            loop.set_table,
            WindowMetrics(self._instruments).counted(self._load_report.timed(loop.drain_stats)),
            introduction=None if knowledge is None else knowledge.introduction,
            keep=_keep_and_learn(knowledge, self._load_report),
        )
        self._policy = PolicyAccess(
            self._replica_id, self._channel, connect_policy_actor, config.max_draft_len
        )
        sources = Sources(
            engine=loop.status,
            channel=self._channel.status,
            speedup=self._load_report.speedup,
            calibrated_at_unix_s=knowledge.calibrated_at_unix_s if knowledge else lambda: None,
        )
        self._exporter = MetricsExporter(self._instruments, sources, config.engine.max_num_seqs)
        self._channel.set_stage("ready")
        self._channel.start()
        self._exporter.start()

    async def _prepare(self) -> None:
        """What may fail before a model is loaded for it."""

    async def _complete(self, tokenizer: "PreTrainedTokenizerFast") -> None:
        """What the replica needs beside its engine."""

    async def tokens(
        self, requests: "tuple[Request, ...]", _steering: Steering
    ) -> "AsyncGenerator[Reply, None]":
        """A router's call: first that it has come, then deltas as they come. Cancelling it frees
        its blocks."""
        from deployments.failover.replies import replies

        async with aclosing(replies(self._source, self._replica_id, requests)) as told:
            async for reply in told:
                yield reply

    async def abort(self, request_id: str, _steering: Steering) -> None:
        """End one request of those that a call has."""
        self._source.abort(request_id)

    async def facts(self) -> "Facts":
        """What a router needs to know of the engine to prepare requests."""
        from deployments.failover.replies import Facts

        assert self._engine_loop is not None
        loop = self._engine_loop
        return Facts(loop.max_model_len, loop.vocab_size, loop.eos_token_ids)

    async def health(self, _steering: Steering) -> "Health":
        from deployments.failover.replies import Health

        try:
            status = await self._source.health()
        except EngineDead as error:
            return Health(self._replica_id, None, str(error))
        return Health(self._replica_id, status, heard_s_ago=self._policy.heard_s_ago())

    async def get_policy(self) -> dict[str, Any]:
        return await self._policy.get()

    async def set_policy(self, policy: object) -> dict[str, Any]:
        """Raises RequestError or PolicyActorLost."""
        return await self._policy.set(policy)

    async def explain_policy(self, batch_size: int) -> dict[str, Any]:
        """Raises PolicyActorLost."""
        return await self._policy.explain(batch_size)

    async def explain_table(self) -> dict[str, Any]:
        """Raises PolicyActorLost."""
        return await self._policy.explain_table()

    async def configure_policy(self, setting: str | dict[str, Any]) -> None:
        """Put a configured policy in force. Raises PolicyActorLost."""
        client = await connect_policy_actor()
        await client.configure(setting)

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


@serve.ingress()
class PacelineReplica(EngineReplica, Ingress):
    """One that answers clients itself: OpenAI-style HTTP, and `generate` for deployment handles."""

    async def _prepare(self) -> None:
        self._keys = KeyRing(LiveSettings().keys_path(self._config), os.environ)
        self._recorder = RequestRecorder(
            self._instruments, self._config.model_name, self._replica_id, os.environ
        )

    async def _complete(self, tokenizer: "PreTrainedTokenizerFast") -> None:
        assert self._recorder is not None
        facts = await self.facts()
        self._service = await asyncio.to_thread(
            build_service, self._config, tokenizer, self._source, facts, self._recorder.record
        )
        self._apply(LiveSettings(), self._keys)
        garbage.settle()

    def policy_port(self) -> PolicyAccess:
        return self._policy

    async def __del__(self) -> None:
        await EngineReplica.__del__(self)
        if self._recorder is not None:
            await asyncio.to_thread(self._recorder.close)


def _load(
    config: AppConfig,
    report: Callable[[str], None],
    may_calibrate: Callable[[Introduction], bool],
) -> "tuple[EngineLoop, PreTrainedTokenizerFast, Knowledge | None, LoadReport]":
    """Build the engine, read its tokenizer, what is known of its kind and what tells of its load.

    Raises ConfigError."""
    report("importing torch")
    from deployments.autoscaling.report import LoadReport
    from deployments.knowledge import Knowledge
    from deployments.models.cache import default_home
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
    garbage.settle()
    return loop, tokenizer, knowledge, load_report


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


@asynccontextmanager
async def _failures_reported(replica_id: str) -> AsyncGenerator[None, None]:
    """Tells the policy actor, where there is one, why a replica does not start."""
    try:
        yield
    except Exception as error:
        with suppress(Exception):
            async with asyncio.timeout(REPORT_FAILURE_S):
                client = await connect_policy_actor()
                await client.note_stage(replica_id, f"failed: {in_one_line(error)}")
        raise
