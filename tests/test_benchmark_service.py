"""The service benchmark: verdicts, its clients, its requests, and how its figures are made."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from benchmarks.service import clients
from benchmarks.service.answers import Outcome, Story, Tally, Try, judge, outcome_of_status
from benchmarks.service.asks import Asks, Shape
from benchmarks.service.clients import SdkClient, WireClient
from benchmarks.service.closed_loop import Round, closed_loop
from benchmarks.service.faults import (
    PLAIN_FAULTS,
    RANK_FAULTS,
    RESILIENT_FAULTS,
    Fault,
    FaultRuns,
    schedule,
)
from benchmarks.service.goals import goals
from benchmarks.service.interleaved import Arm, added_ms, interleaved, lost_share
from benchmarks.service.memory import Windows
from benchmarks.service.parts import RESILIENT, Measured
from benchmarks.service.served import OTHER, kind_of
from engine.errors import EngineDead, EngineFull
from tests.deployments.api_app import App
from tests.tiny_tokenizer import byte_level_tokenizer

TOKENS = (40, 41, 42)
COMPLETION: dict[str, Any] = {"model": "tiny", "prompt": "The", "max_tokens": len(TOKENS)}
STREAMED = {**COMPLETION, "stream": True}


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return byte_level_tokenizer()


def story(*outcomes: Outcome) -> Story:
    return Story(tuple(map(Try, outcomes)))


@pytest.mark.parametrize(
    ("text", "finish_reason", "expected", "outcome"),
    [
        ("abc", "length", "abc", Outcome.COMPLETE),
        ("abc", "length", None, Outcome.COMPLETE),
        ("abd", "length", "abc", Outcome.WRONG),
        ("ab", None, "abc", Outcome.CUT),
        ("abc", None, "abc", Outcome.CUT),
    ],
)
def test_an_answer_is_whole_and_right_or_it_is_not(
    text: str, finish_reason: str | None, expected: str | None, outcome: Outcome
) -> None:
    assert judge(text, finish_reason, expected) is outcome


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (503, Outcome.BUSY),
        (429, Outcome.BUSY),
        (400, Outcome.REFUSED),
        (500, Outcome.FAILED),
        (502, Outcome.FAILED),
    ],
)
def test_statuses(status: int, outcome: Outcome) -> None:
    assert outcome_of_status(status) is outcome


def test_a_request_is_broken_by_its_first_try_and_lost_by_its_last() -> None:
    fine = story(Outcome.COMPLETE)
    helped = story(Outcome.CUT, Outcome.BUSY, Outcome.COMPLETE)
    lost = story(Outcome.NO_CONNECTION, Outcome.FAILED)
    wrong = story(Outcome.CUT, Outcome.WRONG)
    left = story(Outcome.LEFT)
    assert [(one.is_broken, one.is_lost) for one in (fine, helped, lost, wrong, left)] == [
        (False, False),
        (True, False),
        (True, True),
        (True, True),
        (False, False),
    ]
    tally = Tally.of([fine, helped, lost, wrong, left])
    assert (tally.requests, tally.broken, tally.lost, tally.wrong) == (4, 3, 2, 1)
    assert tally.tries["cut"] == 2
    twice = tally + tally
    assert (twice.requests, twice.lost, twice.tries["cut"]) == (8, 4, 4)


def test_memory_that_grows_is_seen_and_a_spike_is_not() -> None:
    flat = [(float(t), 1000 + t % 3) for t in range(100)]
    spiky = [(t, 5000 if t % 17 == 0 else m) for t, m in flat]
    growing = [(t, round(m * (1 + t / 500))) for t, m in flat]
    early = [(t, m // 2 if t < 30 else m) for t, m in flat]
    for samples in (flat, spiky, early):
        windows = Windows.of(samples, warm_up_s=30.0)
        assert windows is not None
        assert abs(windows.change) < 0.01
    windows = Windows.of(growing, warm_up_s=30.0)
    assert windows is not None
    assert windows.change > 0.1
    assert Windows.of(flat, warm_up_s=98.0) is None


def test_memory_that_shrinks_counts_too() -> None:
    windows = Windows.of([(float(t), 1000 - 5 * t) for t in range(50)], warm_up_s=0.0)
    assert windows is not None
    assert windows.change < -0.1


def test_faults_take_turns_and_nothing_happens_once() -> None:
    todo = schedule(PLAIN_FAULTS, 3)
    assert todo[0] is Fault.NONE
    assert todo.count(Fault.NONE) == 1
    assert todo[1:5] == todo[5:9] == todo[9:]
    assert {*RESILIENT_FAULTS, *RANK_FAULTS} == set(Fault)


def test_resilient_must_lose_nothing_and_only_what_is_in_the_way_may_break_something() -> None:
    def holds(fault: Fault, *stories: Story) -> bool:
        measured = Measured()
        measured.faults[RESILIENT] = {fault: FaultRuns(Tally.of(stories), times=1)}
        return all(goal.holds for goal in goals(measured))

    broken, lost = story(Outcome.CUT, Outcome.COMPLETE), story(Outcome.CUT)
    assert holds(Fault.REPLICA, story(Outcome.COMPLETE))
    assert not holds(Fault.REPLICA, broken)
    assert holds(Fault.PROXY, broken)
    assert holds(Fault.INGRESS, broken)
    assert not holds(Fault.PROXY, lost)


@pytest.mark.parametrize(
    ("title", "kind"),
    [
        ("ray::ServeReplica:paceline:paceline", "replica"),
        ("ray::ServeReplica:paceline:paceline.handle_request", "replica"),
        ("ray::ServeReplica:paceline:paceline-router", "ingress"),
        ("ray::ProxyActor.receive_asgi_messages", "proxy"),
        ("ray::PolicyActor", "policy actor"),
        ("ray::RankActor.run", "rank"),
        ("ray::ServeController", OTHER),
        ("/usr/bin/python ray::ProxyActor", OTHER),
    ],
)
def test_who_is_who(title: str, kind: str) -> None:
    assert kind_of(title) == kind


def asks() -> Asks:
    return Asks("tiny", [f"text {number}" for number in range(7)])


def test_arms_ask_for_the_same_with_numbers_of_their_own() -> None:
    shape = Shape(20, 4, 9)
    first, second = (asks().round(3, arm, shape, stream=False) for arm in (0, 1))
    again = asks().round(4, 0, shape, stream=False)
    said = [
        [body["messages"][0]["content"] for body in bodies] for bodies in (first, second, again)
    ]
    assert len({*said[0], *said[1], *said[2]}) == 60
    assert [text.split(") ")[1] for text in said[0]] == [text.split(") ")[1] for text in said[1]]
    lengths = [body["max_tokens"] for body in first]
    assert lengths == [body["max_tokens"] for body in second]
    assert set(lengths) == set(range(4, 10))


async def test_every_bad_request_is_refused(tokenizer: PreTrainedTokenizerFast) -> None:
    """By the API, before the engine sees it."""
    app = App(tokenizer, [TOKENS])
    source = Asks("tiny", ["text"])
    drawn = {source.bad() for _ in range(300)}
    assert len(drawn) > 10
    async with app.client() as client:
        for ask in drawn:
            answer = await client.post(ask.path, content=ask.content)
            assert 400 <= answer.status_code < 500, ask.content[:80]
    assert app.loop.requests == []


async def test_what_the_sdk_client_sees(tokenizer: PreTrainedTokenizerFast) -> None:
    app = App(tokenizer, [TOKENS])
    async with app.served() as url, SdkClient(url) as client:
        whole = await client.ask(COMPLETION)
        assert (whole.outcome, whole.num_tokens) == (Outcome.COMPLETE, len(TOKENS))
        streamed = await client.ask(STREAMED, expected=whole.text)
        assert streamed.outcome is Outcome.COMPLETE
        assert streamed.ttft_s is not None
        assert (await client.ask(STREAMED, expected="else")).outcome is Outcome.WRONG
        chat = {"model": "tiny", "messages": [{"role": "user", "content": "a"}], "max_tokens": 3}
        assert (await client.ask(chat)).text == whole.text
        assert (await client.ask({**COMPLETION, "max_tokens": -1})).outcome is Outcome.REFUSED
        app.loop.scripts = [[EngineFull("full", retry_s=7)]]
        busy = await client.ask(COMPLETION)
        assert (busy.outcome, busy.retry_s) == (Outcome.BUSY, 7.0)
        app.loop.scripts = [[TOKENS[:1], EngineDead("gone")]]
        assert (await client.ask(STREAMED)).outcome is Outcome.FAILED
        app.loop.scripts = [[asyncio.Event()]]
        assert (await client.leave(STREAMED, 0.05)).outcome is Outcome.LEFT
        await app.loop.closed.wait()
    async with SdkClient(url) as client:
        assert (await client.ask(COMPLETION)).outcome is Outcome.NO_CONNECTION


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n"
BEGUN = b'data: {"choices": [{"index": 0, "text": "a", "finish_reason": null}]}\n\n'
ENDED = b'data: {"choices": [{"index": 0, "text": "b", "finish_reason": "stop"}]}\n\n'
CUT = HEAD + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(BEGUN), BEGUN)
ENDED_EARLY = HEAD + b"\r\n" + BEGUN
WHOLE = HEAD + b"\r\n" + BEGUN + ENDED + b"data: [DONE]\n\n"


@asynccontextmanager
async def answering(*answers: bytes) -> AsyncIterator[str]:
    """A server that gives each connection the next answer and closes it."""
    waiting = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        found = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        assert found is not None
        await reader.readexactly(int(found[1]))
        writer.write(waiting.pop(0))
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_a_client_insists_until_it_has_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "PAUSE_S", 0.0)
    async with answering(CUT, b"", ENDED_EARLY, WHOLE) as url, SdkClient(url) as client:
        told = await client.insist(STREAMED, expected="ab")
    assert [one.outcome for one in told.tries] == [
        Outcome.CUT,
        Outcome.NO_CONNECTION,
        Outcome.CUT,
        Outcome.COMPLETE,
    ]


async def test_a_stream_without_its_end_is_an_error_to_the_wire_client(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    chat = asks().timed(1, 3, stream=True)
    app = App(tokenizer, [TOKENS])
    async with app.served() as url, WireClient(url) as client:
        done = await client.chat(chat)
        assert done.num_tokens == 3
        assert client.num_chunks == 5  # three tokens, the usage and [DONE]
        app.loop.scripts = [[TOKENS[:1], EngineDead("gone")]]
        with pytest.raises(Exception, match="the stream ended with"):
            await client.chat(chat)


async def test_a_closed_loop_keeps_so_many_requests_under_way() -> None:
    under_way = most = 0

    async def ask(body: Any) -> Try:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        return Try(Outcome.COMPLETE, num_tokens=body["max_tokens"])

    done = await closed_loop(ask, [{"max_tokens": n} for n in range(20)], 3)
    assert most == 3
    assert sum(one.num_tokens for one in done.tries) == sum(range(20))


async def test_arms_take_turns_and_the_first_round_warms_up() -> None:
    asked: list[str] = []

    def arm(name: str, ttft_s: float) -> Arm:
        async def ask(body: Any) -> Try:
            asked.append(name)
            return Try(Outcome.COMPLETE, ttft_s=ttft_s)

        return Arm(ask, stream=True)

    rounds: dict[str, list[Round]] = {}
    await interleaved(
        {"slow": arm("slow", 0.5), "fast": arm("fast", 0.25)},
        asks(),
        Shape(1, 1, 1),
        concurrency=1,
        first=0,
        repeats=2,
        begin=lambda _: None,
        rounds=rounds,
    )
    assert asked == ["slow", "fast", "fast", "slow", "slow", "fast"]
    assert len(rounds["slow"]) == len(rounds["fast"]) == 2
    assert added_ms(rounds["slow"], rounds["fast"]).median == pytest.approx(250)


def test_what_is_lost_is_told_round_by_round() -> None:
    def made(*rates: float) -> list[Round]:
        return [Round((Try(Outcome.COMPLETE, num_tokens=int(rate)),), 1.0) for rate in rates]

    assert lost_share(made(90, 40, 50), made(100, 50, 50)).median == pytest.approx(0.1)
