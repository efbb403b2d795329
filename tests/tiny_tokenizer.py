"""Tokenizers small enough to build in a test: trained on a few sentences, with a chat template."""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

SENTENCES = (
    "The quick brown fox jumps over the lazy dog. The dog does not mind; the fox is quick.",
    "Paceline drafts a few tokens, verifies them in one pass, and keeps what the target says.",
    "Héllo wörld, naïve café: 你好，世界 🙂👍🏽 and so on.",
    "One two three, one two three.\n\n- first\n- second\n    indented = True\n",
)
BOS, EOS, END_OF_TURN = "<|bos|>", "<|eos|>", "<|end|>"
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'system' and not loop.first %}"
    "{{ raise_exception('a system message must come first') }}{% endif %}"
    "<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def byte_level_tokenizer(vocab_size: int = 384) -> PreTrainedTokenizerFast:
    """Byte-level BPE (as GPT-2, Llama 3, Qwen, SmolLM have) that puts BOS before a plain prompt.

    Special tokens: 0 is BOS, 1 EOS, 2 the end of a turn.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        SENTENCES,
        trainers.BpeTrainer(
            vocab_size=vocab_size,
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            special_tokens=[BOS, EOS, END_OF_TURN],
            show_progress=False,
        ),
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, tokenizer.token_to_id(BOS))]
    )
    return _wrapped(tokenizer)


def byte_fallback_tokenizer() -> PreTrainedTokenizerFast:
    """SentencePiece style (as Llama 2, Gemma, Mistral have): metaspaces, and raw bytes as tokens.

    Special tokens as in `byte_level_tokenizer`; token 3 + b is byte b.
    """
    pieces = ["▁", "▁▁", "a", "▁a", "b", "▁b", "ab", "▁ab", "c", ".", "é", "▁é", "好", "�", "the"]
    vocab = {
        token: index
        for index, token in enumerate(
            [BOS, EOS, END_OF_TURN, *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
        )
    }
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(split=False)
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.add_special_tokens([BOS, EOS, END_OF_TURN])
    return _wrapped(tokenizer)


def metaspace_tokenizer() -> PreTrainedTokenizerFast:
    """The pieces of `byte_fallback_tokenizer`, under a decoder that knows nothing of bytes."""
    tokenizer = byte_fallback_tokenizer()
    tokenizer.backend_tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def _wrapped(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    wrapped = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, bos_token=BOS, eos_token=EOS
    )
    wrapped.chat_template = CHAT_TEMPLATE
    return wrapped
