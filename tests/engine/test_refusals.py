"""What can't be served is refused from config.json alone: these folders have no weights to read."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from engine import attention, structure
from engine.config import DrafterConfig
from engine.errors import ConfigError
from engine.probe import probe
from tests.engine.families import HYBRID, MOE, WINDOW, make_config, save, save_config
from tests.engine.harness import tiny_engine
from tests.pickled import pickle_weights
from tests.tiny_tokenizer import byte_level_tokenizer

SPARSE = {"num_local_experts": 4, "num_experts_per_tok": 2}
MAMBA = {"mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 8}
REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "mamba": ("mamba", {"state_size": 4}, "recurrent state"),
    "rwkv": ("rwkv", {}, "recurrent state"),
    "jamba": ("jamba", SPARSE, "recurrent state"),
    "falcon_h1": ("falcon_h1", MAMBA, "recurrent state"),
    "qwen3_next": ("qwen3_next", MOE, "recurrent state"),
    "lfm2": ("lfm2", {"layer_types": ["conv", "full_attention"]}, "recurrent state"),
    "minimax": ("minimax", SPARSE, "recurrent state"),
    "gpt_oss": ("gpt_oss", SPARSE, "it has attention sinks"),
    "falcon, alibi": ("falcon", {"alibi": True}, r"ALiBi"),
    "bloom": ("bloom", {}, r"ALiBi"),
    "mpt": ("mpt", {"d_model": 32, "n_heads": 4, "n_layers": 2}, r"ALiBi"),
    "bert": ("bert", {}, "as an encoder's does"),
    "gemma3_text, bidirectional": (
        "gemma3_text",
        {**HYBRID, "use_bidirectional_attention": True},
        "as an encoder's does",
    ),
    "llama4_text": (
        "llama4_text",
        {"attention_chunk_size": 8, "intermediate_size_mlp": 48, **MOE},
        "its layers include 'chunked_attention'",
    ),
    "qwen2_moe, window": (
        "qwen2_moe",
        {
            **WINDOW,
            "use_sliding_window": True,
            "layer_types": ["full_attention", "sliding_attention"],
            "shared_expert_intermediate_size": 16,
            **MOE,
        },
        "layer 1 keeps its sliding window to itself",
    ),
    "qwen2_moe, window beyond the proof": (
        "qwen2_moe",
        {
            "sliding_window": 50,
            "use_sliding_window": True,
            "layer_types": ["full_attention", "sliding_attention"],
            "shared_expert_intermediate_size": 16,
            **MOE,
        },
        "layer 1 keeps its sliding window to itself",
    ),
    "diffllama": ("diffllama", {}, "attends more than once"),
    "doge": ("doge", {}, "a mask of its own"),
    "gpt_neo": (
        "gpt_neo",
        {"num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]]},
        "AttentionInterface",
    ),
    "xglm": ("xglm", {"d_model": 32, "attention_heads": 4, "num_layers": 2}, "AttentionInterface"),
}
BY_NAME = {
    "t5": "it is an encoder-decoder",
    "bart": "it is an encoder-decoder",
    "whisper": "it is an encoder-decoder",
    "llava": r"it is multimodal \(LlavaForConditionalGeneration\)",
    "qwen2_vl": r"it is multimodal \(Qwen2VLForConditionalGeneration\)",
    "gemma3": r"it is multimodal \(Gemma3ForConditionalGeneration\)",
    "fuyu": r"it is multimodal \(FuyuForCausalLM\)",
    "qwen3_5": "recurrent state",
    "distilbert": "it is an encoder",
    "vit": "no causal language model",
}


def refusal(folder: Path, **overrides: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        tiny_engine(folder, **overrides)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.filterwarnings("ignore")  # these models' own code
@pytest.mark.parametrize("name", REFUSED)
def test_refused_without_weights(name: str, tmp_path: Path) -> None:
    model_type, overrides, reason = REFUSED[name]
    save_config(model_type, tmp_path, overrides)
    with pytest.raises(ConfigError, match=f"model type '{model_type}' cannot be .*{reason}"):
        tiny_engine(tmp_path)


@pytest.mark.parametrize("model_type", BY_NAME)
def test_refused_by_name(model_type: str, tmp_path: Path) -> None:
    """In full size: a twin on `meta` needs no memory."""
    AutoConfig.for_model(model_type).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=f"model type '{model_type}' cannot be .*") as caught:
        tiny_engine(tmp_path)
    assert caught.match(BY_NAME[model_type])


def test_the_architecture_is_named_before_damaged_weights(tmp_path: Path) -> None:
    save_config("mamba", tmp_path, {})
    (tmp_path / "model.safetensors").write_bytes(b"not a safetensors file")
    assert "model type 'mamba' cannot be served" in refusal(tmp_path)


def test_damaged_weights_of_a_good_architecture(tmp_path: Path) -> None:
    save_config("llama", tmp_path, {})
    (tmp_path / "model.safetensors").write_bytes(b"not a safetensors file")
    assert f"model {tmp_path}: cannot be loaded" in refusal(tmp_path)


def test_a_draft_is_checked_before_the_target_is_loaded(tmp_path: Path) -> None:
    target, draft = tmp_path / "target", tmp_path / "draft"
    save_config("llama", target, {})
    save_config("mamba", draft, {})
    drafter = DrafterConfig(kind="model", model=draft)
    assert "model type 'mamba'" in refusal(target, drafter=drafter)


def test_a_model_type_that_transformers_does_not_know(tmp_path: Path) -> None:
    save_config("llama", tmp_path, {})
    config = json.loads((tmp_path / "config.json").read_text()) | {"model_type": "novel"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert "novel" in refusal(tmp_path)


def test_the_reason_on_the_line_behind_a_colon(tmp_path: Path) -> None:
    save_config("llama", tmp_path, {})
    config = json.loads((tmp_path / "config.json").read_text()) | {"hidden_size": 30}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert "30" in refusal(tmp_path)


class TestProof:
    """What only numbers show, on models whose structure is in order."""

    def prove(self, model: Any) -> None:
        probe(model, torch.float32, torch.device("cpu"))

    def model(self, model_type: str, **overrides: Any) -> Any:
        torch.manual_seed(3)
        attention.register()
        model = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
            make_config(model_type, overrides),
            dtype=torch.float32,
            attn_implementation=attention.ATTENTION_NAME,
        )
        return model.eval()

    @pytest.mark.parametrize("model_type", ["llama", "gpt2", "bert"])
    def test_passed(self, model_type: str) -> None:
        self.prove(self.model(model_type, is_decoder=True))

    def test_tokens_that_mix_outside_attention(self) -> None:
        model = self.model("llama")
        norm = model.model.norm
        norm.register_forward_hook(lambda _module, _args, out: out + out.roll(1, dims=1))
        with pytest.raises(ConfigError, match="logits differ from its own"):
            self.prove(model)

    def test_positions_that_do_not_start_at_zero(self) -> None:
        model = self.model("roberta", is_decoder=True, pad_token_id=1)
        with pytest.raises(ConfigError, match="logits differ from its own"):
            self.prove(model)

    def test_a_table_of_positions_that_is_too_short(self) -> None:
        model = self.model("gpt2")
        model.config.n_positions += 1
        with pytest.raises(ConfigError, match="IndexError"):
            self.prove(model)

    def test_logits_of_all_positions(self) -> None:
        model = self.model("llama")
        forward = model.forward
        model.forward = lambda logits_to_keep=0, **kwargs: forward(**kwargs)
        with pytest.raises(ConfigError, match="logits for all positions"):
            self.prove(model)

    def test_more_logits_than_embeddings(self) -> None:
        model = self.model("llama")
        model.lm_head = torch.nn.Linear(32, 400, bias=False)
        with pytest.raises(ConfigError, match="logits for 400 tokens"):
            self.prove(model)


@pytest.mark.parametrize("window", [None, 1, 7, 4096])
def test_masks_are_compared_at_any_distance(window: int | None) -> None:
    def mask(visible: Any) -> torch.Tensor:
        tensor = torch.zeros(1, 1, 2, 2)
        setattr(tensor, structure.PREDICATE, visible)
        return tensor

    def within(size: int | None) -> Any:
        return lambda _b, _h, q, k: (k <= q) if size is None else (k <= q) & (k > q - size)

    def chunked(_b: Any, _h: Any, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return (k <= q) & (k // 8192 == q // 8192)

    structure._require_mask(0, mask(within(window)), window, 32768)
    wrong = [chunked, within(8192), within((window or 32767) + 1), within((window or 16384) - 1)]
    for visible in wrong:
        if window is None and visible is wrong[2]:
            continue  # hides nothing within the limit
        with pytest.raises(ConfigError, match="layer 0"):
            structure._require_mask(0, mask(visible), window, 32768)


@pytest.mark.parametrize("content", ["{", '{"eos_token_id": "x"}', '{"eos_token_id": [[1]]}', "[]"])
def test_a_damaged_generation_config_is_one_line(tmp_path: Path, content: str) -> None:
    save("qwen2", tmp_path, {})
    (tmp_path / "generation_config.json").write_text(content)
    refusal(tmp_path)


def test_more_kv_cache_than_memory_is_refused(tmp_path: Path) -> None:
    save("qwen2", tmp_path, {})
    assert "engine.kv_cache_mb" in refusal(tmp_path, num_blocks=None, kv_cache_bytes=10**18)


def test_a_folder_without_a_config(tmp_path: Path) -> None:
    byte_level_tokenizer().save_pretrained(tmp_path)
    assert "no config.json" in refusal(tmp_path)


def test_pickled_weights_are_refused_unread(tmp_path: Path) -> None:
    folder, trace = tmp_path / "model", tmp_path / "trace"
    save("llama", folder, {})
    pickle_weights(folder, trace)
    with pytest.raises(ConfigError, match=r"pytorch_model\.bin holds pickled weights"):
        tiny_engine(folder)
    assert not trace.exists()
