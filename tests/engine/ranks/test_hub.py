"""Rank 0 watches over its ranks: whoever goes, or hangs, is named."""

import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from engine.ranks import frames, hub, uplink
from engine.ranks.hub import Hub
from engine.ranks.spec import RankFailed, RankSpec
from engine.ranks.uplink import Uplink


class Group:
    """A hub and what it told."""

    def __init__(self, size: int) -> None:
        self.stages: list[str] = []
        self.killed: list[int] = []
        self.was_told = threading.Event()
        self.has_killed = threading.Event()
        self.hub = Hub(size, host="127.0.0.1", report=self._report, kill=self._kill)

    def _report(self, stage: str) -> None:
        self.stages.append(stage)
        self.was_told.set()

    def _kill(self, rank: int) -> None:
        self.killed.append(rank)
        self.has_killed.set()

    def connect(self, rank: int) -> Uplink:
        link = Uplink(self.hub.spec(rank, 0))
        link.stage("here")
        assert self.was_told.wait(10)
        self.was_told.clear()
        return link


@pytest.fixture
def pair() -> Iterator[Group]:
    group = Group(2)
    yield group
    group.hub.close()


def test_plans_arrive_in_order(pair: Group) -> None:
    with pair.connect(1) as link:
        assert pair.hub.missing() == []
        pair.hub.send_plan(b"one")
        pair.hub.send_plan(b"two")
        assert (link.receive(), link.receive()) == (b"one", b"two")
        pair.hub.close()
        assert link.receive() is None
    assert pair.stages == ["rank 1: here"]
    assert pair.hub.failure is None, "it was told to end"


def test_a_rank_that_goes_without_a_word_is_named(pair: Group) -> None:
    with pair.connect(1):
        pass
    assert pair.hub.cause() is not None
    assert "rank 1 is gone: its process" in str(pair.hub.failure)
    with pytest.raises(RankFailed, match="rank 1 is gone"):
        pair.hub.send_plan(b"one")


def test_the_reason_that_a_rank_tells_is_kept(pair: Group) -> None:
    with pair.connect(1) as link:
        link.failed("OutOfMemoryError: 3 GiB were asked for")
    expected = "rank 1 failed: OutOfMemoryError: 3 GiB were asked for"
    assert pair.hub.cause() == expected
    pair.hub.fail(1, "something later")
    assert pair.hub.failure == expected


def test_a_rank_that_hangs_while_work_is_pending_is_killed(
    pair: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "SILENT_S", 0.2)
    monkeypatch.setattr(hub, "WATCH_EVERY_S", 0.05)
    monkeypatch.setattr(uplink, "ALIVE_EVERY_S", 3600.0)
    quiet = Group(2)
    with quiet.connect(1):
        assert not quiet.has_killed.wait(1.0), "it has nothing to do, and may be silent"
        quiet.hub.send_plan(b"one")
        assert quiet.has_killed.wait(10)
        assert quiet.killed[0] == 1
        assert "rank 1 hangs: it was not heard of for" in str(quiet.hub.failure)
    quiet.hub.close()


def test_a_step_that_takes_long_is_no_failure(pair: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "SILENT_S", 1.0)
    monkeypatch.setattr(hub, "WATCH_EVERY_S", 0.05)
    monkeypatch.setattr(uplink, "ALIVE_EVERY_S", 0.05)
    busy = Group(2)
    with busy.connect(1):
        busy.hub.send_plan(b"one")
        assert not busy.has_killed.wait(2.0)
        assert busy.hub.failure is None
    busy.hub.close()


def connected(spec: RankSpec, hello: object, kind: int = frames.HELLO) -> socket.socket:
    stranger = socket.create_connection((spec.host, spec.plan_port), timeout=10)
    frames.send(stranger, kind, json.dumps(hello).encode())
    return stranger


@pytest.mark.parametrize(
    "hello",
    [
        {"rank": 1, "secret": "guessed", "pid": 1},
        {"rank": 1, "secret": None, "pid": 1},
        {"rank": 7, "pid": 1},
        {"rank": [], "pid": 1},
        {},
        [],
        "hello",
    ],
)
def test_strangers_are_turned_away(pair: Group, hello: object) -> None:
    spec = pair.hub.spec(1, 0)
    if isinstance(hello, dict) and hello and "secret" not in hello:
        hello = {**hello, "secret": spec.secret}
    with connected(spec, hello) as stranger:
        assert stranger.recv(1) == b""
    assert pair.hub.missing() == [1]
    assert pair.hub.failure is None


def test_nobody_takes_the_place_of_a_rank_that_is_there(pair: Group) -> None:
    with pair.connect(1) as link:
        spec = pair.hub.spec(1, 0)
        with connected(spec, {"rank": 1, "secret": spec.secret, "pid": 1}) as second:
            assert second.recv(1) == b""
        pair.hub.send_plan(b"one")
        assert link.receive() == b"one"


def test_a_message_without_end_is_refused(pair: Group) -> None:
    spec = replace(pair.hub.spec(1, 0))
    with socket.create_connection((spec.host, spec.plan_port), timeout=10) as stranger:
        stranger.sendall(b"\xff\xff\xff\xff\x01")
        assert stranger.recv(1) == b""
    assert pair.hub.missing() == [1]
