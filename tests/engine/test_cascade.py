"""The cascade asks whoever has been right more often."""

from collections.abc import Sequence as ReadOnly

from engine.drafters.cascade import CascadeDrafter
from engine.drafters.ngram import NgramDrafter
from engine.plan import NO_DRAFT, Draft, SeqSlice
from engine.request import SamplingParams
from tests.engine.places import place


class FakeModel:
    """Drafts what it is told, and remembers for how many slices it was asked."""

    def __init__(self) -> None:
        self.draft: tuple[int, ...] = ()
        self.asked: list[int] = []

    def propose(self, slices: ReadOnly[SeqSlice]) -> list[Draft]:
        self.asked.append(sum(part.draft_len > 0 for part in slices))
        return [Draft(self.draft[: p.draft_len]) if p.draft_len else NO_DRAFT for p in slices]


class Talk:
    """One request's rounds with a cascade."""

    def __init__(self, text: list[int]) -> None:
        self.model = FakeModel()
        self.text = text
        self._cascade = CascadeDrafter(
            NgramDrafter(max_ngram=3, min_ngram=2), self.model, max_ngram=3
        )
        self._part = place(SamplingParams(), prompt=text).part._replace(tokens=text)

    def round(self, draft: tuple[int, ...], came: list[int], draft_len: int = 2) -> Draft:
        """The model would draft `draft`, and `came` is what the target says."""
        self.model.draft = draft
        (found,) = self._cascade.propose(
            [self._part._replace(draft_len=draft_len, lookup_len=draft_len)]
        )
        self.text += came
        return found


def test_without_a_match_the_model_drafts() -> None:
    talk = Talk([1, 2, 3])
    assert talk.round((7, 8), [4]).token_ids == (7, 8)
    assert talk.model.asked == [1]


def test_matches_are_taken_while_they_hold_as_often_as_the_model() -> None:
    talk = Talk([1, 2, 3])
    for value in range(10, 60):  # nothing repeats, and the model is always right
        assert talk.round((value, value + 100), [value, value + 100]).token_ids[0] == value
    talk.text += [1, 2, 3]
    assert talk.round((9,), [10]).token_ids == (9,)  # a match of 3, less sure than the model
    assert talk.model.asked[-1] == 1

    talk = Talk([1, 2, 3] * 2)
    for index in range(60):  # all repeats, and the model is always wrong
        came = talk.text[-3]
        found = talk.round((99, 99), [came])
        assert index < 20 or found.token_ids[0] == came
    assert talk.model.asked[-1] == 0


def test_matches_are_measured_while_the_model_drafts() -> None:
    talk = Talk([1, 2, 3])
    for value in range(10, 60):
        talk.round((value, value + 100), [value, value + 100])
    talk.text += [1, 2, 3]
    asked: list[int] = []
    for _ in range(200):  # now the text repeats, and the model begins to fail
        came = talk.text[-3]
        talk.round((came, 99) if len(asked) < 40 else (99,), [came])
        asked.append(talk.model.asked[-1])
    assert asked[0] == 1
    assert asked[-1] == 0


def test_without_drafts_nothing_is_looked_up_and_the_model_is_told() -> None:
    talk = Talk([1, 2, 1, 2])
    assert talk.round((5,), [1], draft_len=0) == NO_DRAFT
    assert talk.model.asked == [0]
