"""The engine's own configuration: frozen, validated once, derived values as properties."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from engine.errors import ConfigError

DtypeName = Literal["float32", "bfloat16", "float16"]


@dataclass(frozen=True, slots=True)
class DrafterConfig:
    """Which drafter stands beside the target."""

    kind: Literal["none", "ngram", "model", "cascade"] = "ngram"
    model: Path | None = None
    """Folder of the draft model (kinds "model" and "cascade")."""
    max_ngram: int = 3
    min_ngram: int = 2
    """Longest and shortest run of last tokens that is looked up (kinds "ngram" and "cascade")."""

    def __post_init__(self) -> None:
        if (self.kind in ("model", "cascade")) != (self.model is not None):
            raise ConfigError(
                f"drafter.model must be given exactly when drafter.kind is 'model' or 'cascade', "
                f"got kind {self.kind!r} and model {self.model}"
            )
        if not 1 <= self.min_ngram <= self.max_ngram:
            raise ConfigError(
                f"drafter.min_ngram must be between 1 and max_ngram ({self.max_ngram}), "
                f"got {self.min_ngram}"
            )


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Everything an engine needs to start. Sizes are in tokens or sequences unless named."""

    model: Path
    """Folder in Hugging Face format (config.json, safetensors, tokenizer)."""
    drafter: DrafterConfig = DrafterConfig()
    dtype: DtypeName = "bfloat16"
    device: str = "cpu"
    """A torch device: "cpu" or "cuda"."""
    max_num_seqs: int = 32
    """Sequences running at once."""
    max_num_waiting: int = 1024
    """Requests queued at once; one more is refused."""
    max_waiting_tokens: int = 2**24
    """Tokens, prompts and new ones that may come, of all queued requests together."""
    stall_s: float = 10.0
    """Seconds without a finished step, while there is work, after which the engine is dead."""
    max_step_tokens: int = 512
    """Known tokens computed in one step, over all sequences: the prefill chunk budget."""
    max_model_len: int | None = None
    """Prompt plus output; None: the model's own limit."""
    max_draft_len: int = 8
    """Longest draft the engine makes, whatever the table says."""
    block_size: int = 16
    kv_cache_bytes: int = 512 * 2**20
    """Memory for the KV cache of target and draft together."""
    num_blocks: int | None = None
    """KV blocks; None: as many as fit `kv_cache_bytes`."""
    num_threads: int | None = None
    """torch's CPU threads; None: torch's default."""
    compile_folder: Path | None = None
    """Where compiled forwards are kept (`kernels/compiled.py`); None: nothing is compiled."""
    trust_remote_code: bool = False
    tp_size: int = 1
    """Ranks that the target is sharded over."""

    def __post_init__(self) -> None:
        for name in (
            "tp_size",
            "max_num_seqs",
            "max_num_waiting",
            "max_waiting_tokens",
            "max_step_tokens",
            "block_size",
            "kv_cache_bytes",
        ):
            if getattr(self, name) < 1:
                raise ConfigError(f"engine.{name} must be at least 1, got {getattr(self, name)}")
        for name in ("max_model_len", "num_blocks", "num_threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"engine.{name} must be at least 1, got {value}")
        if self.stall_s <= 0:
            raise ConfigError(f"engine.stall_s must be above 0, got {self.stall_s}")
        if self.max_draft_len < 0:
            raise ConfigError(f"engine.max_draft_len must be 0 or more, got {self.max_draft_len}")
