"""The routing benchmark: its replicas, its workloads, its goals."""

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from benchmarks.routing import BY_PREFIX, BY_TOKENS, ROUTERS, SERVES, goals, percentiles
from benchmarks.routing_simulation import (
    BASE_S,
    PER_PROMPT_TOKEN_S,
    PER_SEQUENCE_S,
    Answer,
    Ask,
    simulate,
)
from benchmarks.routing_workloads import at_load, chat, heavy_tailed, trace


def test_one_request_takes_a_step_for_its_prompt_and_one_for_each_further_token() -> None:
    [answer] = simulate([Ask(0.0, 100, 11)], ROUTERS[SERVES](0), 2)
    assert answer.ttft_s == pytest.approx(BASE_S + 100 * PER_PROMPT_TOKEN_S)
    assert answer.end_to_end_s - answer.ttft_s == pytest.approx(10 * (BASE_S + PER_SEQUENCE_S))


def test_a_beginning_is_computed_once() -> None:
    digests = (b"a", b"b")
    asks = [Ask(0.0, 200, 1, digests), Ask(10.0, 200, 1, digests)]
    first, second = simulate(asks, ROUTERS[BY_PREFIX](0), 2)
    assert first.ttft_s - second.ttft_s == pytest.approx(128 * PER_PROMPT_TOKEN_S)


@pytest.mark.parametrize("name", ROUTERS)
def test_every_request_is_answered_and_books_are_empty_afterwards(name: str) -> None:
    asks = at_load(chat(200, random.Random(0)), 4, 0.8)
    router = ROUTERS[name](0)
    ended: list[int] = []
    note = router.ended

    def told(number: int) -> None:
        ended.append(number)
        note(number)

    router.ended = told  # type: ignore[method-assign]
    answers = simulate(asks, router, 4)
    assert sorted(ended) == list(range(len(asks)))
    assert all(0 < answer.ttft_s <= answer.end_to_end_s for answer in answers)


def test_turns_of_a_conversation_begin_as_the_one_before() -> None:
    asks = chat(300, random.Random(1))
    by_conversation: dict[Any, list[Ask]] = {}
    for ask in asks:
        by_conversation.setdefault(ask.conversation, []).append(ask)
    talks = [turns for turns in by_conversation.values() if len(turns) > 1]
    assert talks
    for turns in talks:
        for before, after in pairwise(turns):
            assert after.digests[: len(before.digests)] == before.digests


def test_a_load_is_what_was_asked_for() -> None:
    half, whole = (at_load(heavy_tailed(100, random.Random(0)), 4, load) for load in (0.5, 1.0))
    assert half[-1].at_s == pytest.approx(2 * whole[-1].at_s)


def test_a_trace_is_read_from_its_first_request_on(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.4799600,3180,8\n"
    )
    assert trace(file, 9) == [Ask(0.0, 4808, 10), Ask(0.5, 3180, 8)]
    assert len(trace(file, 1)) == 1


def test_percentiles_are_of_the_answers() -> None:
    told = percentiles([Answer(float(n), 2.0 * n) for n in range(1, 101)])
    assert list(told.values()) == [50.0, 95.0, 100.0, 190.0]


def test_goals_fail_where_the_default_is_not_better() -> None:
    def result(by_tokens: float, by_prefix: float) -> dict[str, dict[str, float]]:
        seconds = {SERVES: 10.0, BY_TOKENS: by_tokens, BY_PREFIX: by_prefix}
        return {name: {"end_to_end_p95_s": value} for name, value in seconds.items()}

    told = goals({"chat": result(10.0, 9.4), "heavy tails": result(10.1, 99.0)})
    assert [goal.holds for goal in told] == [True, True, True]
    told = goals({"chat": result(10.0, 9.6), "heavy tails": result(10.3, 9.0)})
    assert [goal.holds for goal in told] == [True, False, False]
