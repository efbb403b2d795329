"""What single tokens are called, and their bytes."""

from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from deployments.text.detokenizer import Detokenizer
from deployments.text.token_texts import token_bytes, token_text
from tests.deployments.text.tokens import letters
from tests.tiny_tokenizer import byte_fallback_tokenizer


@settings(max_examples=200, deadline=None)
@given(text=st.text("ab é好🙂"))
def test_bytes_of_all_tokens_are_the_text(byte_level: PreTrainedTokenizerFast, text: str) -> None:
    ids = byte_level(text, add_special_tokens=False)["input_ids"]
    detokenizer = Detokenizer(byte_level)
    assert b"".join(token_bytes(detokenizer, i) or b"" for i in ids) == text.encode()


def test_no_two_tokens_look_alike(byte_level: PreTrainedTokenizerFast) -> None:
    detokenizer = Detokenizer(byte_level)
    texts = [token_text(detokenizer, token_id) for token_id in range(len(byte_level))]
    assert len(set(texts)) == len(texts)


def test_a_part_of_a_character_is_written_in_bytes(byte_level: PreTrainedTokenizerFast) -> None:
    (incomplete,) = letters(byte_level, "ç")  # the byte 0xE7
    detokenizer = Detokenizer(byte_level)
    assert token_text(detokenizer, incomplete) == "bytes:\\xe7"
    assert token_bytes(detokenizer, incomplete) == b"\xe7"


def test_a_space_before_a_word_is_the_words_own() -> None:
    tokenizer = byte_fallback_tokenizer()
    detokenizer = Detokenizer(tokenizer)
    ids = letters(tokenizer, ["▁a", "▁", "<0xE7>"])
    assert [token_bytes(detokenizer, token_id) for token_id in ids] == [b" a", b" ", b"\xe7"]


def test_special_tokens_have_a_name_and_bytes_where_they_are_shown(
    byte_level: PreTrainedTokenizerFast,
) -> None:
    detokenizer = Detokenizer(byte_level)
    assert token_text(detokenizer, 2) == "<|end|>"
    assert token_bytes(detokenizer, 2) is None
    assert token_bytes(detokenizer.showing_special(), 2) == b"<|end|>"
    assert token_text(detokenizer, 10**6) == "token_id:1000000"
