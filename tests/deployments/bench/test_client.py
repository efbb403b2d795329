"""The open-loop client against a scripted server."""

import asyncio
import threading

import pytest

from deployments.bench.answers import Answer
from deployments.bench.client import Ask, Client, Stopped
from tests.deployments.bench.openai_server import CUT, FAIL, HANG, NO_TEXT, scripted_server

TIMEOUT_S = 60.0


def ask(text: str, due_s: float = 0.0) -> Ask:
    return Ask(due_s, {"messages": [{"role": "user", "content": text}]})


def play(url: str, *asks: Ask, timeout_s: float = TIMEOUT_S) -> list[Answer]:
    return asyncio.run(Client(url, {}, timeout_s).play(asks))


def test_an_answer_is_timed_and_its_tokens_are_the_servers_own_count() -> None:
    with scripted_server() as (url, _):
        (answer,) = play(url, ask("hello"))
    assert answer.error is None
    assert (answer.prompt_tokens, answer.new_tokens) == (7, 5)
    assert answer.first_s is not None
    assert answer.last_s is not None
    assert 0 <= answer.sent_s <= answer.first_s <= answer.last_s
    assert answer.tpot_s == pytest.approx((answer.last_s - answer.first_s) / 4)


def test_requests_never_wait_for_answers() -> None:
    with scripted_server() as (url, seen):
        seen.together = threading.Barrier(40)  # broken, were one held back for another's answer
        answers = play(url, *(ask("hello") for _ in range(40)))
    assert [answer.error for answer in answers] == [None] * 40


def test_what_the_client_is_late_with_counts_as_latency() -> None:
    with scripted_server() as (url, _):
        (answer,) = play(url, ask("hello", due_s=-5.0))
    assert answer.late_s >= 5.0
    assert answer.latency_s >= answer.ttft_s >= answer.late_s


def test_answers_come_in_the_order_of_what_was_asked() -> None:
    with scripted_server() as (url, seen):
        answers = play(url, ask("late", 0.02), ask(FAIL, 0.01), ask("early", 0.0))
    assert [answer.due_s for answer in answers] == [0.02, 0.01, 0.0]
    assert [answer.error is None for answer in answers] == [True, False, True]
    assert len(seen.bodies) == 3


@pytest.mark.parametrize(
    ("text", "error"),
    [(FAIL, "503: the engine is full"), (CUT, "the stream ended early"), (NO_TEXT, None)],
)
def test_what_went_wrong_is_told(text: str, error: str | None) -> None:
    with scripted_server() as (url, _):
        (answer,) = play(url, ask(text))
    assert answer.error == error


def test_a_server_that_is_not_there_is_an_error_of_each_request() -> None:
    answers = play("http://127.0.0.1:9/v1", ask("a"), ask("b"))
    assert [answer.error for answer in answers] == ["ConnectError", "ConnectError"]


def test_an_answer_that_takes_too_long_has_failed_and_is_let_go() -> None:
    with scripted_server() as (url, seen):
        (answer,) = play(url, ask(HANG), timeout_s=0.3)
        assert seen.gone.wait(30)
    assert answer.error is not None
    assert answer.ended_s is not None
    assert answer.over_s == answer.ended_s > answer.sent_s
    assert answer.first_s is not None or "Read" in answer.error or "within" in answer.error


def test_a_stop_gives_up_what_is_in_flight() -> None:
    with scripted_server() as (url, seen):
        client = Client(url, {}, TIMEOUT_S)
        with pytest.raises(Stopped):
            asyncio.run(client.play([ask(HANG), ask("x", 1e6)], stopped=seen.hangs.is_set))
        assert seen.gone.wait(30)
    assert len(seen.bodies) == 1
