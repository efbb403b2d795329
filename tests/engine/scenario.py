"""A random life of an engine, as data: what it is made of, what is asked of it, and when.

Everything is drawn from one `random.Random`: a plain one (`make fuzz`), or hypothesis' own, which
makes a failing scenario smaller.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from engine.request import Request, SamplingParams
from tests.engine.grammar_cases import GRAMMARS
from tests.engine.tiny_models import (
    CONTEXT,
    DRAFTERS,
    EOS,
    TARGETS,
    VOCAB_SIZE,
    DrafterName,
    TargetName,
)

Rungs = tuple[tuple[int, int], ...]

LONGEST_PROMPT = 24
LAST_EVENT_STEP = 20


@dataclass(frozen=True)
class Arrival:
    """Requests that are added together once so many steps are done."""

    step: int
    requests: tuple[Request, ...]


@dataclass(frozen=True)
class Scenario:
    target: TargetName
    drafter: DrafterName
    sizes: dict[str, int]
    """Of the engine's configuration, in its words."""
    rungs: Rungs
    """Of the first table."""
    arrivals: tuple[Arrival, ...]
    aborts: tuple[tuple[int, str], ...]
    """(step, request id)"""
    swaps: tuple[tuple[int, Rungs], ...]
    """(step, rungs of another table)"""

    @property
    def requests(self) -> list[Request]:
        return [request for arrival in self.arrivals for request in arrival.requests]

    @property
    def max_len(self) -> int:
        """Longest sequence, prompt included."""
        return min(CONTEXT, self.sizes["num_blocks"] * self.sizes["block_size"])

    def __str__(self) -> str:
        lines = [
            f"target {self.target}, drafter {self.drafter}, rungs {self.rungs}",
            ", ".join(f"{name}={value}" for name, value in self.sizes.items()),
        ]
        for arrival in self.arrivals:
            lines += [f"step {arrival.step}: {_told(request)}" for request in arrival.requests]
        lines += [f"step {step}: abort {name}" for step, name in self.aborts]
        lines += [f"step {step}: rungs {rungs}" for step, rungs in self.swaps]
        return "\n".join(lines)


def _told(request: Request) -> str:
    plain = SamplingParams()
    params = {
        name: getattr(request.sampling, name)
        for name in SamplingParams.__dataclass_fields__
        if getattr(request.sampling, name) != getattr(plain, name)
    }
    priority = f" priority {request.priority}" if request.priority else ""
    return f"{request.request_id}{priority} {list(request.prompt_token_ids)} {params}"


def draw_scenario(chance: Random) -> Scenario:
    arrivals = _draw_arrivals(chance)
    requests = [request for arrival in arrivals for request in arrival.requests]
    return Scenario(
        target=chance.choice(TARGETS),
        drafter=chance.choice(DRAFTERS),
        sizes=_draw_sizes(chance, requests),
        rungs=_draw_rungs(chance),
        arrivals=arrivals,
        aborts=tuple(
            (chance.randint(0, LAST_EVENT_STEP), request.request_id)
            for request in requests
            if chance.random() < 0.15
        ),
        swaps=tuple(
            (chance.randint(1, LAST_EVENT_STEP), _draw_rungs(chance))
            for _ in range(chance.choice([0, 0, 1, 3]))
        ),
    )


