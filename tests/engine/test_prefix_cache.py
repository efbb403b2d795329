"""Found KV is as good as computed KV: the same tokens, whatever was found, shared or forgotten."""

import random
from collections.abc import Sequence as ReadOnly
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from engine.config import DrafterConfig
from engine.core import Engine
from engine.plan import Draft, StepPlan, StepResult
from engine.prefix_cache import extend_digests
from engine.request import Request, SamplingParams
from policy.table import SpeculationTable, fixed_rungs
from tests.engine.conftest import PROMPTS
from tests.engine.harness import Outcome, greedy, run, texts, tiny_engine

LONG = PROMPTS["long"]
DRAFTERS = ("none", "ngram", "perturbed", "itself")


def drafter_config(name: str, target: Path, draft: Path) -> DrafterConfig:
    match name:
        case "none":
            return DrafterConfig(kind="none")
        case "ngram":
            return DrafterConfig(kind="ngram", max_ngram=3, min_ngram=1)
        case "perturbed":
            return DrafterConfig(kind="model", model=draft)
        case _:
            return DrafterConfig(kind="model", model=target)


class CountingExecutor:
    """Counts the known tokens that the target computes."""

    failure: str | None = None

    def __init__(self, engine: Engine) -> None:
        self._inner = engine._executor
        engine._executor = self
        self.num_tokens = 0

    def execute(self, plan: StepPlan, drafts: ReadOnly[Draft]) -> StepResult:
        self.num_tokens += sum(part.num_tokens for part in plan.slices)
        return self._inner.execute(plan, drafts)

    def close(self) -> None:
        self._inner.close()


def test_digests_tell_text_and_place_and_stay_the_same() -> None:
    def digests(tokens: list[int], block_size: int = 2) -> list[bytes]:
        found: list[bytes] = []
        for end in range(len(tokens) + 1):  # as a text grows
            extend_digests(found, tokens[:end], block_size)
        return found

    assert len(digests([1, 2, 3, 4, 5])) == 2
    assert digests([1, 2, 3, 4, 5]) == digests([1, 2, 3, 4])
    assert digests([1, 2, 1, 2])[0] != digests([1, 2, 1, 2])[1]
    assert digests([9, 2, 3, 4])[1] != digests([1, 2, 3, 4])[1]
    # Neither Python's hash() nor anything else that differs from run to run.
    assert digests([2**40, 0])[0].hex()[:16] == "b007816c3d7ac250"


def test_a_salt_parts_texts_that_are_alike() -> None:
    def digests(salt: str) -> list[bytes]:
        found: list[bytes] = []
        extend_digests(found, [1, 2, 3, 4], 2, salt)
        return found

    assert digests("a") == digests("a")
    assert len({*digests(""), *digests("a"), *digests("b")}) == 6


# ---- the same tokens


def cold_texts(target: Path, requests: list[Request]) -> dict[str, list[int]]:
    """What each request gets alone, in an engine that finds nothing."""
    engine = tiny_engine(target)
    engine._pool.cache.find = lambda digests, limit: []  # type: ignore[method-assign]
    found: dict[str, list[int]] = {}
    for request in requests:
        found |= texts(run(engine, [request]))
    assert engine.status().prefix_cache_hits == 0
    return found


@pytest.fixture(scope="module")
def long_text(target: Path) -> list[int]:
    """What follows [*LONG, 3], 40 tokens of it."""
    return cold_texts(target, [greedy("a", [*LONG, 3], 40)])["a"]


def turns(chance: random.Random, sampled: bool) -> list[Request]:
    """Requests whose prompts begin alike in many ways."""
    requests = []
    for index in range(6):
        begin = LONG[: chance.choice([0, 3, 8, 16, 31, 40])]
        own = [chance.randrange(1, 120) for _ in range(chance.choice([1, 4, 9]))]
        params: dict[str, Any] = {"temperature": 0.0}
        if sampled:
            params = {"temperature": 0.9, "top_p": 0.95, "seed": index}
        requests.append(
            Request(
                f"{index}",
                (*begin, *own),
                SamplingParams(max_tokens=chance.choice([6, 20, 30]), **params),
                priority=chance.choice([0, 0, 1]),
            )
        )
    return requests


