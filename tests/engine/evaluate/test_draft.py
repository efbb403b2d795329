"""What an evaluation says of a drafter whose worth is known."""

from engine.core import Engine
from engine.distill.shares import Share
from engine.evaluate.decoding import Decoding
from engine.evaluate.draft import Acceptance, BatchResult, Evaluation, _speed, evaluate, num_runs
from tests.engine.quick import PROMPTS, quick_engine

TEXTS = [PROMPTS["short"], PROMPTS["repeating"], (9, 3, 30), (44, 45, 46, 47)]


def test_a_batch_is_decoded_whole() -> None:
    engine = quick_engine("itself", 0)
    decoded = Decoding(engine).run(TEXTS, 2, 9)
    # The target as its own draft is always right: three tokens a round.
    assert decoded.steps == 3
    assert decoded.window.rounds == 3 * len(TEXTS)
    assert decoded.window.emitted_tokens == 9 * len(TEXTS)
    assert not engine.has_work
    again = Decoding(engine).run(TEXTS, 0, 9)
    assert again.steps == 9
    assert again.window.drafted_tokens == 0


def test_an_evaluation_tells_what_drafts_are_worth() -> None:
    engine: Engine = quick_engine("itself", 0)
    reported: list[str] = []
    found = Evaluation()
    evaluate(
        engine,
        TEXTS,
        batch_sizes=(1, 2),
        lengths=(0, 1, 3),
        new_tokens=8,
        temperature=0.0,
        report=reported.append,
        result=found,
    )
    assert found.complete
    assert [share.value for share in found.acceptance.by_position] == [1.0, 1.0, 1.0]
    assert found.acceptance.tokens_per_round(3) == 4.0
    for batch in found.batches:
        assert batch.step_seconds.keys() == {0, 1, 3}
        assert len(batch.measured) == 3
        assert batch.projected == _speed(found.acceptance, batch, batch.best) / _speed(
            found.acceptance, batch, 0
        )
    assert len(reported) <= num_runs(len(TEXTS), (1, 2), (0, 1, 3)) + 2


def test_the_best_length_weighs_what_is_kept_against_what_it_costs() -> None:
    acceptance = Acceptance((Share(60, 100), Share(30, 100)), 100)
    batch = BatchResult(1, step_seconds={0: 1.0, 1: 1.2, 2: 1.9})
    speeds = {length: _speed(acceptance, batch, length) for length in (0, 1, 2)}
    assert speeds[0] == 1.0
    assert speeds[1] == 1.6 / 1.2
    assert speeds[2] == 1.9 / 1.9
