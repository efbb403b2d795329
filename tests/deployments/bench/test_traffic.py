"""Turns of several policies over the same arrivals, and a whole run against a scripted server."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from deployments.bench.answers import Slo
from deployments.bench.app import Running
from deployments.bench.arms import read_arms, read_static_table
from deployments.bench.arrivals import Arrival, Setting
from deployments.bench.client import Client, Stopped
from deployments.bench.prompts import Fitting, read_texts
from deployments.bench.traffic import Body, Measuring, answers_of, static_table, turns
from deployments.bench.work import Work, first_difference
from deployments.commands.bench import bench_app
from deployments.commands.bench_session import Session, plan_of, settings_of
from deployments.config import parse_config
from engine.errors import ConfigError
from tests.deployments.bench.openai_server import FAIL, Seen, scripted_server
from tests.tiny import save_tiny_llama
from tests.tiny_tokenizer import byte_level_tokenizer

ARMS = read_arms("off,2,table,adaptive")
SETTINGS = [
    Setting("a", ((Arrival(0.0, 0, 5), Arrival(0.01, 1, 5)), (Arrival(0.0, 2, 5),))),
    Setting("b", ((Arrival(0.0, 3, 5),),)),
]


def measuring(url: str, work: Work, stopped: bool = False) -> Measuring:
    return Measuring(
        Running(url),
        Client(url, {}, 30.0),
        Fitting(["zero", "one", "two", "three"], None),
        Body("scripted", 0.0, ignore_eos=True, salted=True),
        work,
        lambda what, share: None,
        lambda: stopped,
    )


def test_every_arm_gets_every_segment_and_none_is_always_first() -> None:
    order = list(turns(SETTINGS, ARMS))
    assert len(order) == len({turn.key for turn in order}) == 3 * len(ARMS)
    firsts = [turn.arm.name for turn in order[:: len(ARMS)]]
    assert firsts == ["off", "fixed 2", "fixed 2"]  # a's first segment, b's, a's second
    assert [str(turn) for turn in order[:1]] == ["a, segment 1, off"]


def test_all_arms_answer_the_same_under_policies_of_their_own(tmp_path: Path) -> None:
    work = Work(tmp_path, {"benchmark": "traffic"})
    with scripted_server() as (url, seen):
        runs = measuring(url, work)
        runs.warm_up((), None, sets_policy=True)
        for turn in turns(SETTINGS[:1], ARMS):
            runs.measure(turn)
    # The table that was in force after the warm-up stays the static one.
    table = {"table": {"4": 5, "8": 1}}
    assert static_table(work) == table
    assert seen.policies[2:6] == ["off", {"fixed": 2}, table, "adaptive"]
    texts = [body["messages"][0]["content"] for body in seen.bodies]
    assert sorted(texts) == ["one"] * 4 + ["two"] * 4 + ["zero"] * 4
    assert len({body["cache_salt"] for body in seen.bodies}) == len(seen.bodies)
    assert {body["max_tokens"] for body in seen.bodies} == {5}
    for arm in ARMS:
        assert [len(part) for part in answers_of(work, SETTINGS[0], arm).values()] == [2, 1]


def test_nothing_of_a_turn_that_was_stopped_is_kept(tmp_path: Path) -> None:
    work = Work(tmp_path, {"benchmark": "traffic"})
    with scripted_server() as (url, _), pytest.raises(Stopped):
        measuring(url, work, stopped=True).measure(next(turns(SETTINGS, ARMS)))
    assert answers_of(work, SETTINGS[0], ARMS[0]) == {}


def test_a_static_table_comes_from_lengths_or_from_a_characterisation(tmp_path: Path) -> None:
    assert read_static_table("1:5,8:2") == {"table": {"1": 5, "8": 2}}
    path = tmp_path / "characterize.json"
    path.write_text(json.dumps({"batch_sizes": [{"batch_size": 4, "best": {"draft_len": 3}}]}))
    assert read_static_table(str(path)) == {"table": {"4": 3}}
    path.write_text("{}")
    with pytest.raises(ConfigError, match="characterize"):
        read_static_table(str(path))


@pytest.mark.parametrize("text", ["", "off,off", "off,quick", "17", "-1"])
def test_bad_arms_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        read_arms(text)


@pytest.mark.parametrize("num_tokens", [60, 100, 500])
def test_prompts_are_fitted_to_a_length_with_the_chat_template(num_tokens: int) -> None:
    tokenizer = byte_level_tokenizer()
    fitting = Fitting(["a short text", "and another one"], tokenizer)
    text = fitting.text(1, num_tokens)
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": text}], add_generation_prompt=True, tokenize=False
    )
    count = len(tokenizer.encode(str(chat), add_special_tokens=False))
    assert abs(count - num_tokens) <= 2  # words may join at the seams
    assert text.startswith("and")
    assert fitting.text(3, None) == "and another one"


def test_the_prompts_that_come_with_paceline_are_all_different() -> None:
    assert len(set(read_texts(None))) == 64


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"policy": {"table": {1: 5, 8: 2}}, "engine": {"max_num_seqs": 8}},
        {"policy": "off", "autoscaling": {"max_replicas": 2}},
    ],
)
def test_the_application_is_started_with_the_settings_that_were_given(
    given: dict[str, Any],
) -> None:
    config = parse_config(given, "given")
    assert parse_config(settings_of(config), "again") == config


# ---- a whole run, against a server whose policy is not ours


def run(out: Path, url: str, *options: str, command: str = "traffic") -> Result:
    given = ["--out", str(out), "--base-url", url, "--warm-up", "0", *options]
    return CliRunner().invoke(bench_app, [command, *given], catch_exceptions=False)


def session(out: Path) -> Session:
    return Session(
        benchmark="traffic",
        out=out,
        settings=SETTINGS,
        arms="off",
        table=None,
        config_file=None,
        base_url=None,
        model=None,
        tokenizer=None,
        api_key=None,
        prompts=None,
        temperature=0.0,
        ignore_eos=True,
        salt=None,
        warm_up_s=0.0,
        slo=Slo(),
        timeout_s=30.0,
    )


def small(out: Path, url: str, *options: str) -> Result:
    draw = ["--intervals", "0.04,0.03", "--cvs", "0", "--seconds", "0.1", "--segments", "2"]
    return run(out, url, *draw, "--timeline", "none", *options)


def results(out: Path, name: str = "traffic") -> dict[str, Any]:
    document: dict[str, Any] = json.loads((out / f"{name}.json").read_text())
    return document


def kept(out: Path) -> Seen:
    with scripted_server() as (url, seen):
        result = small(out, url)
        assert result.exit_code == 0, result.output
    return seen


def test_a_run_writes_results_report_pictures_and_arrivals(tmp_path: Path) -> None:
    seen = kept(tmp_path)
    document = results(tmp_path)
    assert document["is_complete"]
    assert {"cpu", "versions", "commit"} <= document["environment"].keys()
    assert [len(one["arms"]["server"]["segments"]) for one in document["settings"]] == [2, 2]
    assert document["settings"][0]["arms"]["server"]["requests"] == 4
    assert len(seen.bodies) == 4 + 6
    assert seen.policies == []
    assert not any("cache_salt" in body for body in seen.bodies)
    assert "every 0.04 s, CV 0" in (tmp_path / "traffic.md").read_text()
    assert (tmp_path / "traffic-latency.png").read_bytes().startswith(b"\x89PNG")
    assert len(list(tmp_path.glob("arrivals-*.csv"))) == 2


def test_a_run_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    with scripted_server() as (url, _):
        small(tmp_path, url)
        file = tmp_path / "traffic.measured.jsonl"
        lines = file.read_text().splitlines(keepends=True)
        assert len(lines) == 4
        file.write_text("".join(lines[:2]))
        before = len(_.bodies)
        small(tmp_path, url)
        assert file.read_text().splitlines(keepends=True)[:2] == lines[:2]
        assert len(_.bodies) - before == 5
        small(tmp_path, url)  # all is there: nobody is asked, the report is written again
        assert len(_.bodies) - before == 5
        with pytest.raises(ConfigError, match="holds another run"):
            small(tmp_path, url, "--new-tokens", "9")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--salt"], "salted was false and is now true"),
        (["--timeout", "9"], "timeout_s was 300.0 and is now 9.0"),
        (["--tokenizer", "other"], 'tokenizer was null and is now "other"'),
    ],
)
def test_a_run_does_not_go_on_with_other_settings(
    tmp_path: Path, options: list[str], said: str
) -> None:
    with scripted_server() as (url, _):
        small(tmp_path, url)
        with pytest.raises(ConfigError, match=f"holds another run, {said}"):
            small(tmp_path, url, *options)


def test_a_run_does_not_go_on_with_other_prompts_of_the_same_name(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    with scripted_server() as (url, _):
        prompts.write_text(json.dumps({"prompt": "one"}) + "\n")
        small(tmp_path / "out", url, "--prompts", str(prompts))
        prompts.write_text(json.dumps({"prompt": "two"}) + "\n")
        with pytest.raises(ConfigError, match="holds another run, prompts_digest was"):
            small(tmp_path / "out", url, "--prompts", str(prompts))


def test_a_run_does_not_go_on_with_another_model_or_draft(tmp_path: Path) -> None:
    model, draft = tmp_path / "model", tmp_path / "draft"
    tokenizer = byte_level_tokenizer()
    for folder, seed in ((model, 0), (draft, 1)):
        save_tiny_llama(folder, seed=seed, vocab_size=len(tokenizer))
        tokenizer.save_pretrained(folder)

    def plan(**drafter: Any) -> dict[str, Any]:
        given = {"model": str(model), "drafter": drafter, "engine": {"device": "cpu"}}
        config = parse_config(given, "given").with_models_found()
        return plan_of(session(tmp_path), [], config, "m", ["text"], None, salted=True)

    first, looked_up = plan(kind="model", model=str(draft)), plan(kind="ngram", max_ngram=2)
    assert first_difference(first, plan(kind="model", model=str(draft))) is None
    assert first["environment"]["gpu"] is None
    longer = first_difference(looked_up, plan(kind="ngram", max_ngram=4))
    assert longer == "drafter_settings.max_ngram was 2 and is now 4"
    save_tiny_llama(draft, seed=2, vocab_size=len(tokenizer))
    told = first_difference(first, plan(kind="model", model=str(draft)))
    assert told is not None
    assert told.startswith("drafter_settings.weights was")
    save_tiny_llama(model, seed=3, vocab_size=len(tokenizer))
    told = first_difference(looked_up, plan(kind="ngram", max_ngram=2))
    assert told is not None
    assert told.startswith("weights was")


def test_arrivals_of_a_run_can_be_replayed(tmp_path: Path) -> None:
    kept(tmp_path / "first")
    files = sorted((tmp_path / "first").glob("arrivals-*.csv"))
    options = [word for file in files for word in ("--arrivals", str(file))]
    with scripted_server() as (url, _):
        run(tmp_path / "second", url, *options)
    digests = [
        {one["digest"] for one in results(tmp_path / name)["settings"]}
        for name in ("first", "second")
    ]
    assert digests[0] == digests[1]


def test_failures_are_counted_and_told(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in ("hello", FAIL)))
    with scripted_server() as (url, _):
        small(tmp_path / "out", url, "--prompts", str(prompts))
    arm = results(tmp_path / "out")["settings"][0]["arms"]["server"]
    assert (arm["requests"], arm["failed"]) == (4, 2)
    assert arm["errors"] == {"503: the engine is full": 2}
    assert "2 x 503: the engine is full" in (tmp_path / "out" / "traffic.md").read_text()


def test_a_timeline_is_drawn(tmp_path: Path) -> None:
    with scripted_server() as (url, _):
        options = ["--timeline", "0.03,0.09", "--phase-seconds", "0.1", "--cycles", "1"]
        small(tmp_path, url, *options)
    assert (tmp_path / "traffic-timeline-1.png").read_bytes().startswith(b"\x89PNG")


def test_a_trace_is_replayed_with_its_lengths(tmp_path: Path) -> None:
    trace = tmp_path / "chats.csv"
    trace.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,40,44\n2023-11-16 18:15:46.6905900,60,3\n"
    )
    with scripted_server() as (url, seen):
        result = run(
            tmp_path / "out", url, str(trace), "--slowdown", "2", "--no-salt", command="trace"
        )
    assert result.exit_code == 0, result.output
    asked = {body["max_tokens"]: len(body["messages"][0]["content"]) for body in seen.bodies}
    assert asked == {44: 160, 3: 240}  # four characters a token, where no tokenizer is known
    assert results(tmp_path / "out", "trace")["benchmark"] == "trace"
    assert "0 requests of more than 4096 tokens" in (tmp_path / "out" / "trace.md").read_text()