def _draw_sizes(chance: Random, requests: Sequence[Request]) -> dict[str, int]:
    block_size = chance.choice([1, 2, 3, 4, 8, 16])
    longest = max(len(request.prompt_token_ids) for request in requests)
    # From a pool that one sequence fills to one in which nothing is ever short.
    tokens = chance.choice([longest + 1, longest + 8, CONTEXT, 2 * CONTEXT, 8 * CONTEXT])
    return {
        "block_size": block_size,
        "num_blocks": -(-tokens // block_size),
        "max_step_tokens": chance.choice([1, 3, 5, 8, 16, 64, 512, 512]),
        "max_num_seqs": chance.choice([1, 2, 3, 8]),
        "max_draft_len": chance.choice([8, 8, 8, 3, 0]),
    }


def _draw_rungs(chance: Random) -> Rungs:
    """Lengths by batch size; nothing is known above the last."""
    sizes = sorted(chance.sample([1, 2, 3, 4, 5, 8, 100], chance.randint(0, 4)))
    return tuple((size, chance.randint(0, 8)) for size in [*sizes, 1000])


def _draw_arrivals(chance: Random) -> tuple[Arrival, ...]:
    shared = [chance.randrange(VOCAB_SIZE) for _ in range(LONGEST_PROMPT)]
    arrivals: list[Arrival] = []
    prompts: list[tuple[int, ...]] = []
    num_requests = 0
    for group in range(chance.choice([1, 1, 1, 2, 3, 4])):
        size = chance.choice([1, 1, 1, 2, 3])
        size = min(size, 8 - num_requests)
        num_requests += size
        prompt = chance.choice(prompts) if prompts and chance.random() < 0.2 else None
        prompt = prompt or _draw_prompt(chance, shared)
        prompts.append(prompt)
        requests = [
            Request(f"{group}.{index}", prompt, sampling, chance.choice([0, 0, 0, -1, 5]))
            for index, sampling in enumerate(_draw_siblings(chance, prompt, size))
        ]
        arrivals.append(Arrival(chance.choice([0, 0, 1, 3, 7, 12]), tuple(requests)))
    return tuple(arrivals)


def _draw_prompt(chance: Random, shared: list[int]) -> tuple[int, ...]:
    """Some beginning of what all share, and a tail of its own, which may repeat itself."""
    common = shared[: chance.choice([0, 0, 1, 4, 8, 15, 16])]
    tail = [chance.randrange(VOCAB_SIZE) for _ in range(chance.choice([0, 1, 2, 5, 9]))]
    tail *= chance.choice([1, 1, 1, 3])
    return tuple([*common, *tail][:LONGEST_PROMPT] or [chance.randrange(VOCAB_SIZE)])


def _draw_siblings(chance: Random, prompt: tuple[int, ...], count: int) -> list[SamplingParams]:
    """As the API asks for several choices: alike but for the seed; or nothing alike."""
    if chance.random() < 0.5:
        return [_draw_sampling(chance, prompt) for _ in range(count)]
    params = _draw_params(chance, prompt)
    return [SamplingParams(**params, seed=chance.randrange(2**62)) for _ in range(count)]


def _draw_sampling(chance: Random, prompt: tuple[int, ...]) -> SamplingParams:
    seed = chance.choice([0, 1, -1, -(2**63), 2**63 - 1, chance.randrange(2**62)])
    return SamplingParams(**_draw_params(chance, prompt), seed=seed)


def _draw_params(chance: Random, prompt: tuple[int, ...]) -> dict[str, Any]:
    """Half of the requests are plain but for two or three parameters; some have all of them."""
    rate = chance.choice([0.1, 0.1, 0.3, 0.8])
    few = chance.sample(range(3, VOCAB_SIZE), 4)  # tokens that several parameters speak of

    def maybe(make: Callable[[], Any], otherwise: Any) -> Any:
        return make() if chance.random() < rate else otherwise

    def a_token() -> int:
        return chance.choice([*few, *few, *prompt, *EOS, chance.randrange(VOCAB_SIZE)])

    def some_tokens(most: int) -> tuple[int, ...]:
        return tuple(a_token() for _ in range(chance.randint(1, most)))

    max_tokens = chance.choice([1, 2, 3, 4, 5, 6, 8, 8, 12, 20, 45])
    grammar = maybe(lambda: chance.choice(list(GRAMMARS)), None) if chance.random() < 0.5 else None
    return {
        "max_tokens": max_tokens,
        "min_tokens": maybe(lambda: chance.randint(0, max_tokens), 0),
        "temperature": chance.choice([0.0, 0.0, 0.0, 1e-6, 0.01, 0.3, 0.7, 1.0, 1.0, 1.5, 2.0]),
        "top_p": maybe(lambda: chance.choice([1e-6, 0.1, 0.5, 0.8, 0.95, 0.999]), 1.0),
        "top_k": maybe(lambda: chance.choice([1, 2, 5, 40, VOCAB_SIZE, 10**6]), 0),
        "min_p": maybe(lambda: chance.choice([1e-6, 0.02, 0.2, 0.9, 1.0]), 0.0),
        "presence_penalty": maybe(lambda: chance.choice([-2.0, -0.5, 0.3, 2.0]), 0.0),
        "frequency_penalty": maybe(lambda: chance.choice([-2.0, -0.5, 0.3, 2.0]), 0.0),
        "repetition_penalty": maybe(lambda: chance.choice([0.2, 0.9, 1.1, 1.5, 5.0]), 1.0),
        "logit_bias": maybe(
            lambda: tuple(
                (token, chance.choice([-100.0, -3.0, 2.0, 5.0, 8.0, 100.0]))
                for token in dict.fromkeys([*few, *some_tokens(3)])
            ),
            (),
        ),
        "bad_words": maybe(
            lambda: tuple(some_tokens(chance.choice([1, 2, 3])) for _ in range(12)), ()
        ),
        "stop_token_ids": maybe(lambda: some_tokens(8), ()),
        "ignore_eos": grammar is None and maybe(lambda: True, False),
        "logprobs": maybe(lambda: chance.choice([0, 1, 3, 20]), None),
        "prompt_logprobs": maybe(lambda: chance.choice([0, 1, 3, 20]), None),
        "grammar": grammar,
        "max_draft_tokens": maybe(lambda: chance.randint(0, 6), None),
    }
