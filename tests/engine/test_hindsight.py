"""What longer drafts would have come to, counted exactly."""

from collections.abc import Sequence

import pytest

from engine.hindsight import Hindsight
from engine.plan import NO_DRAFT, Draft, SliceResult, StepPlan, StepResult
from engine.request import SamplingParams
from policy.stats import StatsWindow
from tests.engine.places import place


class Talk:
    """One sequence of [1, 2, 3] whose rounds are told."""

    def __init__(self) -> None:
        self.hindsight = Hindsight()
        self.stats = StatsWindow()
        self.text = [1, 2, 3]
        self._part = place(SamplingParams(), prompt=self.text).part

    def round(self, draft: Draft, came: Sequence[int]) -> None:
        end = len(self.text)
        part = self._part._replace(tokens=self.text, start=end - 1, num_tokens=1)
        self.text += came
        plan = StepPlan(1, 1, len(draft.token_ids), (part,))
        result = StepResult((SliceResult(tuple(came)),), 0.0, 0.0)
        self.hindsight.note(plan, [draft], result, self.stats)

    def leave(self) -> None:
        other = self._part._replace(request_id="other", tokens=[1])
        plan = StepPlan(1, 1, 0, (other,))
        result = StepResult((SliceResult((5,)),), 0.0, 0.0)
        self.hindsight.note(plan, [NO_DRAFT], result, self.stats)

    @property
    def counts(self) -> tuple[list[float], list[float]]:
        found = self.stats.positions.get(1)
        return ([], []) if found is None else (found.looked_up.reached, found.looked_up.kept)


def looked_up(*tokens: int, length: int) -> Draft:
    return Draft(tokens[:length], looked_up=True, foreseen=tokens[length:])


@pytest.mark.parametrize(
    ("came", "expected"),
    [
        ((8, 9), ([0, 1, 1], [0, 1, 1])),
        ((8, 5), ([0, 1, 1], [0, 1])),
        ((5,), ([0, 1], [0])),
    ],
)
def test_what_came_tells_how_a_longer_draft_would_have_fared(
    came: tuple[int, ...], expected: tuple[list[int], list[int]]
) -> None:
    talk = Talk()
    talk.round(looked_up(7, 8, 9, length=1), (7, came[0]))
    for token in came[1:]:
        talk.round(NO_DRAFT, (token,))
    talk.round(NO_DRAFT, (1,))
    assert talk.counts == expected


def test_a_draft_that_was_not_kept_tells_all_by_itself() -> None:
    talk = Talk()
    talk.round(looked_up(7, 8, 9, length=1), (4,))
    talk.round(NO_DRAFT, (8,))
    assert talk.counts == ([], [])


def test_one_draft_at_a_time() -> None:
    """While one is awaited, those behind it are steps that it would have covered."""
    talk = Talk()
    talk.round(looked_up(7, 8, 9, 10, length=1), (7, 8))
    talk.round(looked_up(9, 10, 11, 12, length=1), (9, 10))
    talk.round(looked_up(11, 12, 13, 14, length=1), (11, 12))
    talk.round(looked_up(13, 14, 15, 16, length=1), (13, 14))
    assert talk.counts == ([0, 2, 2, 2], [0, 2, 2, 2]), "the first and the third"


@pytest.mark.parametrize(("came", "kept"), [((8,), 1), ((8, 9), 2)])
def test_a_text_that_ends_tells_what_it_has(came: tuple[int, ...], kept: int) -> None:
    talk = Talk()
    talk.round(looked_up(7, 8, 9, 10, length=1), (7, came[0]))
    for token in came[1:]:
        talk.round(NO_DRAFT, (token,))
    talk.leave()
    expected = [0] + kept * [1]
    assert talk.counts == (expected, expected)
    talk.leave()
    assert talk.counts == (expected, expected), "once"