def test_only_requests_of_one_salt_share_what_is_computed(target: Path) -> None:
    engine = tiny_engine(target)
    cached = [
        run(engine, [replace(greedy(f"{number}", LONG, 4), cache_salt=salt)])[
            f"{number}"
        ].num_cached_tokens
        for number, salt in enumerate(("a", "b", "b", "a", ""))
    ]
    assert [found > 0 for found in cached] == [False, False, True, True, False]


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("name", DRAFTERS)
def test_hits_change_nothing(target: Path, draft: Path, name: str, sampled: bool) -> None:
    """Alone in a new engine; then twice together in one whose pool forgets and preempts."""
    requests = turns(random.Random(1), sampled)
    expected = cold_texts(target, requests)
    engine = tiny_engine(
        target,
        draft_len=4,
        drafter=drafter_config(name, target, draft),
        num_blocks=20,
        max_model_len=80,
        max_step_tokens=24,
    )
    lengths: list[int] = []
    for round_ in range(2):
        outcomes = run(engine, requests, lambda _: lengths.append(engine.status().num_waiting))
        assert texts(outcomes) == expected, f"round {round_}"
    assert engine.status().prefix_cache_hits > 0
    assert any(later > earlier for earlier, later in pairwise(lengths)), "nothing was preempted"


