"""Each parameter alone, through the whole engine: what it refuses, and what it does to a text.

That no draft, batch or neighbour changes what it does is for `test_traps.py` and `test_master.py`;
what it does to one row of logits is for `test_adjust.py` and `test_sampling.py`.
"""

from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import torch

from engine.errors import GrammarError, RequestError
from engine.request import FinishReason, GrammarSpec, Request, SamplingParams
from tests.engine.harness import run
from tests.engine.quick import NEW_TOKENS, PROMPTS, answer, quick_engine, request
from tests.engine.reference import adjusted, left_by_filters, log_softmax
from tests.engine.tiny_models import EOS, VOCAB_SIZE, DrafterName, plain_model, tokenizer

NAN = float("nan")


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("max_tokens", 0, "at least 1"),
        ("max_tokens", -3, "at least 1"),
        ("min_tokens", -1, r"between 0 and max_tokens \(16\)"),
        ("min_tokens", 17, r"between 0 and max_tokens \(16\)"),
        ("temperature", -0.1, "between 0 and 2"),
        ("temperature", 2.1, "between 0 and 2"),
        ("temperature", NAN, "between 0 and 2"),
        ("top_p", 0.0, "above 0 and at most 1"),
        ("top_p", 1.5, "above 0 and at most 1"),
        ("top_p", NAN, "above 0 and at most 1"),
        ("top_k", -1, r"0 \(off\) or more"),
        ("min_p", -0.1, "between 0 and 1"),
        ("min_p", 1.1, "between 0 and 1"),
        ("min_p", NAN, "between 0 and 1"),
        ("presence_penalty", 2.5, "between -2 and 2"),
        ("presence_penalty", NAN, "between -2 and 2"),
        ("frequency_penalty", -2.5, "between -2 and 2"),
        ("frequency_penalty", NAN, "between -2 and 2"),
        ("repetition_penalty", 0.0, "above 0 and finite"),
        ("repetition_penalty", -1.0, "above 0 and finite"),
        ("repetition_penalty", float("inf"), "above 0 and finite"),
        ("repetition_penalty", NAN, "above 0 and finite"),
        ("seed", 2**63, r"from -2\^63 to 2\^63 - 1"),
        ("seed", -(2**63) - 1, r"from -2\^63 to 2\^63 - 1"),
        ("logprobs", -1, "between 0 and 20"),
        ("logprobs", 21, "between 0 and 20"),
        ("prompt_logprobs", 21, "between 0 and 20"),
        ("max_draft_tokens", -1, "0 or more"),
    ],
)
def test_out_of_range_names_field_value_and_range(field: str, value: Any, expected: str) -> None:
    with pytest.raises(RequestError, match=f"^{field} must be {expected}, got {value}$") as caught:
        SamplingParams(**{field: value})
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("params", "field", "message"),
    [
        ({"logit_bias": ((7, 100.5),)}, "logit_bias", "between -100 and 100, got 100.5"),
        ({"logit_bias": ((7, NAN),)}, "logit_bias", "between -100 and 100, got nan"),
        ({"bad_words": ((3,), ())}, "bad_words", "at least one token"),
        (
            {"grammar": GrammarSpec("json_object"), "ignore_eos": True},
            "ignore_eos",
            "false with a grammar, got True",
        ),
    ],
)
def test_values_within_fields(params: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        SamplingParams(**params)
    assert caught.value.field == field


@pytest.mark.parametrize("token", [-1, VOCAB_SIZE])
@pytest.mark.parametrize("field", ["stop_token_ids", "logit_bias", "bad_words"])
def test_tokens_outside_the_vocabulary(field: str, token: int) -> None:
    value: Any = {
        "stop_token_ids": (5, token),
        "logit_bias": ((token, 1.0),),
        "bad_words": ((5,), (6, token)),
    }[field]
    engine = quick_engine()
    match = f"{field} holds token {token}, which is outside the vocabulary of {VOCAB_SIZE} tokens"
    with pytest.raises(RequestError, match=match) as caught:
        engine.add(request("short"), request("short refused", **{field: value}))
    assert caught.value.field == field
    assert not engine.has_work, "all or none"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (GrammarSpec("regex", "(a"), "regex"),
        (GrammarSpec("json_schema", "{"), "not JSON"),
        (GrammarSpec("choice", "5"), "choice must be a JSON list"),
    ],
)
def test_a_grammar_that_does_not_compile(spec: GrammarSpec, message: str) -> None:
    engine = quick_engine()
    with pytest.raises(GrammarError, match=message):
        engine.add(request("short", grammar=spec))
    assert not engine.has_work


def tokens(**params: Any) -> list[int]:
    """What an engine that drafts makes of the long prompt, greedily unless asked otherwise."""
    return run(quick_engine("perturbed", 4), [request("long", **params)])["long"].tokens


@cache
def plain() -> tuple[int, ...]:
    return answer(request("long", ignore_eos=True)).tokens


def test_repetition_penalty_of_the_largest_size_allows_no_token_twice() -> None:
    """A penalty so large that every token of prompt and output falls behind every other."""
    found = tokens(repetition_penalty=1e6, ignore_eos=True)
    assert len({*found}) == len(found)
    assert not {*found} & {*PROMPTS["long"]}


def test_logit_bias_lifts_and_bars() -> None:
    assert tokens(logit_bias=((50, 100.0),)) == [50] * NEW_TOKENS
    barred = {*plain()}
    assert not barred & {*tokens(logit_bias=tuple((token, -100.0) for token in barred))}


