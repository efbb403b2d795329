"""Who is computed when: shares of a step, priorities, prompts that are computed once."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.request import TokenDelta
from engine.shares import fair_shares
from policy.table import SpeculationTable
from tests.engine.symbolic import Driver

NEVER = 99


def prompt(length: int, first: int = 1) -> list[int]:
    """A text that shares no beginning with one that has another first token."""
    return [first] + [1 + i % 2 for i in range(length - 1)]


def running(driver: Driver) -> list[str]:
    return [seq.request_id for seq in driver.scheduler._queues.running]


def waiting(driver: Driver) -> list[str]:
    return [seq.request_id for seq in driver.scheduler._queues.waiting]


# ---- shares


@pytest.mark.parametrize(
    ("pending", "budget", "shares"),
    [
        ([], 8, []),
        ([400], 64, [64]),
        ([400, 5], 64, [59, 5]),
        ([400, 400], 64, [48, 16]),
        ([400, 400, 400], 64, [40, 16, 8]),
        ([5, 400], 64, [5, 59]),
        ([9, 9], 4, [3, 1]),
        ([9, 9, 9], 1, [1, 0, 0]),
        ([9, 9], 0, [0, 0]),
    ],
)
def test_shares(pending: list[int], budget: int, shares: list[int]) -> None:
    assert fair_shares(pending, budget) == shares


@given(st.lists(st.integers(1, 500), max_size=12), st.integers(0, 600))
@settings(deadline=None)
def test_shares_waste_nothing_and_leave_half_to_those_behind(
    pending: list[int], budget: int
) -> None:
    shares = fair_shares(pending, budget)
    assert sum(shares) == min(budget, sum(pending))
    assert all(0 <= share <= wanted for share, wanted in zip(shares, pending, strict=True))
    left = budget
    for share, wanted in zip(shares, pending, strict=True):
        assert share >= min(wanted, (left + 1) // 2)
        left -= min(wanted, (left + 1) // 2)


def test_a_long_prompt_does_not_hold_up_a_short_one() -> None:
    driver = Driver(num_blocks=128, max_step_tokens=64)
    driver.add("long", prompt(400))
    driver.step()
    driver.add("short", prompt(5, first=2))
    assert "short" in driver.step()
    assert "long" not in driver.step()


def test_decoding_sequences_go_before_any_prompt() -> None:
    driver = Driver(num_blocks=128, max_step_tokens=8)
    for index in range(4):
        driver.add(f"decoding {index}", [1 + index % 2, 2, 1], max_tokens=200, stop_id=NEVER)
    for _ in range(3):
        driver.step()
    driver.add("urgent", prompt(40), priority=-1)
    for _ in range(5):
        alive = driver.scheduler.num_decoding
        assert sum(name.startswith("decoding") for name in driver.step()) == alive >= 3


# ---- priority


def test_lower_priorities_first_and_first_come_first_among_equals() -> None:
    driver = Driver(max_num_seqs=1)
    for name, priority in (("a", 1), ("b", 0), ("c", 1), ("d", -5)):
        driver.add(name, prompt(3), priority=priority, max_tokens=1, stop_id=NEVER)
    assert [next(iter(driver.step())) for _ in range(4)] == ["d", "b", "a", "c"]


def test_a_better_priority_takes_the_slot_of_the_worst() -> None:
    driver = Driver(max_num_seqs=2)
    for name, priority in (("worse", 2), ("bad", 1), ("worst", 2)):
        driver.add(name, prompt(6), priority=priority, max_tokens=50, stop_id=NEVER)
    driver.scheduler.plan(driver.table)
    assert running(driver) == ["bad"]  # the two others wait for its blocks
    driver = Driver(max_num_seqs=2)
    for first, (name, priority) in enumerate((("bad", 1), ("worst", 2)), start=5):
        driver.add(name, prompt(6, first), priority=priority, max_tokens=50, stop_id=NEVER)
    driver.step()
    driver.add("equal", prompt(6, 7), priority=2, max_tokens=50, stop_id=NEVER)
    driver.step()
    assert running(driver) == ["bad", "worst"]
    driver.add("good", prompt(6, 8), priority=0, max_tokens=50, stop_id=NEVER)
    assert "good" in driver.step()
    assert running(driver) == ["good", "bad"]
    assert waiting(driver) == ["worst", "equal"], "the preempted one keeps its place"


def test_a_better_priority_takes_the_blocks_of_the_worst() -> None:
    driver = Driver(num_blocks=12, block_size=4)
    driver.add("first", prompt(12, 5), priority=1, max_tokens=8, stop_id=NEVER)
    driver.add("second", prompt(12, 6), priority=1, max_tokens=8, stop_id=NEVER)
    driver.step()
    driver.step()
    driver.add("good", prompt(16, 7), priority=0, max_tokens=1, stop_id=NEVER)
    assert "good" in driver.step()
    assert running(driver) == ["first"]


def test_nobody_is_preempted_in_vain() -> None:
    driver = Driver(num_blocks=12, block_size=4)
    driver.add("good", prompt(28, 5), priority=0, max_tokens=12, stop_id=NEVER)
    driver.add("bad", prompt(8, 6), priority=2, max_tokens=8, stop_id=NEVER)
    driver.step()
    driver.add("too long", prompt(24, 7), priority=1, max_tokens=8, stop_id=NEVER)
    told = driver.step()
    assert running(driver) == ["good", "bad"]
    assert set(told) == {"good", "bad"}


def test_the_last_of_the_worst_priority_gives_way_when_blocks_run_out() -> None:
    driver = Driver(num_blocks=9, block_size=2)
    for name, priority in (("early", 1), ("better", 0), ("late", 1)):
        driver.add(name, prompt(4, 5 + len(name)), priority=priority, max_tokens=9, stop_id=NEVER)
    lost: list[str] = []
    while not lost:
        before = running(driver)
        driver.step()
        lost = [name for name in before if name in waiting(driver)]
    assert lost == ["late"]


def test_a_better_priority_needs_nothing_that_long_prompts_leave_over() -> None:
    driver = Driver(num_blocks=128, max_step_tokens=4)
    for first in (5, 6, 7):
        driver.add(f"long {first}", prompt(100, first), priority=1)
    driver.step()
    assert len(running(driver)) == 3
    driver.add("late", prompt(2, 8), priority=1)
    driver.add("urgent", prompt(2, 9), priority=0)
    assert "urgent" in driver.step()
    assert waiting(driver) == ["late"], "of four tokens, three long prompts leave none"


@pytest.mark.parametrize("num_blocks", range(12, 24))
def test_who_was_preempted_takes_no_blocks_in_the_same_step(num_blocks: int) -> None:
    """It held more than it needs, for a draft that was refused, so that it would fit again."""
    driver = Driver(num_blocks=num_blocks, block_size=1, seed=num_blocks)
    driver.add("first", prompt(3, 5), max_tokens=8, stop_id=NEVER, max_draft_tokens=0)
    driver.add("second", prompt(3, 6), max_tokens=8, stop_id=NEVER)
    for step in range(8):
        driver.table = SpeculationTable(step, ((8, 0 if step % 2 else 6),))
        driver.step()
    driver.finish()


# ---- one prompt, computed once


def test_the_same_prompt_at_the_same_time_is_computed_once() -> None:
    driver = Driver(block_size=4, max_step_tokens=16)
    for index in range(4):
        driver.add(f"{index}", prompt(41), max_tokens=1, stop_id=NEVER)
    driver.finish()
    assert driver.num_computed == 41 + 3  # ten blocks are shared, the last token is everyone's own
    assert driver.scheduler.prefix_cache_queries == 4 * 41
    assert driver.scheduler.prefix_cache_hits == 3 * 40


def test_a_prompt_that_goes_on_otherwise_shares_the_beginning() -> None:
    driver = Driver(block_size=4, max_step_tokens=64)
    driver.add("one", [*prompt(40), 1, 1, 1, 1], max_tokens=1, stop_id=NEVER)
    driver.add("two", [*prompt(40), 2, 2, 2, 2], max_tokens=1, stop_id=NEVER)
    driver.finish()
    assert driver.num_computed == 44 + 4


def test_others_go_past_a_sequence_that_waits_for_its_prompt() -> None:
    driver = Driver(block_size=4, max_step_tokens=64)
    driver.add("owner", prompt(200), stop_id=NEVER)
    driver.add("same", prompt(200), stop_id=NEVER)
    driver.add("other", prompt(5, first=7), stop_id=NEVER)
    assert set(driver.step()) == {"other"}
    assert (running(driver), waiting(driver)) == (["owner", "other"], ["same"])


def test_who_waits_for_a_prompt_goes_on_when_its_owner_is_gone() -> None:
    driver = Driver(num_blocks=128, block_size=4, max_step_tokens=64)
    driver.add("owner", prompt(200), stop_id=NEVER)
    driver.add("same", prompt(200), stop_id=NEVER)
    driver.step()
    driver.scheduler.abort("owner")
    driver.step()
    assert running(driver) == ["same"]
    driver.finish()
    assert driver.num_computed == 200 + 3  # what the owner had computed was not lost


def test_who_waits_for_a_prompt_goes_on_when_its_owner_is_preempted() -> None:
    driver = Driver(num_blocks=30, block_size=4, max_step_tokens=16)
    driver.add("owner", prompt(80), priority=1, stop_id=NEVER)
    driver.add("same", prompt(80), priority=1, stop_id=NEVER)
    driver.step()
    driver.add("urgent", prompt(80, first=7), stop_id=NEVER)
    driver.step()
    assert running(driver) == ["urgent"]
    driver.finish()


def test_nobody_waits_for_a_sequence_of_a_worse_priority() -> None:
    driver = Driver(block_size=4, max_step_tokens=16)
    driver.add("slow", prompt(100), priority=1, stop_id=NEVER)
    driver.step()
    driver.add("urgent", prompt(100), priority=0, stop_id=NEVER)
    driver.step()
    assert running(driver) == ["urgent", "slow"]
    driver.finish()


# ---- what is found


def tell(driver: Driver, name: str, text: list[int], **params: Any) -> TokenDelta:
    """Run one more request to its end; its first delta."""
    driver.add(name, text, max_tokens=1, stop_id=NEVER, **params)
    deltas: dict[str, TokenDelta] = {}
    while name not in deltas or not deltas[name].token_ids:
        deltas = driver.step()
    return deltas[name]


@pytest.mark.parametrize(
    ("length", "cached"), [(3, 0), (4, 0), (5, 4), (8, 4), (9, 8), (12, 8), (13, 12)]
)
def test_the_last_token_is_always_computed(length: int, cached: int) -> None:
    driver = Driver(block_size=4)
    assert tell(driver, "cold", prompt(length)).num_cached_tokens == 0
    assert tell(driver, "again", prompt(length)).num_cached_tokens == cached
    assert driver.num_computed == 2 * length - cached


def test_equal_blocks_behind_another_beginning_are_not_found() -> None:
    driver = Driver(block_size=4)
    tell(driver, "one", [1, 1, 1, 1, 2, 2, 2, 2, 1])
    assert tell(driver, "two", [2, 1, 1, 1, 2, 2, 2, 2, 1]).num_cached_tokens == 0
    assert tell(driver, "three", [2, 2, 2, 2, 1]).num_cached_tokens == 0


def test_an_answer_is_found_by_the_next_turn() -> None:
    driver = Driver(block_size=4)
    driver.add("first turn", prompt(10), max_tokens=20, stop_id=NEVER)
    answer: list[int] = []
    while len(answer) < 20:
        answer += driver.step()["first turn"].token_ids
    delta = tell(driver, "second turn", [*prompt(10), *answer, 1, 2])
    assert delta.num_cached_tokens == 28  # of 29: the last token of the answer was never computed


def test_cached_tokens_are_told_once_with_the_first_new_token() -> None:
    driver = Driver(block_size=4)
    tell(driver, "cold", prompt(9))
    driver.add("warm", prompt(9), max_tokens=3, stop_id=NEVER)
    assert [driver.step()["warm"].num_cached_tokens for _ in range(3)] == [8, 0, 0]


def test_the_time_in_the_queue_is_told_with_the_first_new_token() -> None:
    driver = Driver(max_num_seqs=1)
    for name in ("first", "second"):
        driver.add(name, prompt(3), max_tokens=2, stop_id=NEVER)
    told = []
    for now_s in (1.0, 2.0, 3.0, 4.0):
        plan = driver.scheduler.plan(driver.table, now_s=now_s)
        told += [(d.request_id, d.queue_seconds) for d in driver.commit(plan, *driver.play(plan))]
    assert told == [("first", 1.0), ("first", 0.0), ("second", 3.0), ("second", 0.0)]


def test_prompts_and_preemptions_are_counted_once() -> None:
    driver = Driver(num_blocks=30, block_size=4, max_num_seqs=1)
    driver.add("preempted", prompt(40), priority=1, max_tokens=12, stop_id=NEVER)
    driver.step()
    assert (driver.scheduler.num_prompt_tokens, driver.scheduler.num_preemptions) == (40, 0)
    driver.add("urgent", prompt(9, first=7), max_tokens=1, stop_id=NEVER)
    driver.finish()
    assert (driver.scheduler.num_prompt_tokens, driver.scheduler.num_preemptions) == (49, 1)


def test_a_preempted_sequence_finds_its_own_blocks_again() -> None:
    driver = Driver(num_blocks=30, block_size=4, max_num_seqs=1)
    driver.add("preempted", prompt(40), priority=1, max_tokens=12, stop_id=NEVER)
    for _ in range(6):
        driver.step()
    computed = driver.num_computed
    driver.add("urgent", prompt(9, first=7), max_tokens=1, stop_id=NEVER)
    assert set(driver.step()) == {"urgent"}
    driver.step()
    # 45 tokens were computed and 44 are found; the 45th and the 46th are computed.
    assert driver.num_computed - computed == 9 + 2
    assert driver.scheduler.prefix_cache_hits == 0, "its own tokens are no hit"


def test_prompt_logprobs_read_nothing_from_the_cache_but_fill_it() -> None:
    driver = Driver(block_size=4, max_step_tokens=8)
    told = 0
    driver.add("cold", prompt(21), max_tokens=1, stop_id=NEVER, prompt_logprobs=0)
    driver.add("again", prompt(21), max_tokens=1, stop_id=NEVER, prompt_logprobs=0)
    while driver.scheduler.num_running + driver.scheduler.num_waiting:
        told += sum(len(delta.prompt_logprobs) for delta in driver.step().values())
    assert told == 2 * 20
    assert driver.num_computed == 2 * 21
    assert tell(driver, "warm", prompt(21)).num_cached_tokens == 20
    assert driver.scheduler.prefix_cache_queries == 21


def test_prompt_logprobs_that_were_told_need_not_be_computed_again() -> None:
    driver = Driver(num_blocks=30, block_size=4, max_num_seqs=1, max_step_tokens=10)
    driver.add("preempted", prompt(30), priority=1, max_tokens=1, prompt_logprobs=0)
    driver.step()
    driver.add("urgent", prompt(5, first=7), max_tokens=1, stop_id=NEVER)
    driver.step()
    driver.finish()
    assert driver.num_computed == 10 + 5 + (30 - 8)


@pytest.mark.parametrize("has_draft_model", [True, False])
@pytest.mark.parametrize("abort_after", range(1, 12))
def test_abort_at_every_step(abort_after: int, has_draft_model: bool) -> None:
    """Drafts pending, prompts shared, a tiny pool: nothing that was freed is ever read."""

    def drive(after_step: Callable[[Driver, int], None]) -> None:
        driver = Driver(
            num_blocks=16,
            block_size=3,
            max_step_tokens=9,
            rungs=((8, 4),),
            has_draft_model=has_draft_model,
            seed=abort_after,
        )
        for index in range(5):
            driver.add(
                f"{index}", [*prompt(14), index % 2 + 1, 2], priority=index % 2, max_tokens=12
            )
        for step in range(1, 13):
            driver.step()
            after_step(driver, step)
        driver.finish()

    for first in range(5):

        def abort(driver: Driver, step: int, first: int = first) -> None:
            if step == abort_after:
                for index in (first, (first + 2) % 5):
                    was_there = str(index) in driver.scheduler
                    assert driver.scheduler.abort(str(index)) == was_there
                driver.scheduler.check_integrity()

        drive(abort)