@pytest.mark.parametrize("name", ["ngram", "perturbed"])
def test_a_conversation_goes_on_as_if_it_were_computed_anew(
    target: Path, draft: Path, name: str
) -> None:
    engine = tiny_engine(target, draft_len=3, drafter=drafter_config(name, target, draft))
    text = list(LONG)
    requests, answers = [], {}
    for turn in range(4):
        requests.append(greedy(f"turn {turn}", text, 11))
        outcome = run(engine, requests[-1:])[f"turn {turn}"]
        answers[f"turn {turn}"] = outcome.tokens
        # All full blocks of the turn before, but for its last token, which was never computed.
        assert outcome.num_cached_tokens == (0 if turn == 0 else (len(text) - 3 - 1) // 4 * 4)
        text += [*outcome.tokens, 5, 6, 7]
    assert answers == cold_texts(target, requests)


@pytest.mark.parametrize("abort_after", range(1, 14))
def test_aborted_neighbours_leave_a_cache_to_rely_on(
    target: Path, draft: Path, long_text: list[int], abort_after: int
) -> None:
    """Drafts are pending whenever one goes; what it leaves behind is read by the others."""
    engine = tiny_engine(
        target,
        draft_len=5,
        drafter=DrafterConfig(kind="model", model=draft),
        max_step_tokens=16,
        num_blocks=40,
        max_model_len=80,
    )
    batch = [greedy(f"{index}", [*LONG, 3], 20) for index in range(4)]

    def abort(step: int) -> None:
        if step == abort_after:
            engine.abort("0")
            engine.abort("2")
            engine.check_integrity()

    outcomes = run(engine, batch, abort)
    assert outcomes["1"].tokens == outcomes["3"].tokens == long_text[:20]
    again = run(engine, [greedy("again", [*LONG, 3], 20)])["again"]
    assert again.tokens == long_text[:20]
    assert again.num_cached_tokens == 40


# ---- computed once


def test_choices_of_one_prompt_compute_it_once(target: Path) -> None:
    engine = tiny_engine(target, max_step_tokens=16)
    counting = CountingExecutor(engine)
    requests = [
        Request(f"{seed}", tuple(LONG), SamplingParams(max_tokens=3, seed=seed))
        for seed in range(5)
    ]
    engine.add(*requests)
    outcomes: dict[str, list[int]] = {request.request_id: [] for request in requests}
    cached = 0
    while engine.has_work:
        for delta in engine.step():
            outcomes[delta.request_id] += delta.token_ids
            cached += delta.num_cached_tokens
        engine.check_integrity()
    # 36 of 40 tokens are shared; two of the three new tokens are computed.
    assert counting.num_tokens == 40 + 4 * 4 + 5 * 2
    assert cached == 4 * 36
    assert outcomes == cold_texts(target, requests)


def test_choices_of_one_prompt_share_the_draft_models_work(target: Path) -> None:
    engine = tiny_engine(target, draft_len=3, drafter=DrafterConfig(kind="model", model=target))
    drafted = count_draft_tokens(engine)
    run(engine, [greedy(f"{index}", LONG, 9) for index in range(5)])
    # Two rounds each: what is not shared of the prompt, then three drafts with their catching up.
    assert drafted[0] < 40 + 5 * 20


def count_draft_tokens(engine: Engine) -> list[int]:
    """A cell with the number of tokens that the draft model has computed."""
    counted = [0]
    runner = engine._drafter._runner  # type: ignore[attr-defined]
    forward = runner.forward

    def counting(inputs: Any) -> Any:
        counted[0] += sum(len(part.token_ids) for part in inputs)
        return forward(inputs)

    runner.forward = counting
    return counted


def test_status_counts_what_is_kept(target: Path) -> None:
    engine = tiny_engine(target)
    run(engine, [greedy("a", LONG, 4)])
    status = engine.status()
    assert status.num_free_blocks == status.num_blocks == 256
    assert status.num_cached_blocks == (40 + 3) // 4
    assert (status.prefix_cache_queries, status.prefix_cache_hits) == (40, 0)
    run(engine, [greedy("b", LONG, 4)])
    status = engine.status()
    assert (status.prefix_cache_queries, status.prefix_cache_hits) == (80, 36)


def test_prompt_logprobs_are_whole_behind_a_hit(target: Path) -> None:
    engine = tiny_engine(target)
    run(engine, [greedy("warm", LONG, 4)])
    engine.add(greedy("asks", LONG, 2, prompt_logprobs=0))
    told: list[int] = []
    while engine.has_work:
        for delta in engine.step():
            told += [entry.token_id for entry in delta.prompt_logprobs]
            assert delta.num_cached_tokens == 0
    assert told == LONG[1:]


# ---- the draft model's KV


def set_length(engine: Engine, draft_len: int) -> None:
    engine.set_table(SpeculationTable(engine.table.version + 1, fixed_rungs(draft_len)))


@pytest.mark.parametrize("first_len", [0, 3])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_draft_equal_to_the_target_is_always_kept_after_a_hit(
    target: Path, first_len: int, temperature: float
) -> None:
    """With and without draft KV in the blocks that are found."""
    engine = tiny_engine(target, drafter=DrafterConfig(kind="model", model=target))
    drafted = count_draft_tokens(engine)
    set_length(engine, first_len)
    first = run(engine, [greedy("first", LONG, 1 + 4 * 3)])["first"]
    set_length(engine, 3)
    drafted[0] = 0
    sampling = SamplingParams(max_tokens=1 + 4 * 5, temperature=temperature, seed=5)
    prompt = (*LONG, *first.tokens, 7, 8)
    second = run(engine, [Request("second", prompt, sampling)])["second"]
    assert second.num_cached_tokens == 52
    assert second.num_accepted == second.num_drafted == 15
    missing = len(prompt) + 1 - (48 if first_len else 0)
    assert drafted[0] == missing + 2 + 4 * 4


@pytest.mark.parametrize("seed", range(6))
def test_a_draft_equal_to_the_target_is_kept_whatever_becomes_of_its_blocks(
    target: Path, seed: int
) -> None:
    """Shared, preempted, forgotten and taken by others, drafted in part: a stale one would show."""
    chance = random.Random(seed)
    engine = tiny_engine(
        target,
        drafter=DrafterConfig(kind="model", model=target),
        num_blocks=30,
        max_model_len=80,
        max_step_tokens=24,
    )

    def swap(step: int) -> None:
        if chance.random() < 0.4:
            set_length(engine, chance.choice([0, 0, 2, 5]))
        running = [seq.request_id for seq in engine._scheduler._queues.running]
        if running and chance.random() < 0.05:
            engine.abort(chance.choice(running))

    outcomes: list[Outcome] = []
    for _ in range(4):
        outcomes += run(engine, turns(chance, sampled=False), swap).values()
    assert engine.status().prefix_cache_hits > 100
    drafted = sum(outcome.num_drafted for outcome in outcomes)
    assert sum(outcome.num_accepted for outcome in outcomes) == drafted > 50


def test_a_preempted_sequence_goes_on_with_the_same_tokens(
    target: Path, draft: Path, long_text: list[int]
) -> None:
    engine = tiny_engine(
        target, draft_len=3, drafter=DrafterConfig(kind="model", model=draft), max_num_seqs=1
    )
    urgent = [Request(f"urgent {i}", (9, 9, i), priority=-1) for i in range(1, 5)]
    engine.add(greedy("a", [*LONG, 3], 40))
    tokens: list[int] = []
    order: list[str] = []
    while engine.has_work:
        deltas = engine.step()
        engine.check_integrity()
        tokens += [t for delta in deltas if delta.request_id == "a" for t in delta.token_ids]
        order += [delta.request_id for delta in deltas]
        if urgent and order[-1:] == ["a"]:
            engine.add(urgent.pop(0))
            assert [delta.request_id for delta in engine.step()] != ["a"]
    assert tokens == long_text
    assert sum(name.startswith("urgent") for name in order) >= 4
