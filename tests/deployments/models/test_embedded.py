"""The embedded model itself, as `paceline models get` makes it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer

from deployments.models.cache import ModelCache
from deployments.models.catalog import EMBEDDED


def test_folder_is_whole_and_says_what_it_is(smollm2: Path) -> None:
    assert ModelCache().find_damage(EMBEDDED["smollm2-135m"], checksums=True) is None
    readme = (smollm2 / "README.md").read_text()
    assert "4-bit" in readme
    assert "dequantised" in readme
    assert "Apache License" in (smollm2 / "LICENSE").read_text()


def test_config_is_of_what_was_written(smollm2: Path) -> None:
    config = json.loads((smollm2 / "config.json").read_text())
    assert config["dtype"] == "bfloat16"
    assert not {"quantization_config", "_name_or_path", "_model_name_or_path"} & set(config)
    with safe_open(smollm2 / "model.safetensors", framework="pt") as weights:
        names = set(weights.keys())
        assert "lm_head.weight" not in names
        assert {weights.get_tensor(name).dtype for name in names} == {torch.bfloat16}


def test_model_answers_through_its_chat_template(smollm2: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    model = AutoModelForCausalLM.from_pretrained(smollm2, dtype=torch.float32)
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}],
        add_generation_prompt=True,
        tokenize=False,
    )
    assert isinstance(text, str)
    prompt = tokenizer(text, return_tensors="pt")
    output = model.generate(**prompt, max_new_tokens=12, do_sample=False)
    answer = tokenizer.decode(output[0], skip_special_tokens=True)
    assert "Paris" in answer


@pytest.mark.usefixtures("smollm2")
def test_get_of_a_model_that_is_there_starts_no_pytorch() -> None:
    code = (
        "import sys\n"
        "from deployments.models.commands import models_app\n"
        "models_app(['get', 'smollm2-135m'], standalone_mode=False)\n"
        "assert not {'torch', 'transformers', 'ray'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("smollm2-135m is ready in ")
