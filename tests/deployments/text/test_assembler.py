"""Text, tokens and counts of a sequence, however its deltas are cut."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import pre_tokenizers
from transformers import PreTrainedTokenizerFast

from deployments.text.assembler import TextAssembler
from deployments.text.detokenizer import Detokenizer
from deployments.text.stop_strings import StopRule
from deployments.text.token_texts import decode_with_offsets
from engine.request import FinishReason, TokenDelta
from tests.deployments.fake_loop import logprobs_of
from tests.deployments.text.tokens import letters, token_lists, whole
from tests.tiny_tokenizer import byte_fallback_tokenizer


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
    assembler = TextAssembler(detokenizer, StopRule(tuple(stop)))
    for delta in in_deltas(ids, [], FinishReason.LENGTH):
        assembler.push(delta)
    assert assembler.take() == whole(tokenizer, ids)
    assert detokenizer.num_decoded <= 12 * len(ids)


def test_a_stop_string_ends_a_run_of_bytes_at_its_last_byte() -> None:
    tokenizer = byte_fallback_tokenizer()
    ids = [3 + byte for byte in "xé好y".encode()]
    assembler = TextAssembler(Detokenizer(tokenizer), StopRule(("é好",)))
    for count, token_id in enumerate(ids, start=1):
        assembler.push(TokenDelta("r", (token_id,)))
        assert assembler.finish_reason is (FinishReason.STOP if count >= 6 else None)
    assert (assembler.take(), assembler.num_tokens) == ("x", 6)


def test_a_stop_string_completed_by_a_barred_byte_is_barred_for_good() -> None:
    tokenizer = byte_fallback_tokenizer()
    ids = [3 + byte for byte in "\n🙂\n".encode()]
    assembler = TextAssembler(Detokenizer(tokenizer), StopRule(("\n",), min_tokens=2))
    for delta in in_deltas(ids, [], FinishReason.LENGTH):  # the second token is half a character
        assembler.push(delta)
    assert (assembler.take(), assembler.num_tokens) == ("\n🙂", 6)


def matches(text: str, stop: str) -> list[tuple[int, int]]:
    ends = range(len(stop), len(text) + 1)
    return [(end - len(stop), end) for end in ends if text[:end].endswith(stop)]


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
    min_tokens, is_shown = data.draw(st.integers(0, 6)), data.draw(st.booleans())
    assembler = TextAssembler(Detokenizer(tokenizer), StopRule(tuple(stop), min_tokens, is_shown))
    text = ""
    for delta in in_deltas(ids, sizes, FinishReason.LENGTH):
        assembler.push(delta)
        text += assembler.take()

    # An incomplete character hides, for now, the whole run of bytes that it ends: what was complete
    # before it was completed by those tokens all the same.
    starts = [whole(tokenizer, ids[:count]) for count in range(min_tokens + 1)]
    barred = max(len(start.rstrip("\ufffd")) for start in starts)
    for count in range(min_tokens + 1, len(ids) + 1):
        so_far = whole(tokenizer, ids[:count])
        found = [match for s in stop for match in matches(so_far, s) if match[1] > barred]
        if found:
            start, end = min(found)
            assert assembler.finish_reason is FinishReason.STOP
            assert text == so_far[: end if is_shown else start]
            assert assembler.num_tokens == count
            return
    assert text == whole(tokenizer, ids)
    assert assembler.num_tokens == len(ids)
    assert assembler.finish_reason is (FinishReason.LENGTH if ids else None)


def test_stop_across_tokens_and_inside_a_delta(byte_level: PreTrainedTokenizerFast) -> None:
    assembler = TextAssembler(Detokenizer(byte_level), StopRule(("ab",)))
    assembler.push(TokenDelta("r", tuple(letters(byte_level, "xa"))))
    assert assembler.take() == "x"
    assembler.push(TokenDelta("r", tuple(letters(byte_level, "bcde")), None, 5, 3))
    assert assembler.take() == ""
    assert assembler.finish_reason is FinishReason.STOP
    assert (assembler.num_tokens, assembler.num_accepted, assembler.num_rejected) == (3, 1, 4)


def test_a_stop_on_the_very_last_token_is_a_stop(byte_level: PreTrainedTokenizerFast) -> None:
    assembler = TextAssembler(Detokenizer(byte_level), StopRule(("ab",)))
    assembler.push(TokenDelta("r", tuple(letters(byte_level, "xab")), FinishReason.LENGTH))
    assert (assembler.take(), assembler.finish_reason) == ("x", FinishReason.STOP)


def test_text_held_for_a_stop_comes_at_the_end(byte_level: PreTrainedTokenizerFast) -> None:
    assembler = TextAssembler(Detokenizer(byte_level), StopRule(("abc",)))
    assembler.push(TokenDelta("r", tuple(letters(byte_level, "xab")), FinishReason.LENGTH))
    assert (assembler.take(), assembler.finish_reason) == ("xab", FinishReason.LENGTH)


@pytest.mark.parametrize(("ends_with_stop_token", "text"), [(True, "xy"), (False, "xyz")])
def test_a_stop_token_counts_and_makes_no_text_but_a_grammars_last_token_does(
    byte_level: PreTrainedTokenizerFast, ends_with_stop_token: bool, text: str
) -> None:
    assembler = TextAssembler(Detokenizer(byte_level))
    assembler.push(
        TokenDelta(
            "r",
            tuple(letters(byte_level, "xyz")),
            FinishReason.STOP,
            ends_with_stop_token=ends_with_stop_token,
        )
    )
    assert (assembler.take(), assembler.num_tokens) == (text, 3)


def with_logprobs(ids: Sequence[int], reason: FinishReason | None = None) -> TokenDelta:
    logprobs = tuple(logprobs_of(token_id, 0) for token_id in ids)
    return TokenDelta("r", tuple(ids), reason, logprobs=logprobs)


def offsets(assembler: TextAssembler) -> list[int]:
    return [token.offset for token in assembler.take_tokens()]


def test_tokens_come_with_the_text_that_shows_them(byte_level: PreTrainedTokenizerFast) -> None:
    first, second, third = one_byte_tokens(byte_level, "界".encode())
    x, a, b, c = letters(byte_level, "xabc")
    assembler = TextAssembler(Detokenizer(byte_level), StopRule(("abx",)), keeps_tokens=True)
    for token_id, text, shown in (
        (x, "x", [0]),
        (first, "", []),
        (second, "", []),
        (third, "界", [1, 1, 1]),  # one character together
        (a, "", []),  # may be the stop string's
        (b, "", []),
        (c, "abc", [2, 3, 4]),
    ):
        assembler.push(with_logprobs([token_id]))
        assert (assembler.take(), offsets(assembler)) == (text, shown)


@pytest.mark.parametrize(("is_shown", "num_tokens"), [(False, 1), (True, 3)])
def test_tokens_behind_the_cut_are_dropped(
    byte_level: PreTrainedTokenizerFast, is_shown: bool, num_tokens: int
) -> None:
    stop = StopRule(("ab",), is_shown=is_shown)
    assembler = TextAssembler(Detokenizer(byte_level), stop, keeps_tokens=True)
    assembler.push(with_logprobs(letters(byte_level, "xabc")))
    assert offsets(assembler) == [0, 1, 2][:num_tokens]


def test_tokens_without_text_and_held_ones_come_at_the_end(
    byte_level: PreTrainedTokenizerFast,
) -> None:
    assembler = TextAssembler(Detokenizer(byte_level), StopRule(("ab",)), keeps_tokens=True)
    assembler.push(with_logprobs([*letters(byte_level, "xa"), 2], FinishReason.LENGTH))
    assert (assembler.take(), offsets(assembler)) == ("xa", [0, 1, 2])


def test_tokens_of_a_run_of_bytes_stand_where_their_characters_do() -> None:
    tokenizer = byte_fallback_tokenizer()
    ids = [3 + byte for byte in "xé好y".encode()]
    assembler = TextAssembler(Detokenizer(tokenizer), keeps_tokens=True)
    assembler.push(with_logprobs(ids, FinishReason.LENGTH))
    assert offsets(assembler) == [0, 1, 1, 2, 2, 2, 3]


def test_a_token_stands_behind_the_broken_character_before_it(
    byte_level: PreTrainedTokenizerFast,
) -> None:
    first, second, _ = one_byte_tokens(byte_level, "界".encode())
    (a,) = letters(byte_level, "a")
    ids = [a, first, second, a, first, first, second, a]  # a\ufffda\ufffd\ufffda
    assembler = TextAssembler(Detokenizer(byte_level), keeps_tokens=True)
    assembler.push(with_logprobs(ids, FinishReason.LENGTH))
    assert assembler.take() == "a\ufffda\ufffd\ufffda"
    assert offsets(assembler) == [0, 1, 1, 2, 3, 4, 4, 5]

    tokenizer = byte_fallback_tokenizer()
    (c,) = letters(tokenizer, "c")
    ids = [3 + 0xE7, 3 + 0x95, c]  # in a broken run, each byte is a character
    assembler = TextAssembler(Detokenizer(tokenizer), keeps_tokens=True)
    assembler.push(with_logprobs(ids, FinishReason.LENGTH))
    assert assembler.take() == "\ufffd\ufffdc"
    assert offsets(assembler)[-1] == 2


def test_a_stop_string_that_the_next_token_settles_is_not_followed_by_it(
    byte_level: PreTrainedTokenizerFast,
) -> None:
    (first,) = one_byte_tokens(byte_level, "界".encode())[:1]
    stop = StopRule(("\ufffd",), is_shown=True)
    assembler = TextAssembler(Detokenizer(byte_level), stop, keeps_tokens=True)
    assembler.push(with_logprobs([first, *letters(byte_level, "ab")]))
    assert (assembler.take(), offsets(assembler)) == ("\ufffd", [0])
    assert (assembler.finish_reason, assembler.num_tokens) == (FinishReason.STOP, 2)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_offsets_never_fall_and_lie_within_the_text(
    tokenizer: PreTrainedTokenizerFast, data: st.DataObject
) -> None:
    ids = data.draw(token_lists(tokenizer))
    assembler = TextAssembler(Detokenizer(tokenizer), keeps_tokens=True)
    for index, token_id in enumerate(ids, start=1):
        last = FinishReason.LENGTH if index == len(ids) else None
        assembler.push(with_logprobs([token_id], last))
    found = offsets(assembler)
    assert len(found) == len(ids)
    assert found == sorted(found)
    assert max(found, default=0) <= len(whole(tokenizer, ids))
    assert found == list(decode_with_offsets(Detokenizer(tokenizer), ids)[1])


def test_text_is_watched_token_by_token(byte_level: PreTrainedTokenizerFast) -> None:
    seen: list[str] = []

    def is_complete(text: str) -> bool:
        seen.append(text)
        return text == "b"

    assembler = TextAssembler(Detokenizer(byte_level), is_complete=is_complete)
    assembler.push(TokenDelta("r", tuple(letters(byte_level, "abc"))))
    assert seen == ["a", "b"]
    assert (assembler.finish_reason, assembler.num_tokens) == (FinishReason.STOP, 2)
