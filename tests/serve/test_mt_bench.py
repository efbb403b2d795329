"""The embedded model over HTTP in float32: chats, 8 at a time, each what transformers makes.

As many of MT-bench's 80 as PACELINE_CHATS says; 12 without it, which take a minute less.
"""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest
import torch
from transformers import AutoModelForCausalLM

from benchmarks.prompts import DEFAULT_PROMPTS, chat_prompts, first_turns
from engine.model import load_tokenizer
from tests.serve.conftest import WAIT_S, RunningApp, eventually
from tests.serve.serve_process import ServeProcess

PROMPTS = Path(os.environ.get("PACELINE_PROMPTS", DEFAULT_PROMPTS)) / "mt_bench_80.jsonl"
NEW_TOKENS = 16
NUM_CHATS = int(os.environ.get("PACELINE_CHATS", "12"))
CLIENTS = 8
REFERENCE_BATCH = 16

pytestmark = [
    pytest.mark.skipif(not PROMPTS.is_file(), reason=f"no prompts at {PROMPTS}"),
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def questions() -> list[str]:
    found = first_turns(PROMPTS)
    assert len(found) == 80
    return found[:NUM_CHATS]


@pytest.fixture(scope="module")
def reference(smollm2: Path, questions: list[str]) -> list[str]:
    """What `transformers.generate` answers: computed in padded batches, to take minutes less."""
    tokenizer = load_tokenizer(smollm2)
    prompts = chat_prompts(questions, tokenizer)
    model = AutoModelForCausalLM.from_pretrained(smollm2, dtype=torch.float32)
    threads = torch.get_num_threads()
    torch.set_num_threads(os.cpu_count() or 1)
    try:
        tokens: list[list[int]] = []
        for start in range(0, len(prompts), REFERENCE_BATCH):
            tokens += _generate(model, prompts[start : start + REFERENCE_BATCH])
        return [str(tokenizer.decode(ids, skip_special_tokens=True)) for ids in tokens]
    finally:
        torch.set_num_threads(threads)


def _generate(model: Any, prompts: list[list[int]]) -> list[list[int]]:
    longest = max(map(len, prompts))
    padding = [longest - len(prompt) for prompt in prompts]
    rows = zip(padding, prompts, strict=True)
    masks = [[0] * pad + [1] * (longest - pad) for pad in padding]
    output = model.generate(
        torch.tensor([[0] * pad + prompt for pad, prompt in rows]),
        attention_mask=torch.tensor(masks),
        max_new_tokens=NEW_TOKENS,
        do_sample=False,
    )
    tokens: list[list[int]] = output[:, longest:].tolist()
    return tokens


@pytest.fixture(scope="module")
def url(
    smollm2: Path, reference: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The server, started once the reference no longer needs the processors."""
    serve = ServeProcess.start(
        tmp_path_factory.mktemp("mt_bench"),
        {
            "model": str(smollm2),
            "served_model_name": "smollm2-135m",
            "policy": {"fixed": 4},
            # Compiling takes a minute; at every start the engine holds it against the model itself.
            "engine": {"dtype": "float32", "compile": False},
        },
    )
    try:
        eventually(lambda: serve.has_said("curl .*\n"), "it is ready")
        assert serve.process.poll() is None, serve.log.read_text()
        yield f"http://127.0.0.1:{serve.port}"
    finally:
        serve.kill()


def test_eighty_chats_are_what_transformers_makes(
    url: str, questions: list[str], reference: list[str]
) -> None:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=300)
    app = RunningApp(url)
    policies = [
        {"fixed": 8},
        "off",
        {"table": {"2": 5, "16": 2}},
        {"fixed": 1},
        {"fixed": 4},
        "off",
    ]
    answered = threading.Semaphore(0)

    def answer(question: str) -> str:
        stream = client.chat.completions.create(
            model="smollm2-135m",
            messages=[{"role": "user", "content": question}],
            max_tokens=NEW_TOKENS,
            temperature=0,
            stream=True,
        )
        text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
        answered.release()
        return text

    def set_and_await(policy: Any) -> None:
        version = app.set_policy(policy)["table"]["version"]
        eventually(lambda: app.version_in_force() == version, "the policy is in force")

    def change_the_policy() -> None:
        """One after another, each between two answers, once the engine has taken up the last."""
        for policy in policies:
            assert answered.acquire(timeout=WAIT_S)
            set_and_await(policy)

    texts: list[str] = []
    with ThreadPoolExecutor(CLIENTS) as clients, ThreadPoolExecutor(1) as operator:
        changes = operator.submit(change_the_policy)
        while not texts or not changes.done():
            texts += clients.map(answer, questions)
        changes.result()
    wrong = [index for index, text in enumerate(texts) if text != reference[index % len(reference)]]
    assert not wrong, f"{len(wrong)} of {len(texts)} differ; {wrong[0]}: {texts[wrong[0]]!r}"
    eventually(app.is_idle, "every block is free again")
