"""The comparison with other engines: workers that answer, refuse, die or hang, and what is judged.

The worker is a script of three lines of behaviour around the real protocol; nothing is downloaded.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf import GGUFReader, GGUFWriter
from rich.console import Console
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from benchmarks.peers.contenders import OURS, Contender, contenders
from benchmarks.peers.draft_gguf import DraftFormatError, write_draft_gguf
from benchmarks.peers.environments import STAMP, Environment, SetupError
from benchmarks.peers.goals import judge
from benchmarks.peers.launch import Crew
from benchmarks.peers.measuring import Results, Task, measure
from benchmarks.peers.worker import Answer, Worker, WorkerError
from benchmarks.peers.workers.gguf_f16 import write
from benchmarks.peers.workloads import Workload, rewriting_task

ROOT = Path(__file__).parents[1]
FAKE = """
import os, signal
from benchmarks.peers.workers.protocol import serve

def load(settings):
    print("a library talks")
    if settings.get("broken"):
        raise ValueError("no such CPU")
    os.system("echo a child talks")
    def run(prompts, new_tokens, draft_len):
        print("and talks")
        if draft_len == 1:
            raise RuntimeError("refused\\nat length")
        if draft_len == 2:
            print("the last words", flush=True)
            os._exit(3)
        if draft_len == 3:
            signal.pause()
        if draft_len == 4:
            return 1
        return new_tokens * len(prompts)
    return run, {"weights_bytes": 7}

serve(load, "pip")
"""
SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "tie_word_embeddings": True,
}
FOREVER = 1e6
"""Seconds that no test waits: a hang would be reported by pytest's own limit."""


@pytest.fixture
def crew() -> Iterator[Crew]:
    crew = Crew()
    yield crew
    crew.end()


def _worker(crew: Crew, folder: Path, *, broken: bool = False) -> str:
    """Add a fake worker to `crew` and tell its name."""
    script = folder / "fake.py"
    script.write_text(FAKE)
    name = f"fake-{len(crew.workers)}"

    def start() -> tuple[Worker, dict[str, bool]]:
        worker = Worker(
            name,
            [sys.executable, str(script)],
            cwd=folder,
            log=folder / f"{name}.log",
            environment={"PYTHONPATH": str(ROOT)},
        )
        return worker, {"broken": broken}

    crew.add(name, start)
    return name


