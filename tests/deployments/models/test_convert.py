"""A small GGUF file, written here, becomes a folder that transformers reads as the same model."""

from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFWriter, quants
from transformers import AutoModelForCausalLM, AutoTokenizer

from deployments.models.convert import convert_gguf
from deployments.models.progress import Silent

HIDDEN, INNER, HEADS, LAYERS = 64, 96, 4, 2
LETTERS = [chr(code) for code in range(ord("a"), ord("z") + 1)]
TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *LETTERS, "Ġ", "th", "the"]
TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def write_gguf(path: Path, *, tied: bool) -> None:
    """A Llama of random weights, its matrices in 4 bits."""
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, 3, 3] + [1] * (len(TOKENS) - 3))
    writer.add_token_merges(["t h", "th e"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template(TEMPLATE)
    random = np.random.default_rng(0)

    def add(name: str, *shape: int) -> None:
        values = random.normal(size=shape).astype(np.float32)
        if len(shape) == 1:
            writer.add_tensor(name, values)
            return
        kind = GGMLQuantizationType.Q4_1
        writer.add_tensor(name, quants.quantize(values, kind), raw_dtype=kind)

    add("token_embd.weight", len(TOKENS), HIDDEN)
    for layer in range(LAYERS):
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"blk.{layer}.{part}.weight", HIDDEN, HIDDEN)
        add(f"blk.{layer}.ffn_gate.weight", INNER, HIDDEN)
        add(f"blk.{layer}.ffn_up.weight", INNER, HIDDEN)
        add(f"blk.{layer}.ffn_down.weight", HIDDEN, INNER)
        add(f"blk.{layer}.attn_norm.weight", HIDDEN)
        add(f"blk.{layer}.ffn_norm.weight", HIDDEN)
    add("output_norm.weight", HIDDEN)
    if not tied:
        add("output.weight", len(TOKENS), HIDDEN)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("tied", [True, False])
def test_folder_holds_the_same_model(tmp_path: Path, tied: bool) -> None:
    write_gguf(tmp_path / "tiny.gguf", tied=tied)
    folder = tmp_path / "folder"
    folder.mkdir()
    convert_gguf(tmp_path / "tiny.gguf", folder, Silent())

    original = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="tiny.gguf")
    converted = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    assert converted.config.tie_word_embeddings is tied
    expected = {name: value.bfloat16().float() for name, value in original.state_dict().items()}
    actual = converted.state_dict()
    assert expected.keys() == actual.keys()
    assert all(torch.equal(expected[name], actual[name]) for name in expected)

    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer("the cat").input_ids == [TOKENS.index(token) for token in ["the", "Ġ", *"cat"]]
    assert tokenizer.chat_template == TEMPLATE
    assert tokenizer.eos_token_id == 2
