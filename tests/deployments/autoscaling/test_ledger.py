"""What a replica counts of its requests."""

import asyncio

import pytest

from deployments.autoscaling.ledger import CountedLoop, Ledger
from engine.errors import EngineFull
from engine.request import FinishReason, Request, SamplingParams, TokenDelta
from tests.deployments.fake_loop import FakeLoop


def request(name: str, num_prompt: int = 10, max_tokens: int = 1000) -> Request:
    return Request(name, tuple(range(num_prompt)), SamplingParams(max_tokens=max_tokens))


def test_a_request_is_its_prompt_and_then_its_answer() -> None:
    ledger = Ledger(lambda: 0.0)
    ledger.enter((request("a", 10, max_tokens=20),))
    assert (ledger.work().prompt_tokens, ledger.work().new_tokens) == (10, 20)
    ledger.note(TokenDelta("a"))  # a step in which only part of its prompt was computed
    assert ledger.work().prompt_tokens == 10
    ledger.note(TokenDelta("a", (5, 6)))
    assert (ledger.work().prompt_tokens, ledger.work().new_tokens) == (0, 18)
    ledger.note(TokenDelta("a", (7,), FinishReason.STOP))
    ledger.note(TokenDelta("a", (8,)))
    assert (ledger.work().prompt_tokens, ledger.work().new_tokens) == (0, 0)


def test_answers_are_expected_to_be_as_long_as_they_were() -> None:
    ledger = Ledger(lambda: 0.0)
    for number in range(200):
        ledger.enter((request(str(number)),))
        ledger.note(TokenDelta(str(number), (5,) * 40, FinishReason.STOP))
    ledger.enter((request("long"), request("short", max_tokens=7)))
    assert ledger.work().new_tokens == pytest.approx(40 + 7, rel=0.01)
    ledger.note(TokenDelta("long", (5,) * 100))
    assert ledger.work().new_tokens == pytest.approx(40 + 7, rel=0.01)


def test_choices_of_one_prompt_count_it_once() -> None:
    ledger = Ledger(lambda: 0.0)
    ledger.enter((request("a"), request("b"), request("c")))
    assert ledger.work().prompt_tokens == 10


def test_of_several_prompts_each_is_counted_once() -> None:
    ledger = Ledger(lambda: 0.0)
    ledger.enter((request("a", 10), request("b", 10), request("c", 30), request("d", 30)))
    assert ledger.work().prompt_tokens == 40


def test_a_request_that_comes_again_is_no_further_arrival() -> None:
    now_s = 0.0
    ledger = Ledger(lambda: now_s)
    for second in range(120):
        now_s = float(second)
        again = request("a" if second == 0 else f"a/{second + 1}", 1200, max_tokens=6)
        ledger.enter((again,))
        if second < 119:
            ledger.leave((again,))
    work = ledger.work()
    assert work.prompt_tokens == 1200, "it is there"
    assert work.recent_prompt_tokens_per_s == 0
    assert work.prompt_tokens_per_s < 30


def test_arrivals_are_counted_by_the_second() -> None:
    now_s = 0.0
    ledger = Ledger(lambda: now_s)
    for second in range(120):
        now_s = float(second)
        ledger.enter((request(str(second), 30, max_tokens=6),))
    work = ledger.work()
    assert work.prompt_tokens_per_s == pytest.approx(30, rel=0.1)
    assert work.recent_new_tokens_per_s == pytest.approx(6)


def test_computed_prompts_are_drained_without_what_was_cached() -> None:
    ledger = Ledger(lambda: 0.0)
    ledger.enter((request("a", 50),))
    ledger.note(TokenDelta("a", (1,), num_cached_tokens=32))
    assert (ledger.drain_computed(), ledger.drain_computed()) == (18, 0)


def test_whoever_goes_away_leaves_nothing_behind() -> None:
    async def main() -> None:
        ledger = Ledger(lambda: 0.0)
        counted = CountedLoop(FakeLoop([(1,), asyncio.Event()]), ledger)
        deltas = counted.generate(request("a"))
        await anext(deltas)
        assert ledger.work().new_tokens > 0
        await deltas.aclose()
        assert ledger.work().new_tokens == 0

    asyncio.run(main())


def test_a_refused_request_leaves_nothing_but_its_arrival() -> None:
    async def main() -> None:
        now_s = 0.0
        ledger = Ledger(lambda: now_s)
        counted = CountedLoop(FakeLoop([EngineFull("full")]), ledger)
        with pytest.raises(EngineFull):
            await anext(counted.generate(request("a")))
        now_s = 10.0
        assert ledger.work().prompt_tokens == 0
        assert ledger.work().prompt_tokens_per_s > 0

    asyncio.run(main())


def test_what_another_replica_had_generated_is_computed_and_not_to_come() -> None:
    ledger = Ledger(lambda: 0.0)
    ledger.enter((request("a", 10, 100).continued(tuple(range(90))),))
    work = ledger.work()
    assert (work.prompt_tokens, work.new_tokens) == (100, 10)