def _state(pid: int) -> str:
    """The kernel's letter: T is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def test_what_libraries_print_goes_to_the_log_and_answers_come_through(
    crew: Crew, tmp_path: Path
) -> None:
    name = _worker(crew, tmp_path)
    assert crew.facts[name]["weights_bytes"] == 7
    assert crew.facts[name]["versions"].keys() == {"pip"}
    worker = crew.workers[name]
    for _ in range(2):
        answer = worker.ask([[1, 2], [3]], 5, 0, FOREVER)
        assert answer.num_tokens == 10
        assert answer.seconds > 0
        assert answer.rss_bytes > 1_000_000
    crew.end()
    log = worker.log.read_text()
    assert "a library talks" in log
    assert "a child talks" in log


def test_a_worker_stands_still_while_it_is_not_asked(crew: Crew, tmp_path: Path) -> None:
    worker = crew.workers[_worker(crew, tmp_path)]
    assert _state(worker.pid) == "T"
    worker.ask([[1]], 1, 0, FOREVER)
    assert _state(worker.pid) == "T"


def test_a_worker_that_cannot_load_is_told_of_and_gone(crew: Crew, tmp_path: Path) -> None:
    name = _worker(crew, tmp_path, broken=True)
    assert crew.unavailable == {name: "ValueError: no such CPU"}
    assert not crew.workers


def test_a_refused_request_leaves_the_worker_in_service(crew: Crew, tmp_path: Path) -> None:
    worker = crew.workers[_worker(crew, tmp_path)]
    with pytest.raises(WorkerError, match=r"^RuntimeError: refused$"):
        worker.ask([[1]], 1, 1, FOREVER)
    with pytest.raises(WorkerError, match="gave 1 tokens instead of 6"):
        worker.ask([[1], [2]], 3, 4, FOREVER)
    assert worker.ask([[1]], 1, 0, FOREVER).num_tokens == 1


def test_a_worker_that_dies_says_with_what_words_and_fails_from_then_on(
    crew: Crew, tmp_path: Path
) -> None:
    worker = crew.workers[_worker(crew, tmp_path)]
    for draft_len in (2, 0):
        with pytest.raises(WorkerError, match="ended with code 3: the last words"):
            worker.ask([[1]], 1, draft_len, FOREVER)


def test_a_worker_that_hangs_is_killed_and_fails_from_then_on(crew: Crew, tmp_path: Path) -> None:
    worker = crew.workers[_worker(crew, tmp_path)]
    for draft_len in (3, 0):
        with pytest.raises(WorkerError, match=r"gave no answer in 0.1 s"):
            worker.ask([[1]], 1, draft_len, 0.1)
    with pytest.raises(ProcessLookupError):
        os.kill(worker.pid, 0)


def test_the_others_go_on_when_one_dies(crew: Crew, tmp_path: Path) -> None:
    good, bad = _worker(crew, tmp_path), _worker(crew, tmp_path)
    well, dying = Contender("fake", "0"), Contender("fake", "1", 2)
    absent = Contender("fake", "absent")
    assert (well.worker, dying.worker) == (good, bad)
    task = Task(Workload("chat", ((5,), (6,))), 2, 3, (dying, absent, well))
    results = Results()
    turns: list[str] = []
    measure(
        [task],
        crew.workers,
        {absent.worker: "not for this CPU"},
        2,
        results,
        lambda _task, contender: turns.append(contender.mode),
    )
    assert [len(seconds) for seconds in results.seconds.values()] == [2]  # the warm-up is not in
    assert ("chat", 2, well) in results.seconds
    assert results.failed["chat", 2, dying].startswith("ended with code 3")
    assert results.failed["chat", 2, absent] == "not for this CPU"
    assert turns == ["1", "absent", "0"] * 3
    assert json.dumps(results.tokens_per_second(("chat", 2, well)))


def test_who_learns_decodes_other_prompts_first_until_it_had_its_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Told(Worker):
        """Answers in two seconds, and keeps what it was asked."""

        def __init__(self) -> None:
            self.asked: list[tuple[tuple[int, ...], int | None]] = []

        def ask(
            self,
            prompts: list[list[int]],
            new_tokens: int,
            draft_len: int | None,
            timeout_s: float = FOREVER,
        ) -> Answer:
            self.asked.append((tuple(prompt[1] for prompt in prompts), draft_len))
            return Answer(2.0, new_tokens * len(prompts), 1)

    monkeypatch.setattr("benchmarks.peers.measuring.ADAPTING_S", 5.0)
    worker = Told()
    plain, adaptive = Contender(OURS, "engine", 0), Contender(OURS, "engine", None)
    work = Workload("chat", ((0,), (1,), (2,), (3,), (4,), (5,)))
    results = Results()
    task = Task(work, 1, 3, (plain, adaptive))
    measure([task], {plain.worker: worker}, {}, 1, results, lambda _task, _contender: None)
    assert [prompts for prompts, length in worker.asked if length == 0] == [(0,), (1,)]
    assert [prompts for prompts, length in worker.asked if length is None] == [
        *((5,), (4,), (3,)),  # 6 s
        *((0,), (1,)),
    ]
    assert [len(seconds) for seconds in results.seconds.values()] == [1, 1]


def test_a_draft_for_peers_is_the_same_model(tmp_path: Path) -> None:
    """Written as GGUF and read again by transformers, with other sizes than the target's."""
    target, draft = LlamaConfig(**SIZES), LlamaConfig(**{**SIZES, "num_hidden_layers": 1})
    torch.manual_seed(0)
    model: Any = LlamaForCausalLM(draft)
    model = model.half().float()  # what such a file holds exactly
    model.save_pretrained(tmp_path / "draft")
    writer = GGUFWriter(tmp_path / "target.gguf", "llama")
    writer.add_block_count(target.num_hidden_layers)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"<{i}>" for i in range(SIZES["vocab_size"])])
    write(writer)
    write_draft_gguf(tmp_path / "draft", tmp_path / "target.gguf", tmp_path / "draft.gguf")
    read = AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file="draft.gguf", dtype=torch.float32
    )
    assert read.config.num_hidden_layers == 1
    ids = torch.arange(1, 12)[None]
    with torch.inference_mode():
        assert torch.allclose(read(ids).logits, model(ids).logits, atol=1e-5)
    fields = GGUFReader(tmp_path / "draft.gguf").fields
    assert len(fields["tokenizer.ggml.tokens"].contents()) == SIZES["vocab_size"]


