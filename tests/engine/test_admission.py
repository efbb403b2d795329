"""Who is refused, and for how long: bounds on requests and tokens, tenants' parts, throughput."""

import pickle

import pytest

from engine.admission import Bounds, Load, Throughput
from engine.errors import EngineFull, OverShare
from engine.request import Request, SamplingParams
from tests.engine.quick import quick_engine

BOUNDS = Bounds(in_flight=12, waiting=Load(10, 1000))


def check(
    new: Load, waiting: Load, own: Load | None = None, tenant: str = "", running: int = 0
) -> None:
    BOUNDS.check(
        new,
        num_running=running,
        waiting=waiting,
        own=waiting if own is None else own,
        tenant=tenant,
        retry_s=lambda: 7,
    )


def test_requests_and_tokens_are_bounded() -> None:
    check(Load(2, 10), Load(5, 100), running=5)
    with pytest.raises(EngineFull, match=r"11 requests .* the limit is 12") as caught:
        check(Load(2, 10), Load(6, 100), running=5)
    assert caught.value.retry_s == 7
    check(Load(1, 100), Load(3, 900))
    with pytest.raises(EngineFull, match="900 tokens are waiting already; with 101 more"):
        check(Load(1, 101), Load(3, 900))
    check(Load(1, 5000), Load(0, 0))


def test_a_tenant_may_have_as_much_waiting_as_is_left() -> None:
    check(Load(1, 10), Load(5, 50), tenant="ann")
    with pytest.raises(OverShare, match="7 requests of this API key"):
        check(Load(1, 10), Load(6, 60), tenant="ann")
    check(Load(1, 10), Load(6, 60), own=Load(0, 0), tenant="bob")
    with pytest.raises(OverShare, match="600 tokens"):
        check(Load(1, 100), Load(2, 500), tenant="ann")
    check(Load(1, 10), Load(10, 60), tenant="")


def test_many_choices_at_once_get_no_more_than_one_by_one() -> None:
    nothing = Load(0, 0)
    check(Load(6, 60), nothing, tenant="ann")
    with pytest.raises(OverShare, match="7 requests of this API key"):
        check(Load(7, 70), nothing, tenant="ann")
    with pytest.raises(OverShare, match="4 requests of this API key"):
        check(Load(4, 40), Load(6, 60), own=nothing, tenant="bob")
    check(Load(3, 30), Load(6, 60), own=nothing, tenant="bob")
    with pytest.raises(OverShare, match="840 tokens"):
        check(Load(4, 840), nothing, tenant="ann")
    check(Load(1, 5000), nothing, tenant="ann")
    check(Load(12, 5000), nothing, tenant="")


def test_the_wait_is_what_is_outstanding_at_the_present_speed() -> None:
    throughput = Throughput()
    assert throughput.retry_s(10**9) == 1
    for _ in range(500):
        throughput.note(50, 0.5)
    assert throughput.retry_s(1) == 1
    assert throughput.retry_s(2050) == 21
    assert throughput.retry_s(10**9) == 60
    for _ in range(500):
        throughput.note(400, 0.5)
    assert throughput.retry_s(7990) == 10


def test_an_engine_counts_the_tokens_that_wait() -> None:
    engine = quick_engine(max_num_seqs=1, max_waiting_tokens=50)

    def ask(name: str, max_tokens: int, tenant: str = "") -> None:
        params = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
        engine.add(Request(name, (5, 9, 2), params, 0, tenant))

    ask("first", 60)
    engine.step()
    ask("second", 27)
    assert engine.status().num_waiting_tokens == 30
    with pytest.raises(EngineFull, match="30 tokens are waiting already; with 21 more"):
        ask("third", 18)
    ask("third", 17)
    assert engine.status().num_waiting_tokens == 50
    assert engine.abort("second")
    assert engine.status().num_waiting_tokens == 20
    while engine.has_work:
        engine.step()
        engine.check_integrity()
    assert engine.status().num_waiting_tokens == 0


def test_errors_keep_their_wait_between_processes() -> None:
    again = pickle.loads(pickle.dumps(OverShare("too much", 17)))
    assert type(again) is OverShare
    assert (str(again), again.retry_s) == ("too much", 17)
