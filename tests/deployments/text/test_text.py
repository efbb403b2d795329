"""Detokenising and stop strings: whatever arrives in pieces must equal the whole."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, pre_tokenizers
from tokenizers.decoders import Decoder
from transformers import PreTrainedTokenizerFast

from deployments.text.assembler import TextAssembler
from deployments.text.chat_template import render_chat
from deployments.text.detokenizer import Detokenizer
from deployments.text.stop_strings import StopMatcher
from engine.errors import RequestError
from engine.request import FinishReason, TokenDelta
from tests.tiny_tokenizer import (
    byte_fallback_tokenizer,
    byte_level_tokenizer,
    metaspace_tokenizer,
)

BUILDERS: dict[str, Callable[[], PreTrainedTokenizerFast]] = {
    "byte-level": byte_level_tokenizer,
    "byte-fallback": byte_fallback_tokenizer,
    "metaspace": metaspace_tokenizer,
    "byte-level in a sequence": lambda: with_decoder(
        byte_level_tokenizer(), decoders.ByteLevel(), decoders.Fuse()
    ),
    "fused before a replacement": lambda: with_decoder(
        byte_fallback_tokenizer(),
        decoders.ByteFallback(),
        decoders.Fuse(),
        decoders.Replace("▁", " "),
    ),
}


def with_decoder(tokenizer: PreTrainedTokenizerFast, *parts: Decoder) -> PreTrainedTokenizerFast:
    tokenizer.backend_tokenizer.decoder = decoders.Sequence(list(parts))
    return tokenizer


@pytest.fixture(scope="module", params=sorted(BUILDERS))
def tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerFast:
    return BUILDERS[request.param]()


@pytest.fixture(scope="module")
def byte_level() -> PreTrainedTokenizerFast:
    return byte_level_tokenizer()


def whole(tokenizer: PreTrainedTokenizerFast, ids: list[int]) -> str:
    text = tokenizer.decode(ids, skip_special_tokens=True)
    assert isinstance(text, str)
    return text


def letters(tokenizer: PreTrainedTokenizerFast, tokens: Sequence[str]) -> list[int]:
    ids = [tokenizer.backend_tokenizer.token_to_id(token) for token in tokens]
    assert None not in ids
    return [token_id for token_id in ids if token_id is not None]


def token_lists(tokenizer: PreTrainedTokenizerFast) -> Any:
    """Ids at random (mostly invalid UTF-8) and ids of real text; a few beyond the vocabulary."""
    random_ids = st.lists(st.integers(0, len(tokenizer) + 5), max_size=24)
    text_ids = st.text("ab é好🙂\n�", max_size=12).map(
        lambda text: list(tokenizer(text, add_special_tokens=False)["input_ids"])
    )
    return st.lists(random_ids | text_ids, max_size=4).map(
        lambda parts: list(itertools.chain.from_iterable(parts))
    )


@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_pieces_and_flush_make_the_decoded_whole(
    tokenizer: PreTrainedTokenizerFast, data: st.DataObject
) -> None:
    ids = data.draw(token_lists(tokenizer))
    stream = Detokenizer(tokenizer).stream()
    text = ""
    for count, token_id in enumerate(ids, start=1):
        text += stream.push(token_id)
        assert whole(tokenizer, ids[:count]).startswith(text)
    assert text + stream.flush() == whole(tokenizer, ids)


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


class CountingDetokenizer(Detokenizer):
    """Counts the tokens that it decodes, or turns into bytes."""

    num_decoded = 0

    def decode_part(self, token_ids: Sequence[int]) -> str:
        self.num_decoded += len(token_ids)
        return super().decode_part(token_ids)

    def level_bytes(self, token_id: int) -> bytes:
        self.num_decoded += 1
        return super().level_bytes(token_id)


def one_byte_tokens(tokenizer: PreTrainedTokenizerFast, raw: bytes) -> list[int]:
    """Ids of the tokens that are one byte each, whichever way the tokenizer writes them."""
    names = [f"<0x{byte:02X}>" for byte in raw]
    if tokenizer.backend_tokenizer.token_to_id(names[0]) is None:
        # Invalid bytes here are printable in Latin-1, so they are their own names.
        by_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        valid = raw.decode(errors="ignore")
        names = list(by_bytes.pre_tokenize_str(valid)[0][0] if valid else raw.decode("latin-1"))
    return letters(tokenizer, names)


@pytest.mark.parametrize("stop", [[], ["zz"]])
@pytest.mark.parametrize("raw", [b"a", "é🙂".encode(), "\ufffd".encode(), b"\xff", b"\xe7"])
@pytest.mark.parametrize("end", [[], ["c", "a", "b"]])
def test_endless_bytes_cost_linear_time(
    tokenizer: PreTrainedTokenizerFast, stop: list[str], raw: bytes, end: list[str]
) -> None:
    ids = one_byte_tokens(tokenizer, raw) * (2000 // len(raw)) + letters(tokenizer, end)
    detokenizer = CountingDetokenizer(tokenizer)
    assembler = TextAssembler(detokenizer, stop)
    for delta in in_deltas(ids, [], FinishReason.LENGTH):
        assembler.push(delta)
    assert assembler.take() == whole(tokenizer, ids)
    assert detokenizer.num_decoded <= 12 * len(ids)


def test_endless_replacement_characters_come_as_they_are() -> None:
    tokenizer = metaspace_tokenizer()
    (replacement,) = letters(tokenizer, ["\ufffd"])
    stream = Detokenizer(tokenizer).stream()
    assert [stream.push(replacement) for _ in range(3)] == ["\ufffd"] * 3


def test_a_stop_string_ends_a_run_of_bytes_at_its_last_byte() -> None:
    tokenizer = byte_fallback_tokenizer()
    ids = [3 + byte for byte in "xé好y".encode()]
    assembler = TextAssembler(Detokenizer(tokenizer), ["é好"])
    for count, token_id in enumerate(ids, start=1):
        assembler.push(TokenDelta("r", (token_id,)))
        assert assembler.finish_reason is (FinishReason.STOP if count >= 6 else None)
    assert (assembler.take(), assembler.num_tokens) == ("x", 6)


def test_special_tokens_make_no_text(byte_level: PreTrainedTokenizerFast) -> None:
    stream = Detokenizer(byte_level).stream()
    assert [stream.push(token_id) for token_id in byte_level.all_special_ids] == ["", ""]
    assert stream.flush() == ""


@settings(max_examples=400, deadline=None)
@given(
    pieces=st.lists(st.text("ab", max_size=4), max_size=12),
    stop=st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=4),
    data=st.data(),
)
def test_matcher_cuts_at_the_earliest_stop_of_the_first_piece_that_has_one(
    pieces: list[str], stop: list[str], data: st.DataObject
) -> None:
    matcher = StopMatcher(stop)
    shown, seen = "", ""
    for piece in pieces:
        seen += piece
        expected_match = any(text in seen for text in stop)
        cut = data.draw(st.integers(0, len(piece)))
        assert (
            matcher.matches_ahead(piece[:cut]) or matcher.matches_ahead(piece[cut:])
        ) == expected_match
        shown += matcher.push(piece)
        assert matcher.matched == expected_match
        if expected_match:
            assert shown == seen[: min(seen.find(text) for text in stop if text in seen)]
            assert matcher.push("ab") == matcher.flush() == ""
            return
        assert seen.startswith(shown)
        held = seen[len(shown) :]
        longest = max(
            (n for text in stop for n in range(len(text)) if seen.endswith(text[:n])), default=0
        )
        assert len(held) == longest
    assert shown + matcher.flush() == seen


def test_a_long_stop_string_costs_no_more_than_its_length() -> None:
    matcher = StopMatcher(["a" * 100_000 + "b"])
    for _ in range(1000):
        assert matcher.push("a" * 100) == ""
    assert matcher.push("c") == "a" * 100_000 + "c"


def in_deltas(
    ids: list[int], sizes: list[int], last: FinishReason, num_accepted_of: int = 0
) -> list[TokenDelta]:
    deltas, start, sizes = [], 0, [*sizes]
    while start < len(ids):
        size = sizes.pop(0) if sizes else 1
        chunk = tuple(ids[start : start + size])
        start += size
        done = start >= len(ids)
        deltas.append(
            TokenDelta("r", chunk, last if done else None, num_accepted_of, len(chunk) - 1)
        )
    return deltas


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_stop_is_the_same_in_every_division_into_deltas(
    tokenizer: PreTrainedTokenizerFast, data: st.DataObject
) -> None:
    ids = data.draw(token_lists(tokenizer))
    sizes = data.draw(st.lists(st.integers(1, 9), max_size=8))
    # A replacement character may be half of a real one: no stop string can be sure of it.
    stop = data.draw(st.lists(st.text("ab é好\n", min_size=1, max_size=3), max_size=4))
    assembler = TextAssembler(Detokenizer(tokenizer), stop)
    text = ""
    for delta in in_deltas(ids, sizes, FinishReason.LENGTH):
        assembler.push(delta)
        text += assembler.take()

    for count in range(1, len(ids) + 1):
        so_far = whole(tokenizer, ids[:count])
        starts = [so_far.find(s) for s in stop if s in so_far]
        if starts:
            assert assembler.finish_reason is FinishReason.STOP
            assert (text, assembler.num_tokens) == (so_far[: min(starts)], count)
            return
    assert text == whole(tokenizer, ids)
    assert assembler.num_tokens == len(ids)
    assert assembler.finish_reason is (FinishReason.LENGTH if ids else None)


def test_stop_across_tokens_and_inside_a_delta(byte_level: PreTrainedTokenizerFast) -> None:
    assembler = TextAssembler(Detokenizer(byte_level), ["ab"])
    assembler.push(TokenDelta("r", tuple(letters(byte_level, "xa"))))
    assert assembler.take() == "x"
    assembler.push(TokenDelta("r", tuple(letters(byte_level, "bcde")), None, 5, 3))
    assert assembler.take() == ""
    assert assembler.finish_reason is FinishReason.STOP
    assert (assembler.num_tokens, assembler.num_accepted, assembler.num_rejected) == (3, 1, 4)


def test_a_stop_on_the_very_last_token_is_a_stop(byte_level: PreTrainedTokenizerFast) -> None:
    assembler = TextAssembler(Detokenizer(byte_level), ["ab"])
    assembler.push(TokenDelta("r", tuple(letters(byte_level, "xab")), FinishReason.LENGTH))
    assert (assembler.take(), assembler.finish_reason) == ("x", FinishReason.STOP)


def test_text_held_for_a_stop_comes_at_the_end(byte_level: PreTrainedTokenizerFast) -> None:
    assembler = TextAssembler(Detokenizer(byte_level), ["abc"])
    assembler.push(TokenDelta("r", tuple(letters(byte_level, "xab")), FinishReason.LENGTH))
    assert (assembler.take(), assembler.finish_reason) == ("xab", FinishReason.LENGTH)


def test_the_ending_token_counts_and_makes_no_text(byte_level: PreTrainedTokenizerFast) -> None:
    assembler = TextAssembler(Detokenizer(byte_level))
    assembler.push(TokenDelta("r", tuple(letters(byte_level, "xyz")), FinishReason.STOP))
    assert (assembler.take(), assembler.num_tokens) == ("xy", 3)


def test_chat_template_asks_for_an_answer(byte_level: PreTrainedTokenizerFast) -> None:
    text = render_chat(byte_level, [{"role": "user", "content": "hi"}])
    assert text == "<|bos|><|user|>hi<|end|><|assistant|>"


def test_chat_template_refuses_in_its_own_words(byte_level: PreTrainedTokenizerFast) -> None:
    messages = [{"role": "user", "content": "hi"}, {"role": "system", "content": "no"}]
    with pytest.raises(RequestError, match="a system message must come first") as caught:
        render_chat(byte_level, messages)
    assert caught.value.field == "messages"


def test_a_model_without_a_chat_template_says_so() -> None:
    tokenizer = byte_level_tokenizer()
    tokenizer.chat_template = None
    with pytest.raises(RequestError, match="no chat template; send a prompt to /v1/completions"):
        render_chat(tokenizer, [{"role": "user", "content": "hi"}])
