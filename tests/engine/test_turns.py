"""Tenants: equal shares among equal priorities, each one's requests in order."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.request import Request, SamplingParams
from engine.sequence import Sequence
from tests.engine.symbolic import Driver

NEVER = 99


def add(
    driver: Driver,
    name: str,
    tenant: str,
    *,
    max_tokens: int = 1,
    num_prompt: int = 3,
    priority: int = 0,
) -> None:
    chance = random.Random(name)
    prompt = tuple(chance.choice((1, 2)) for _ in range(num_prompt))
    sampling = SamplingParams(max_tokens=max_tokens)
    request = Request(name, prompt, sampling, priority, tenant)
    driver.scheduler.add(
        Sequence(request, seed=0, max_len=num_prompt + max_tokens, tokens=list(prompt))
    )


def finished(driver: Driver, most: int = 10_000) -> list[str]:
    """Who ended, in order."""
    names: list[str] = []
    while driver.scheduler.num_running + driver.scheduler.num_waiting and len(names) < most:
        names += [d.request_id for d in driver.step().values() if d.finish_reason is not None]
    return names


def test_a_late_tenant_goes_next_and_then_they_take_turns() -> None:
    driver = Driver(max_num_seqs=1)
    for index in range(6):
        add(driver, f"a{index}", "ann")
    assert finished(driver, 2) == ["a0", "a1"]
    for index in range(3):
        add(driver, f"b{index}", "bob")
    order = finished(driver)
    # Lifted to what ann had been served: bob's past is worth no more than hers.
    assert order in (
        ["a2", "b0", "a3", "b1", "a4", "b2", "a5"],
        ["b0", "a2", "b1", "a3", "b2", "a4", "a5"],
    )


def test_tokens_count_and_not_requests() -> None:
    driver = Driver(max_num_seqs=1, num_blocks=256)
    for index in range(6):
        add(driver, f"long{index}", "ann", max_tokens=40)
    for index in range(40):
        add(driver, f"short{index}", "bob", max_tokens=4)
    lines = driver.scheduler._queues.lines
    while set(driver.scheduler._queues._loads) == {"ann", "bob"}:
        driver.step()
        # Nobody is ahead by more than the largest request: 3 + 2 x 40 tokens, and the other's.
        assert abs(lines.served("ann") - lines.served("bob")) <= 83 + 11
    assert lines.served("bob") > 100


def test_priority_goes_before_shares() -> None:
    driver = Driver(max_num_seqs=1)
    for index in range(3):
        add(driver, f"a{index}", "ann", priority=-1)
    add(driver, "b", "bob")
    assert finished(driver) == ["a0", "a1", "a2", "b"]


def test_who_was_away_has_saved_nothing_up() -> None:
    driver = Driver(max_num_seqs=1)
    add(driver, "b0", "bob")
    finished(driver)
    for index in range(20):
        add(driver, f"a{index}", "ann")
    finished(driver, 12)
    for index in range(8):
        add(driver, f"b{index + 1}", "bob")
    assert sum(name.startswith("a") for name in finished(driver, 6)) >= 2


@given(
    st.lists(
        st.tuples(st.sampled_from("ABC"), st.integers(1, 6), st.integers(1, 9), st.booleans()),
        min_size=1,
        max_size=24,
    ),
    st.integers(1, 4),
    st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_each_tenants_requests_are_admitted_in_order(
    asked: list[tuple[str, int, int, bool]], max_num_seqs: int, seed: int
) -> None:
    driver = Driver(max_num_seqs=max_num_seqs, num_blocks=12, seed=seed)
    admitted: list[str] = []
    for index, (tenant, max_tokens, num_prompt, steps) in enumerate(asked):
        add(driver, f"{index} {tenant}", tenant, max_tokens=max_tokens, num_prompt=num_prompt)
        if steps:
            driver.step()
        running = driver.scheduler._queues.running
        admitted += [s.request_id for s in running if s.request_id not in admitted]
    while driver.scheduler.num_running + driver.scheduler.num_waiting:
        driver.step()
        running = driver.scheduler._queues.running
        admitted += [s.request_id for s in running if s.request_id not in admitted]
    assert driver.pool.num_free == driver.pool.num_blocks
    for tenant in "ABC":
        own = [int(name.split()[0]) for name in admitted if name.endswith(tenant)]
        assert own == sorted(own)


def test_without_tenants_nothing_is_counted() -> None:
    driver = Driver(max_num_seqs=1)
    for index in range(4):
        add(driver, str(index), "")
    assert finished(driver) == ["0", "1", "2", "3"]
    assert not driver.scheduler._queues.lines.are_counted
