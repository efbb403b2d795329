"""The application's configuration: one YAML file or a dictionary, validated once, then frozen.

Every fault is a ConfigError of one line that names the key, the value and what is allowed.
Every key is explained in `examples/config.yaml`.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from cluster.placement import Placement, placement_of
from deployments.autoscaling.decision import Targets
from deployments.config_errors import describe_fault, load_yaml
from deployments.models.cache import default_home
from deployments.models.catalog import DRAFT
from engine.config import DrafterConfig, DtypeName, EngineConfig
from engine.errors import ConfigError
from policy.choice import PolicyChoice, parse_choice

DEFAULT_MODEL = "smollm2-135m"
CONTROL_SLOTS = 64
"""Requests of a replica beyond those its engine takes: for health, models and policy, and for
those that the engine is about to refuse."""


def absolute_path(value: object) -> object:
    """Raises ValueError for a path that would depend on where a process was started."""
    if isinstance(value, str) and not value.startswith("/"):
        raise ValueError(
            f"must be an absolute path, as it is read where the replica runs, got {value!r}"
        )
    return value


def read_policy(value: object) -> PolicyChoice:
    """Raises ValueError."""
    return value if isinstance(value, PolicyChoice) else parse_choice(value)


class Section(BaseModel):
    """A frozen group of keys: unknown keys and wrong types are refused."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, protected_namespaces=()
    )


class DrafterSection(Section):
    kind: Literal["auto", "none", "ngram", "model", "cascade"] = "auto"
    model: Annotated[str, Field(min_length=1)] | None = None
    max_ngram: int = Field(3, ge=1, le=16)
    min_ngram: int = Field(2, ge=1, le=16)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        has_model = self.kind in ("model", "cascade")
        if has_model and self.model is None:
            raise ValueError(
                f"model must name the draft model when kind is {self.kind!r}, got nothing"
            )
        if not has_model and self.model is not None:
            raise ValueError(
                f"model is only for kinds 'model' and 'cascade', got {self.model!r} with kind "
                f"{self.kind!r}"
            )
        if self.min_ngram > self.max_ngram:
            raise ValueError(
                f"min_ngram must be at most max_ngram ({self.max_ngram}), got {self.min_ngram}"
            )
        return self


class EngineSection(Section):
    dtype: Literal["auto", "bfloat16", "float32", "float16"] = "auto"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    max_num_seqs: int = Field(32, ge=1, le=4096)
    max_num_waiting: int = Field(1024, ge=1)
    max_waiting_tokens: int = Field(2**24, ge=1)
    stall_s: float = Field(10.0, gt=0)
    max_step_tokens: int = Field(512, ge=1)
    max_model_len: int | None = Field(None, ge=2)
    max_draft_len: int = Field(8, ge=0, le=16)
    block_size: int = Field(16, ge=1, le=1024)
    kv_cache_mb: int = Field(512, ge=1)
    num_threads: int | None = Field(None, ge=1, le=1024)
    compile: bool = True
    trust_remote_code: bool = False
    tp_size: int = Field(1, ge=1, le=64)


class ServerSection(Section):
    host: str = Field("127.0.0.1", min_length=1)
    port: int = Field(8000, ge=1, le=65535)
    max_body_bytes: int = Field(2**20, ge=1024)
    api_keys_file: Annotated[str, BeforeValidator(absolute_path)] | None = None
    cors_origins: list[Annotated[str, Field(min_length=1)]] = Field(default_factory=list)
    request_timeout_s: float | None = Field(None, gt=0)


class LimitsSection(Section):
    max_prompt_tokens: int | None = Field(None, ge=1)
    max_n: int | None = Field(None, ge=1)
    max_total_tokens: int | None = Field(None, ge=2)


class ReplicasSection(Section):
    num_replicas: int = Field(1, ge=1)
    max_ongoing_requests: int | None = Field(None, ge=1)
    num_cpus: float = Field(1.0, ge=0)
    num_gpus: float = Field(0.0, ge=0)
    routing: Literal["least_tokens", "two_choices"] = "least_tokens"
    placement: Literal["STRICT_PACK", "PACK"] = "STRICT_PACK"
    graceful_shutdown_timeout_s: float = Field(120.0, ge=0)
    max_surge_percent: int = Field(0, ge=0, le=100)


class LogsSection(Section):
    format: Literal["console", "json"] = "console"
    level: Literal["debug", "info", "warning", "error"] = "info"
    folder: Annotated[str, BeforeValidator(absolute_path)] | None = None


