"""Detokenising: whatever arrives in pieces must equal the whole."""

from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from deployments.text.detokenizer import Detokenizer
from tests.deployments.text.tokens import letters, token_lists, whole
from tests.tiny_tokenizer import byte_level_tokenizer, metaspace_tokenizer


@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_pieces_and_flush_make_the_decoded_whole(
    tokenizer: PreTrainedTokenizerFast, data: st.DataObject
) -> None:
    ids = data.draw(token_lists(tokenizer))
    skips = data.draw(st.booleans())
    detokenizer = Detokenizer(tokenizer)
    stream = (detokenizer if skips else detokenizer.showing_special()).stream()
    text = ""
    settles = data.draw(st.booleans())
    for count, token_id in enumerate(ids, start=1):
        if settles:
            text += stream.settle(token_id)
            assert whole(tokenizer, ids[: count - 1], skips_special=skips).startswith(text)
        text += stream.push(token_id)
        assert whole(tokenizer, ids[:count], skips_special=skips).startswith(text)
    assert text + stream.flush() == whole(tokenizer, ids, skips_special=skips)


def test_text_comes_with_its_own_token(byte_level: PreTrainedTokenizerFast) -> None:
    ids = byte_level("The quick brown fox", add_special_tokens=False)["input_ids"]
    stream = Detokenizer(byte_level).stream()
    assert [stream.push(token_id) for token_id in ids] == [whole(byte_level, [i]) for i in ids]


def test_an_incomplete_character_waits(byte_level: PreTrainedTokenizerFast) -> None:
    first, *rest = byte_level.backend_tokenizer.pre_tokenizer.pre_tokenize_str("界")[0][0]
    ids = letters(byte_level, [first, *rest])
    stream = Detokenizer(byte_level).stream()
    assert [stream.push(token_id) for token_id in ids] == ["", "", "界"]


def test_certain_text_comes_before_the_rest_of_its_token(
    byte_level: PreTrainedTokenizerFast,
) -> None:
    stream = Detokenizer(byte_level).stream()
    incomplete, letter = letters(byte_level, "ça")  # one byte each: 0xE7 begins a character
    assert [stream.push(token_id) for token_id in (incomplete, incomplete, letter)] == [
        "",
        "\ufffd",
        "\ufffda",
    ]


def test_byte_level_added_tokens_outside_the_alphabet_stand_for_themselves() -> None:
    tokenizer = byte_level_tokenizer()
    tokenizer.add_tokens(["<a b>", "好"])
    ids = letters(tokenizer, ["x", "<a b>", "好", "y"])
    stream = Detokenizer(tokenizer).stream()
    assert "".join(map(stream.push, ids)) == whole(tokenizer, ids) == "x<a b>好y"


def test_endless_replacement_characters_come_as_they_are() -> None:
    tokenizer = metaspace_tokenizer()
    (replacement,) = letters(tokenizer, ["\ufffd"])
    stream = Detokenizer(tokenizer).stream()
    assert [stream.push(replacement) for _ in range(3)] == ["\ufffd"] * 3


def test_special_tokens_make_no_text(byte_level: PreTrainedTokenizerFast) -> None:
    stream = Detokenizer(byte_level).stream()
    assert [stream.push(token_id) for token_id in byte_level.all_special_ids] == ["", ""]
    assert stream.flush() == ""


def test_chosen_special_tokens_make_text(byte_level: PreTrainedTokenizerFast) -> None:
    stream = Detokenizer(byte_level).showing_special({"<|end|>", "x"}).stream()
    assert [stream.push(token_id) for token_id in (0, 1, 2)] == ["", "", "<|end|>"]
