"""What is asked of many replicas: chats whose turns share their beginnings, requests with heavy
tails, and recorded traces."""

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.routing_simulation import (
    BASE_S,
    PER_PROMPT_TOKEN_S,
    PER_SEQUENCE_S,
    TOKENS_PER_DIGEST,
    Ask,
)
from deployments.simulate.traffic import read_trace

USUAL_BATCH = 32
MOST_PROMPT_TOKENS, MOST_NEW_TOKENS = 8000, 2000
NUM_SYSTEM_PROMPTS, SYSTEM_TOKENS = 20, 512
THINK_S = 8.0


def chat(count: int, draw: random.Random) -> list[Ask]:
    """Conversations of several turns: each turn's prompt is all that was said before, and more."""
    asks: list[Ask] = []
    start_s, conversation = 0.0, 0
    while len(asks) < count:
        conversation += 1
        start_s += draw.expovariate(1.0)
        at_s, system = start_s, draw.randrange(NUM_SYSTEM_PROMPTS)
        said = SYSTEM_TOKENS
        for _ in range(min(12, 1 + int(draw.expovariate(1 / 4)))):
            said += int(draw.expovariate(1 / 80)) + 5
            answer = min(MOST_NEW_TOKENS, int(draw.expovariate(1 / 200)) + 1)
            if said > MOST_PROMPT_TOKENS:
                break
            digests = _digests(system, conversation, said)
            asks.append(Ask(at_s, said, answer, digests, f"c{conversation}".encode()))
            said += answer
            at_s += THINK_S * (0.5 + draw.expovariate(1.0)) + answer * 0.03
    return sorted(asks, key=lambda ask: ask.at_s)[:count]


def heavy_tailed(count: int, draw: random.Random) -> list[Ask]:
    """Prompts and answers with log-normal lengths, most short and some very long."""
    at_s, asks = 0.0, []
    for _ in range(count):
        at_s += draw.expovariate(1.0)
        prompt = min(MOST_PROMPT_TOKENS, int(draw.lognormvariate(math.log(250), 1.6)) + 1)
        answer = min(MOST_NEW_TOKENS, int(draw.lognormvariate(math.log(80), 1.2)) + 1)
        asks.append(Ask(at_s, prompt, answer))
    return asks


def trace(file: Path, count: int) -> list[Ask]:
    """The first requests of a recorded trace; what they said was not recorded, so none shares its
    beginning."""
    return [Ask(*arrival) for arrival in read_trace(file)[:count]]


def at_load(asks: Sequence[Ask], num_replicas: int, load: float) -> list[Ask]:
    """The same, faster or slower: so that its work, with nothing cached, takes that share of the
    replicas' time at a usual batch. Turns of a conversation come closer together too."""
    per_token_s = (BASE_S + PER_SEQUENCE_S * USUAL_BATCH) / USUAL_BATCH
    work_s = sum(a.prompt_tokens * PER_PROMPT_TOKEN_S + a.new_tokens * per_token_s for a in asks)
    factor = work_s / (num_replicas * load) / asks[-1].at_s
    return [replace(ask, at_s=ask.at_s * factor) for ask in asks]


def _digests(system: int, conversation: int, num_tokens: int) -> tuple[bytes, ...]:
    shared = SYSTEM_TOKENS // TOKENS_PER_DIGEST
    return tuple(
        f"s{system}/{index}".encode() if index < shared else f"c{conversation}/{index}".encode()
        for index in range(num_tokens // TOKENS_PER_DIGEST)
    )