class RouterSection(Section):
    num_replicas: int = Field(2, ge=1)
    num_cpus: float = Field(0.0, ge=0)
    max_wait_s: float = Field(300.0, gt=0)


_TARGETS = Targets()


class AutoscalingSection(Section):
    min_replicas: int = Field(_TARGETS.min_replicas, ge=0)
    max_replicas: int = Field(ge=1)
    target_tpot_ms: float = Field(_TARGETS.target_tpot_ms, gt=0)
    target_ttft_ms: float = Field(_TARGETS.target_ttft_ms, gt=0)
    upscale_delay_s: float = Field(_TARGETS.upscale_delay_s, ge=0)
    downscale_delay_s: float = Field(_TARGETS.downscale_delay_s, ge=0)
    start_s: float = Field(_TARGETS.start_s, ge=0)
    catch_up_s: float = Field(_TARGETS.catch_up_s, gt=0)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.min_replicas > self.max_replicas:
            raise ValueError(
                f"min_replicas must be at most max_replicas ({self.max_replicas}), got "
                f"{self.min_replicas}"
            )
        return self


class AppConfig(Section):
    """The whole configuration."""

    model: str = Field(DEFAULT_MODEL, min_length=1)
    served_model_name: Annotated[str, Field(min_length=1)] | None = None
    drafter: DrafterSection = DrafterSection()
    policy: Annotated[PolicyChoice, BeforeValidator(read_policy)] | None = Field(None)
    engine: EngineSection = EngineSection()
    server: ServerSection = ServerSection()
    limits: LimitsSection = LimitsSection()
    replicas: ReplicasSection = ReplicasSection()
    autoscaling: AutoscalingSection | None = None
    logs: LogsSection = LogsSection()
    resilient: bool = False
    router: RouterSection = RouterSection()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.policy is not None:
            try:
                self.policy.limited_to(self.max_draft_len)
            except ValueError as error:
                raise ValueError(f"policy: {error}") from None
        if self.engine.device == "cuda" and self.replicas.num_gpus == 0:
            raise ValueError(
                "replicas.num_gpus must be above 0 when engine.device is 'cuda', got 0"
            )
        if self.engine.tp_size > 1:
            try:
                _ = self.rank_placement
            except ConfigError as error:
                raise ValueError(str(error)) from None
        if self.autoscaling is not None and "num_replicas" in self.replicas.model_fields_set:
            raise ValueError(
                "replicas.num_replicas and autoscaling exclude each other; leave one of them out, "
                f"got num_replicas {self.replicas.num_replicas} and autoscaling with max_replicas "
                f"{self.autoscaling.max_replicas}"
            )
        asked = self.replicas.max_ongoing_requests
        if asked is not None and asked <= self._max_engine_requests:
            raise ValueError(
                f"replicas.max_ongoing_requests must be above engine.max_num_seqs + "
                f"engine.max_num_waiting ({self._max_engine_requests}), got {asked}"
            )
        return self

    @property
    def model_name(self) -> str:
        """The name under which clients ask for the model."""
        if self.served_model_name is not None:
            return self.served_model_name
        from deployments.models.store import find_folder

        folder = find_folder(self.model)
        return folder.name or self.model if folder is not None else self.model

    @property
    def most_replicas(self) -> int:
        """Replicas at once, at most."""
        if self.autoscaling is not None:
            return self.autoscaling.max_replicas
        return self.replicas.num_replicas

    @property
    def _max_engine_requests(self) -> int:
        return self.engine.max_num_seqs + self.engine.max_num_waiting

    @property
    def max_ongoing_requests(self) -> int:
        """Requests a replica takes at once: more than its engine does, so that the engine is who
        refuses, in the API's own words, and a full engine still answers about itself."""
        return self.replicas.max_ongoing_requests or self._max_engine_requests + CONTROL_SLOTS

    @property
    def max_routed_requests(self) -> int:
        """Requests a router takes at once: as many as all replicas together."""
        return self.most_replicas * self._max_engine_requests + CONTROL_SLOTS

    @property
    def rank_placement(self) -> Placement:
        """Where the ranks of a replica go. Raises ConfigError for what no rank can run with."""
        replicas = self.replicas
        return placement_of(
            self.engine.tp_size, replicas.num_cpus, replicas.num_gpus, replicas.placement
        )

    @property
    def max_draft_len(self) -> int:
        """Longest draft the engine can make, in tokens; 0 without a drafter."""
        return 0 if self.drafter.kind == "none" else self.engine.max_draft_len

    @property
    def initial_policy(self) -> PolicyChoice:
        """The configured policy; without one, adaptive where anything can be drafted."""
        if self.policy is not None:
            return self.policy
        return parse_choice("adaptive" if self.max_draft_len else "off")

    def with_models_found(self) -> "AppConfig":
        """The same with models as absolute folders. Raises ConfigError when one is missing."""
        model, drafter = _folder("model", self.model), self.drafter
        if drafter.model is not None:
            folder = _folder("drafter.model", drafter.model)
            drafter = drafter.model_copy(update={"model": str(folder)})
        elif drafter.kind == "auto":
            drafter = drafter.model_copy(update=_own_draft(model))
        return self.model_copy(
            update={
                "model": str(model),
                "served_model_name": self.model_name,
                "drafter": drafter,
            }
        )

    def engine_config(self) -> EngineConfig:
        """The engine's part, for the machine this runs on. Raises ConfigError (a missing model)."""
        found = self.with_models_found()
        engine, drafter = found.engine, found.drafter
        assert drafter.kind != "auto"
        device = machine_device(engine.device, "engine.device")
        return EngineConfig(
            model=Path(found.model),
            drafter=DrafterConfig(
                kind=drafter.kind,
                model=Path(drafter.model) if drafter.model is not None else None,
                max_ngram=drafter.max_ngram,
                min_ngram=drafter.min_ngram,
            ),
            dtype=machine_dtype(engine.dtype, device, Path(found.model)),
            device=device,
            max_num_seqs=engine.max_num_seqs,
            max_num_waiting=engine.max_num_waiting,
            max_waiting_tokens=engine.max_waiting_tokens,
            stall_s=engine.stall_s,
            max_step_tokens=engine.max_step_tokens,
            max_model_len=engine.max_model_len,
            max_draft_len=engine.max_draft_len,
            block_size=engine.block_size,
            kv_cache_bytes=engine.kv_cache_mb * 2**20,
            num_threads=engine.num_threads or self._default_num_threads(),
            compile_folder=default_home() / "compiled" if engine.compile else None,
            trust_remote_code=engine.trust_remote_code,
            tp_size=engine.tp_size,
        )

    def _default_num_threads(self) -> int:
        # Ray sets OMP_NUM_THREADS from num_cpus, so torch's own default would be one thread.
        processes = self.most_replicas * self.engine.tp_size
        return max(1, len(os.sched_getaffinity(0)) // processes)


def parse_config(values: Mapping[str, Any], where: str) -> AppConfig:
    """Validate a dictionary. Raises ConfigError, which `where` (a file's name, say) begins."""
    try:
        return AppConfig.model_validate(dict(values))
    except ValidationError as error:
        raise ConfigError(f"{where}: {describe_fault(error, AppConfig)}") from None
    except RecursionError:
        raise ConfigError(f"{where}: values are nested too deeply") from None


def load_config(path: Path) -> AppConfig:
    """Read and validate a YAML file. Raises ConfigError."""
    return parse_config(load_yaml(path), str(path))


def _folder(key: str, name: str) -> Path:
    from deployments.models.store import resolve_model

    return resolve_model(name, key=key).absolute()


def _own_draft(model: Path) -> dict[str, str]:
    """The drafter for a model about which nothing was said: the draft that lies in its folder."""
    draft = model / DRAFT
    if (draft / "config.json").is_file():
        return {"kind": "cascade", "model": str(draft)}
    return {"kind": "ngram"}


def machine_device(device: str, key: str) -> str:
    """What `auto` means here. Raises ConfigError, which `key` begins, where there is no such."""
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"{key}: 'cuda' was asked for, but torch sees no CUDA device here")
    return device


def machine_dtype(
    dtype: Literal["auto", "bfloat16", "float32", "float16"], device: str, model: Path
) -> DtypeName:
    """What `auto` means for this model here."""
    if dtype != "auto":
        return dtype
    import torch

    if device == "cuda" or torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return "bfloat16"
    # Computed in float32 either way, so the weights as they are stored lose nothing.
    return _stored_dtype(model)


def _stored_dtype(model: Path) -> DtypeName:
    """Of a checkpoint's weights, as it says itself; float32 where it does not."""
    try:
        told = json.loads((model / "config.json").read_text())
        stored = told.get("dtype", told.get("torch_dtype"))
    except (OSError, ValueError, AttributeError):
        return "float32"  # what is wrong is said when the model is loaded
    return stored if stored in ("bfloat16", "float16") else "float32"
