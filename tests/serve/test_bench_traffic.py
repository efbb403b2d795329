"""Traffic against a real application: policies change between turns, prompts are computed anew."""

from pathlib import Path

from deployments.bench.app import Running
from deployments.bench.arms import read_arms
from deployments.bench.arrivals import Arrival, Setting
from deployments.bench.client import Client
from deployments.bench.prompts import Fitting, read_texts
from deployments.bench.traffic import Body, Measuring, answers_of, turns
from deployments.bench.work import Work
from tests.serve.conftest import WAIT_S, RunningApp

NEW_TOKENS = 12


def test_every_arm_answers_the_same_arrivals(app: RunningApp, tmp_path: Path) -> None:
    before = app.engine()
    arms = read_arms("off,2,table,adaptive")
    setting = Setting("a few", (tuple(Arrival(0.0, i, NEW_TOKENS) for i in range(3)),))
    work = Work(tmp_path, {"benchmark": "traffic"})
    measuring = Measuring(
        Running(f"{app.url}/v1"),
        Client(f"{app.url}/v1", {}, WAIT_S),
        Fitting(read_texts(None), None),
        Body("tiny", 0.0, ignore_eos=True, salted=True),
        work,
        lambda what, share: None,
        lambda: False,
    )
    measuring.warm_up((), {"table": {"4": 1}}, sets_policy=True)
    modes = []
    for turn in turns([setting], arms):
        measuring.measure(turn)
        modes.append(app.get("/policy")["table"]["mode"])
    assert modes == ["off", "fixed", "table", "adaptive"]
    for arm in arms:
        (answers,) = answers_of(work, setting, arm).values()
        assert [answer.error for answer in answers] == [None] * 3
        assert [answer.new_tokens for answer in answers] == [NEW_TOKENS] * 3
    assert app.engine()["prefix_cache_hits"] == before["prefix_cache_hits"]