def test_a_draft_that_is_none_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(DraftFormatError, match=f"{tmp_path} holds no Llama in one model"):
        write_draft_gguf(tmp_path, tmp_path / "no.gguf", tmp_path / "draft.gguf")
    with pytest.raises(DraftFormatError, match="nowhere"):
        write_draft_gguf(tmp_path / "nowhere", tmp_path / "no.gguf", tmp_path / "draft.gguf")


def test_ratios_are_of_one_repeat_and_a_failure_gives_no_figure() -> None:
    results = Results(new_tokens={("chat", 1): 64})
    slow, fast = Contender(OURS, "engine", 0), Contender(OURS, "engine", 4)
    adaptive = Contender(OURS, "engine", None)
    plain, lookup = Contender("openvino", "plain"), Contender("openvino", "lookup", 4)
    results.seconds = {
        ("chat", 1, slow): [2.0, 4.0, 2.0],
        ("chat", 1, fast): [0.5, 1.0, 0.5],
        ("chat", 1, adaptive): [1.0, 2.0, 1.0],
        ("chat", 1, plain): [2.0, 8.0, 3.0],
        ("chat", 1, lookup): [1.5, 3.0, 1.5],
    }
    results.failed = {("chat", 1, Contender("vllm", "compiled")): "no AVX512"}
    results.largest_rss_bytes = {f"{OURS}-engine": 1_500_000_000}
    goals, missing = judge(results, 899_000_000)
    assert [(goal.measured, goal.holds) for goal in goals] == [
        (1.5, True),  # length 0 against plain: 1, 2 and 1.5
        (1.5, True),  # adaptive, not the best fixed length, against the best
        (1500.0, False),  # a megabyte too many
    ]
    assert [(goal.reason, goal.holds) for goal in missing] == [("no AVX512", False)]


def test_no_two_measurements_share_a_first_token_and_repeats_take_other_prompts() -> None:
    workload = Workload("chat", ((1, 2), (3, 4), (5, 6)))
    first, other, later = (workload.batch(2, *which) for which in ((0, 0), (0, 1), (1, 2)))
    assert len({batch[0][0] for batch in (first, other, later)}) == 3
    assert [prompt[1:] for prompt in first] == [prompt[1:] for prompt in other] == [[1, 2], [3, 4]]
    assert [prompt[1:] for prompt in later] == [[5, 6], [1, 2]]


def test_a_rewriting_task_holds_the_text_and_the_change() -> None:
    task = rewriting_task("A longest word stands here.")
    assert task.endswith("\n\nA longest word stands here.")
    assert '"longest" as "LONGEST"' in task


def test_only_the_peers_asked_for_compete_and_a_draft_only_where_there_is_one() -> None:
    modes = {c.worker for c in contenders(("openvino",), draft=False, quick=True)}
    assert modes == {"paceline-engine", "openvino-plain", "openvino-lookup"}
    assert "openvino-draft" in {c.worker for c in contenders(("openvino",), draft=True, quick=True)}


def test_an_environment_is_made_once_and_a_half_made_one_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def run(what: str, command: list[str], _log: Path) -> None:
        made.append(what)
        if "venv" in command:
            Path(command[-1]).mkdir()  # fails where a folder is left
        if "install" in command and len(made) <= 2:
            raise SetupError("no network")

    monkeypatch.setattr("benchmarks.peers.environments._run", run)
    environment = Environment("peer", ("thing==1",))
    console = Console(quiet=True)
    with pytest.raises(SetupError, match="no network"):
        environment.prepare(tmp_path, console)
    assert not (tmp_path / "peer" / STAMP).exists()
    for _ in range(2):
        assert environment.prepare(tmp_path, console) == tmp_path / "peer" / "bin" / "python"
    assert len(made) == 4  # two that failed half-way, two anew, none for what is complete
    Environment("peer", ("thing==2",)).prepare(tmp_path, console)
    assert len(made) == 6
