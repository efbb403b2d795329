"""Plays a scenario on an engine and holds everything it tells against the reference."""

from dataclasses import dataclass, field

from engine.core import Engine
from engine.request import FinishReason, Request, TokenDelta, TokenLogprobs
from policy.table import SpeculationTable
from tests.engine.grammar_cases import GRAMMARS
from tests.engine.reference import Answer, Reference, check_logprobs
from tests.engine.scenario import Scenario
from tests.engine.tiny_models import EOS, assemble, compiler, plain_model, tokenizer

MOST_STEPS = 5000


@dataclass
class Heard:
    """What the engine told of one request."""

    tokens: list[int] = field(default_factory=list)
    reason: FinishReason | None = None
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)
    num_rounds: int = 0
    num_drafted: int = 0
    num_accepted: int = 0
    num_cached_tokens: int = 0
    num_lost_drafts: int = 0
    """Drafted and not kept, before the request's last round."""
    is_aborted: bool = False


def check(scenario: Scenario) -> None:
    """Assert that every request got what it would have got alone, and that the books are right."""
    heard = play(scenario)
    reference = Reference(
        plain_model(scenario.target),
        eos=EOS,
        max_len=scenario.max_len,
        grammars=compiler(scenario.target),
    )
    for request in scenario.requests:
        told = heard[request.request_id]
        answer = reference.answer(request, told.tokens)
        try:
            _compare(request, told, answer)
            if scenario.drafter == "itself" and answer.is_clear:
                assert told.num_lost_drafts == 0, "the target's own draft was refused"
        except AssertionError as error:
            raise AssertionError(f"request {request.request_id}: {error}") from error


def play(scenario: Scenario) -> dict[str, Heard]:
    engine = assemble(
        scenario.target, scenario.drafter, SpeculationTable(0, scenario.rungs), **scenario.sizes
    )
    assert engine.max_model_len == scenario.max_len
    heard = {request.request_id: Heard() for request in scenario.requests}
    last_event = max(
        [
            *(arrival.step for arrival in scenario.arrivals),
            *(step for step, _ in (*scenario.aborts, *scenario.swaps)),
        ]
    )
    longest_draft = 0
    for step in range(MOST_STEPS):
        _apply(scenario, step, engine, heard)
        engine.check_integrity()
        if step > last_event and not engine.has_work:
            break
        longest_draft = min(engine.table.max_draft_len, scenario.sizes["max_draft_len"])
        for delta in engine.step():
            assert delta.num_drafted <= longest_draft
            _hear(heard[delta.request_id], delta)
        engine.check_integrity()
    assert not engine.has_work, "the engine makes no progress"
    status = engine.status()
    assert status.num_free_blocks == status.num_blocks, "blocks leaked"
    _check_books(engine, list(heard.values()))
    return heard


def _apply(scenario: Scenario, step: int, engine: Engine, heard: dict[str, Heard]) -> None:
    """What is due before this step."""
    for number, (due, rungs) in enumerate(scenario.swaps):
        if due == step:
            engine.set_table(SpeculationTable(number + 1, rungs))
    for arrival in scenario.arrivals:
        if arrival.step == step:
            engine.add(*arrival.requests)
    arrived = {
        request.request_id
        for arrival in scenario.arrivals
        if arrival.step <= step
        for request in arrival.requests
    }
    for due, request_id in scenario.aborts:
        if due == step:
            in_flight = request_id in arrived and heard[request_id].reason is None
            assert engine.abort(request_id) == in_flight
            heard[request_id].is_aborted = in_flight


def _hear(heard: Heard, delta: TokenDelta) -> None:
    assert heard.reason is None, "a finished request went on"
    assert not heard.is_aborted, "an aborted request went on"
    heard.reason = delta.finish_reason
    heard.logprobs += delta.logprobs
    heard.prompt_logprobs += delta.prompt_logprobs
    if delta.num_cached_tokens:
        assert not heard.tokens, "cached tokens are told with the first new one"
        heard.num_cached_tokens = delta.num_cached_tokens
    if delta.token_ids:
        heard.num_rounds += 1
        assert len(delta.token_ids) == delta.num_accepted + 1
        assert 0 <= delta.num_accepted <= delta.num_drafted
        if delta.finish_reason is None:
            heard.num_lost_drafts += delta.num_drafted - delta.num_accepted
    heard.tokens += delta.token_ids
    heard.num_drafted += delta.num_drafted
    heard.num_accepted += delta.num_accepted


def _check_books(engine: Engine, heard: list[Heard]) -> None:
    window = engine.drain_stats()
    assert window.rounds == sum(one.num_rounds for one in heard)
    assert window.accepted_tokens == sum(one.num_accepted for one in heard)
    assert window.drafted_tokens == sum(one.num_drafted for one in heard)
    assert window.emitted_tokens == sum(len(one.tokens) for one in heard)
    assert window.rounds + window.accepted_tokens == window.emitted_tokens


def _compare(request: Request, heard: Heard, answer: Answer) -> None:
    """Tokens up to the reference's first near-tie; behind it another text may follow."""
    told, expected = heard.tokens[: answer.num_clear], list(answer.tokens[: answer.num_clear])
    if heard.is_aborted:
        assert heard.reason is None
        expected = expected[: len(told)]
    assert told == expected
    if not heard.is_aborted:
        assert heard.reason is not None
        if answer.is_clear:
            assert (heard.tokens, heard.reason) == (list(answer.tokens), answer.reason)
    sampling = request.sampling
    assert len(heard.tokens) <= sampling.max_tokens
    if sampling.max_draft_tokens is not None:
        assert heard.num_drafted <= sampling.max_draft_tokens * heard.num_rounds
    assert heard.num_cached_tokens < len(request.prompt_token_ids)
    _compare_logprobs(request, heard, answer)
    if heard.reason is FinishReason.STOP and sampling.grammar is not None:
        _check_grammar(request, heard.tokens)


def _compare_logprobs(request: Request, heard: Heard, answer: Answer) -> None:
    asked, prompt_asked = request.sampling.logprobs, request.sampling.prompt_logprobs
    assert len(heard.logprobs) == (0 if asked is None else len(heard.tokens))
    if asked is not None:
        # At a near-tie the text before is still the same.
        rows = answer.logprobs[: answer.num_clear + 1]
        for told, token, row in zip(heard.logprobs, heard.tokens, rows, strict=False):
            check_logprobs(told, token, row, asked)
    if prompt_asked is None:
        assert not heard.prompt_logprobs
        return
    if heard.tokens:
        assert len(heard.prompt_logprobs) == len(request.prompt_token_ids) - 1
    for told, token, row in zip(
        heard.prompt_logprobs, request.prompt_token_ids[1:], answer.prompt_logprobs, strict=False
    ):
        check_logprobs(told, token, row, prompt_asked)


def _check_grammar(request: Request, tokens: list[int]) -> None:
    """The whole text conforms, unless a stop token of the request's own cut it short."""
    sampling = request.sampling
    if tokens[-1] in sampling.stop_token_ids and tokens[-1] not in EOS:
        return
    assert sampling.grammar is not None
    text = str(tokenizer().decode([token for token in tokens if token not in EOS]))
    assert GRAMMARS[sampling.grammar](text), f"{text!r} does not follow {sampling.grammar}"
