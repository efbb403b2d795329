"""GGUF -> a folder in Hugging Face format. Imports torch: import it only when there is work."""

import json
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from deployments.models.progress import Progress

_CONFIG_DROPS = ("quantization_config", "_name_or_path", "_model_name_or_path")
"""True of the GGUF file, false of what is written here."""

_TOKENIZER_DROPS = ("is_local", "local_files_only", "name_or_path")


def convert_gguf(gguf: Path, into: Path, progress: Progress) -> None:
    """Write weights (bfloat16 safetensors), config, tokenizer and chat template to `into`.

    Raises OSError when they can't be written.
    """
    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    # The bars of transformers go to stderr, where they would tear ours.
    with progress.stage("Reading the tokenizer"), redirect_stderr(StringIO()):
        tokenizer = AutoTokenizer.from_pretrained(**source)
        tokenizer.save_pretrained(into)
    # A class name that every release of transformers knows.
    _edit_json(
        into / "tokenizer_config.json", _TOKENIZER_DROPS, tokenizer_class="PreTrainedTokenizerFast"
    )
    with progress.stage("Dequantising the weights"), redirect_stderr(StringIO()):
        model = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    with progress.stage("Writing the weights"):
        # save_pretrained refuses a model that was read from GGUF, so its parts are written here.
        model.config.save_pretrained(into)
        model.generation_config.save_pretrained(into)
        state = model.state_dict()
        if model.config.tie_word_embeddings:
            state.pop("lm_head.weight", None)
        _save(
            {name: value.to(torch.bfloat16).contiguous() for name, value in state.items()},
            into / "model.safetensors",
        )
    _edit_json(into / "config.json", _CONFIG_DROPS, dtype="bfloat16")
    _edit_json(into / "generation_config.json", ("_from_model_config",))


def _save(weights: dict[str, torch.Tensor], path: Path) -> None:
    try:
        save_file(weights, path, metadata={"format": "pt"})
    except SafetensorError as error:  # a full disk, for one
        raise OSError(str(error)) from error


def _edit_json(path: Path, drops: tuple[str, ...], **changes: str) -> None:
    content = json.loads(path.read_text())
    kept = {key: value for key, value in content.items() if key not in drops}
    path.write_text(json.dumps(kept | changes, indent=2, ensure_ascii=False) + "\n")
