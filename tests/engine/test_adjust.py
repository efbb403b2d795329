"""What the parameters do to one place's logits."""

from typing import Any

import pytest
import torch
from torch import Tensor

from engine.adjust import adjusted
from engine.errors import RequestError
from engine.request import SamplingParams
from tests.engine.places import place

LOGITS = torch.tensor([2.0, -1.0, 0.5, 3.0, -2.0, 0.0])


def at(
    prompt: list[int], output: list[int], mask: Tensor | None = None, **params: Any
) -> list[float]:
    """The changed logits, the output's last two tokens being drafted ones."""
    stop_ids = frozenset(params.pop("stop_ids", ()))
    where = place(
        SamplingParams(**params),
        prompt=prompt,
        output=output[:-2],
        drafted=output[-2:],
        stop_ids=stop_ids,
    )
    values: list[float] = adjusted(LOGITS, where, mask).tolist()
    return values


def changed(**values: float) -> list[float]:
    expected: list[float] = LOGITS.tolist()
    for token, value in values.items():
        expected[int(token[1:])] = value
    return expected


def test_repetition_counts_prompt_and_output_once() -> None:
    found = at([0, 0, 1], [3, 3, 1], repetition_penalty=2.0)
    assert found == changed(t0=1.0, t1=-2.0, t3=1.5)


@pytest.mark.parametrize("penalty", [1e-300, 1e-45, 1e-3, 1e6, 1e39, 1e300])
def test_no_repetition_penalty_makes_a_logit_that_is_no_number(penalty: float) -> None:
    values = at([0, 1, 5], [3, 4, 4], repetition_penalty=penalty)
    assert values[2] == LOGITS[2]
    assert values[5] == 0.0
    assert values[0] > 0.0 > values[1]
    assert values[3] > 0.0 > values[4]


def test_frequency_and_presence_count_the_output_alone() -> None:
    assert at([0, 1], [3, 3, 5], frequency_penalty=0.5) == changed(t3=2.0, t5=-0.5)
    assert at([0, 1], [3, 3, 5], presence_penalty=0.5) == changed(t3=2.5, t5=-0.5)
    both = at([0, 1], [3, 3, 5], presence_penalty=-0.5, frequency_penalty=1.0)
    assert both == changed(t3=1.5, t5=-0.5)


def test_the_order_is_repetition_then_the_others_then_bias() -> None:
    found = at(
        [],
        [3, 3, 3],
        repetition_penalty=2.0,
        presence_penalty=1.0,
        frequency_penalty=0.5,
        logit_bias=((3, 10.0), (4, -1.0)),
    )
    assert found == changed(t3=3.0 / 2 - 1.5 - 1.0 + 10.0, t4=-3.0)


def test_min_tokens_counts_drafted_ones() -> None:
    for num_output, is_banned in ((2, True), (3, False), (4, False)):
        found = at([5], [1] * num_output, min_tokens=3, stop_ids={0, 4})
        assert (found == changed(t0=-torch.inf, t4=-torch.inf)) == is_banned


def test_bad_words_end_where_their_beginning_stands() -> None:
    words = ((1,), (2, 3), (2, 2, 5))
    assert at([2], [0, 4], bad_words=words) == changed(t1=-torch.inf)
    assert at([2], [4, 2], bad_words=words) == changed(t1=-torch.inf, t3=-torch.inf)
    assert at([4], [2, 2], bad_words=words) == changed(t1=-torch.inf, t3=-torch.inf, t5=-torch.inf)
    # What stands in the prompt is no part of the output.
    assert at([2, 2], [], bad_words=words) == changed(t1=-torch.inf)


def test_a_grammar_outranks_bias_and_bans() -> None:
    only_one = torch.tensor([False, True, False, False, False, False])
    found = at([], [2], only_one, logit_bias=((0, 100.0),))
    assert found == [-torch.inf, -1.0, *[-torch.inf] * 4]
    assert at([], [2], only_one, bad_words=((1,),)) == found
    assert at([], [2], only_one, min_tokens=9, stop_ids={1}) == found


def test_tokens_beyond_a_smaller_vocabulary_are_passed_over() -> None:
    found = at(
        [77],
        [99, 98],
        repetition_penalty=2.0,
        frequency_penalty=1.0,
        presence_penalty=1.0,
        logit_bias=((99, 1.0),),
        bad_words=((99,),),
    )
    assert found == LOGITS.tolist()


def test_a_row_without_parameters_is_not_even_copied() -> None:
    logits = LOGITS.to(torch.bfloat16)
    assert adjusted(logits, place(SamplingParams(min_tokens=1), output=[3]), None) is logits
    biased = adjusted(logits, place(SamplingParams(logit_bias=((0, 1.0),))), None)
    assert biased.tolist() == changed(t0=3.0)
    masked = adjusted(logits, place(SamplingParams()), torch.arange(6) > 0)
    assert masked.tolist() == changed(t0=-torch.inf)
    assert logits.tolist() == LOGITS.tolist()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", 0),
        ("min_tokens", -1),
        ("min_tokens", 17),
        ("temperature", -0.1),
        ("temperature", 2.1),
        ("temperature", float("nan")),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("top_k", -1),
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("presence_penalty", -2.1),
        ("frequency_penalty", 2.1),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", float("inf")),
        ("logit_bias", ((3, 100.5),)),
        ("bad_words", ((),)),
        ("bad_words", ((1,),) * 1025),
        ("logit_bias", tuple((token, 1.0) for token in range(1025))),
        ("seed", 2**63),
        ("logprobs", 21),
        ("prompt_logprobs", -1),
        ("max_draft_tokens", -1),
    ],
)
def test_out_of_range(field: str, value: Any) -> None:
    with pytest.raises(RequestError, match=field) as caught:
        SamplingParams(**{field: value})
    assert caught.value.field == field