def test_bad_words_do_not_occur() -> None:
    words = (plain()[3:5], plain()[7:8], plain()[8:11])
    found = tokens(bad_words=words, ignore_eos=True)
    assert found[:4] == list(plain()[:4])
    for word in words:
        assert not any(tuple(found[i : i + len(word)]) == word for i in range(len(found)))


@pytest.mark.parametrize("min_tokens", [0, 1, 6, NEW_TOKENS])
def test_min_tokens_keeps_every_stop_token_out(min_tokens: int) -> None:
    stops = tuple(sorted({*plain()[:8]}))
    found = tokens(min_tokens=min_tokens, stop_token_ids=stops)
    assert len(found) >= max(min_tokens, 1)
    assert not {*found[:min_tokens]} & {*stops, *EOS}


def test_top_k_1_tiny_top_p_and_min_p_1_are_greedy() -> None:
    for params in ({"top_k": 1}, {"top_p": 1e-9}, {"min_p": 1.0}, {"temperature": 1e-6}):
        found = tokens(**{"temperature": 1.5, "seed": 9, "ignore_eos": True, **params})
        assert found == list(plain())


def test_a_request_without_a_seed_gets_one_of_its_own() -> None:
    requests = [request(f"short {i}", temperature=2.0, seed=None) for i in range(4)]
    outcomes = run(quick_engine(), requests)
    assert len({tuple(outcome.tokens) for outcome in outcomes.values()}) == 4


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (GrammarSpec("choice", '["maybe"]'), "maybe"),
        (GrammarSpec("regex", "[x]{3}"), "xxx"),
        (GrammarSpec("json_schema", '{"enum": ["ok"]}'), '"ok"'),
    ],
)
def test_a_grammar_leaves_no_choice(spec: GrammarSpec, text: str) -> None:
    outcome = run(quick_engine("perturbed", 4), [request("long", grammar=spec)])["long"]
    assert outcome.reason is FinishReason.STOP
    decoded = str(tokenizer().decode([token for token in outcome.tokens if token not in EOS]))
    assert decoded == text


@pytest.mark.parametrize(
    ("drafter", "params"),
    [
        ("perturbed", {"temperature": 1.0}),
        ("smaller", {"temperature": 1.0}),
        ("perturbed", {"temperature": 0.6, "top_k": 6}),
        ("perturbed", {"temperature": 1.4, "top_p": 0.8}),
        ("perturbed", {"temperature": 1.0, "min_p": 0.01, "repetition_penalty": 1.3}),
        ("itself", {"temperature": 0.9, "presence_penalty": 1.0, "frequency_penalty": 0.5}),
    ],
)
def test_tokens_follow_the_distribution(drafter: DrafterName, params: dict[str, Any]) -> None:
    """Two thousand seeds through an engine that drafts four tokens: what comes third, behind the
    commonest first two, is distributed as the target has it, whatever the draft thinks."""
    count = 2000
    prompt = (5, 9, 2)
    few = tuple((token, 6.0) for token in (20, 21, 30, 31, 60, 61))
    given: dict[str, Any] = {"logit_bias": few, "max_tokens": 3, "ignore_eos": True, **params}
    engine = quick_engine(drafter, 4, num_blocks=2048, max_num_seqs=256, max_step_tokens=4096)
    requests = [
        Request(f"{seed}", prompt, SamplingParams(**given, seed=seed)) for seed in range(count)
    ]
    texts: list[list[int]] = []
    for start in range(0, count, 500):
        texts += [outcome.tokens for outcome in run(engine, requests[start : start + 500]).values()]
    common, _ = Counter(tuple(text[:2]) for text in texts).most_common(1)[0]
    for begin in ((), common):
        found = Counter(text[len(begin)] for text in texts if tuple(text[: len(begin)]) == begin)
        assert is_near(found, probabilities(prompt, begin, SamplingParams(**given)))


def probabilities(
    prompt: Sequence[int], output: Sequence[int], sampling: SamplingParams
) -> list[float]:
    """Of the token behind a text, by the reference."""
    with torch.inference_mode():
        ids = torch.tensor([[*prompt, *output]])
        logits = plain_model("full")(input_ids=ids, use_cache=False).logits[0, -1]
    row = adjusted(logits.double().tolist(), sampling, [*prompt], [*output], set(), None)
    scaled = [value / sampling.temperature for value in row]
    kept = left_by_filters(scaled, sampling, 0.0)
    inside = {token: scaled[token] for token in kept}
    logs = dict(zip(inside, log_softmax(list(inside.values())), strict=True))
    return [float(torch.tensor(logs[t]).exp()) if t in logs else 0.0 for t in range(len(row))]


def is_near(counts: Counter[int], expected: list[float]) -> bool:
    """By a chi-square test at the 0.1 % level, with rare tokens taken together."""
    total = sum(counts.values())
    assert all(expected[token] > 0 for token in counts), "a token that a filter takes out"
    cells: list[tuple[float, float]] = []
    rare_seen = rare_expected = 0.0
    for token, probability in enumerate(expected):
        if probability * total < 5:
            rare_seen += counts[token]
            rare_expected += probability * total
        else:
            cells.append((counts[token], probability * total))
    if rare_expected >= 5:
        cells.append((rare_seen, rare_expected))
    assert len(cells) > 1, "too little to compare"
    freedom = len(cells) - 1
    statistic = sum((seen - wanted) ** 2 / wanted for seen, wanted in cells)
    # Wilson and Hilferty's approximation of the chi-square quantile.
    critical: float = freedom * (1 - 2 / (9 * freedom) + 3.09 * (2 / (9 * freedom)) ** 0.5) ** 3
    return statistic < critical
