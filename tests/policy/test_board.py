import pytest

from policy.board import (
    FORGET_REPLICA_AFTER_S,
    HISTORY_LEN,
    SILENT_AFTER_S,
    STALE_AFTER_S,
    PolicyBoard,
    Publication,
    initial_publication,
)
from policy.choice import parse_choice
from policy.stats import Occupancy, StatsWindow


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


CONFIGURED = parse_choice({"fixed": 2})


def a_board(configured: object = None, clock: Clock | None = None) -> PolicyBoard:
    choice = CONFIGURED if configured is None else parse_choice(configured)
    return PolicyBoard(choice, max_draft_len=8, now_unix_s=clock or Clock())


def held_after(*hand_set: object) -> Publication:
    """What a replica holds of a board on which these were set one after the other."""
    board = a_board()
    for policy in hand_set:
        board.set_by_hand(parse_choice(policy))
    return board.published


def test_a_fresh_board_publishes_the_configuration_above_what_replicas_start_with() -> None:
    board = a_board()
    initial = initial_publication(CONFIGURED)
    assert initial.table.version == 0
    assert not board.subscribe("a", initial)
    published = board.newer_than(0)
    assert published is not None
    assert (published.table.version, published.table.rungs) == (1, CONFIGURED.rungs)
    assert (published.mode, published.source) == ("fixed", "config")


def test_versions_rise_with_each_table_set() -> None:
    board = a_board()
    for version, policy in enumerate(["off", {"fixed": 3}, {"fixed": 3}, {"table": {1: 2}}], 2):
        published = board.set_by_hand(parse_choice(policy))
        assert published.table.version == version
        assert published.source == "hand"
        assert board.newer_than(version - 1) is published
        assert board.newer_than(version) is None
    versions = [entry.version for entry in board.history]
    assert versions == [1, 2, 3, 4, 5]


def test_history_is_bounded() -> None:
    board = a_board()
    for length in range(HISTORY_LEN + 10):
        board.set_by_hand(parse_choice({"fixed": length % 8}))
    assert len(board.history) == HISTORY_LEN
    assert board.history[-1].version == board.published.table.version


def test_a_draft_longer_than_the_engine_makes_changes_nothing() -> None:
    board = a_board()
    before = board.published
    with pytest.raises(ValueError, match="at most 8, got 9"):
        board.set_by_hand(parse_choice({"fixed": 9}))
    assert board.published is before
    assert board.subscribe("a", held_after("off")), "still adopts: nothing was set by hand"


def test_a_held_table_survives_the_board() -> None:
    held = held_after("off", {"table": {1: 4}})
    board = a_board()
    assert board.subscribe("a", held)
    assert board.published == held
    assert board.published.source == "hand"
    assert "recovered from replica a" in board.history[-1].why


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_highest_held_version_wins_in_any_order(order: tuple[int, int]) -> None:
    held = [held_after("off"), held_after("off", {"fixed": 5})]
    board = a_board()
    for index in order:
        board.subscribe(f"replica-{index}", held[index])
    assert board.published == held[1]
    assert board.newer_than(held[0].table.version) == held[1]


def test_a_replica_that_holds_what_is_published_changes_nothing() -> None:
    board = a_board()
    board.set_by_hand(parse_choice("off"))
    assert not board.subscribe("a", board.published)
    assert len(board.history) == 2


def test_a_table_set_by_hand_is_published_above_what_replicas_held() -> None:
    held = held_after("off", {"fixed": 5}, {"fixed": 6})
    board = a_board()
    board.set_by_hand(parse_choice({"fixed": 1}))
    assert board.subscribe("a", held)
    assert board.published.table.version == held.table.version + 1
    assert board.published.table.rungs == parse_choice({"fixed": 1}).rungs
    assert board.published.source == "hand"


def test_two_tables_of_one_version_are_settled_by_a_higher_one() -> None:
    held = held_after("off")
    board = a_board()
    mine = board.set_by_hand(parse_choice({"fixed": 7}))
    assert mine.table.version == held.table.version
    assert board.subscribe("a", held)
    newer = board.newer_than(held.table.version)
    assert newer is not None
    assert newer.table.rungs == mine.table.rungs


def test_an_initial_table_is_never_adopted() -> None:
    board = a_board({"fixed": 1})
    assert not board.subscribe("a", initial_publication(CONFIGURED))
    assert board.published.table.rungs == parse_choice({"fixed": 1}).rungs


def test_a_new_configuration_is_not_undone_by_a_replica_of_the_old_one() -> None:
    held = held_after({"fixed": 6}, {"fixed": 7})
    board = a_board({"table": {4: 3}})
    board.subscribe("old", held)
    assert board.published.table.rungs == ((4, 3),)
    assert board.published.source == "config"
    assert board.published.table.version > held.table.version, "versions rise for the replica too"


def test_what_a_replica_was_given_by_the_new_configuration_is_adopted_after_a_crash() -> None:
    new = {"table": {4: 3}}
    first = a_board(new)
    first.subscribe("a", held_after({"fixed": 6}))
    first.set_by_hand(parse_choice({"fixed": 1}))
    second = a_board(new)
    second.subscribe("a", first.published)
    assert second.published == first.published


def test_counts_are_merged_per_replica_with_the_version_in_force() -> None:
    board = a_board()
    for version, accepted in ((1, 2), (3, 1)):
        window = StatsWindow(table_version=version, steps=1)
        window.record_rounds(num_drafted=3, num_accepted=accepted, num_emitted=accepted + 1)
        board.observe("a", window)
    board.observe("b", StatsWindow(table_version=2))
    first, second = board.describe()["replicas"]
    assert (first["replica_id"], first["version_in_force"]) == ("a", 3)
    assert (first["drafted_tokens"], first["accepted_tokens"], first["steps"]) == (6, 3, 2)
    assert first["accepted_by_position"] == [2, 1]
    assert (second["replica_id"], second["version_in_force"]) == ("b", 2)


def test_what_a_replica_does_is_what_it_said_last() -> None:
    clock = Clock()
    board = a_board(clock=clock)
    busy = Occupancy(running=5, waiting=2, decoding=4, draft_len=3, kv_use=0.5)
    board.observe("a", StatsWindow(1, busy, wall_seconds=2.0, steps=9, emitted_tokens=90))
    board.observe("a", StatsWindow(1, busy, wall_seconds=2.0, steps=9, emitted_tokens=50))
    (told,) = board.describe()["replicas"]
    assert told["tokens_per_s"] == 25.0, "of the last window alone"
    assert [told[name] for name in ("running", "waiting", "decoding")] == [5, 2, 4]
    assert (told["draft_len"], told["kv_use"]) == (3, 0.5)
    clock.now_s += STALE_AFTER_S
    board.note_stage("a", "ready")
    assert board.describe()["replicas"][0]["tokens_per_s"] == 0.0, "it reports no more"
    board.observe("a", StatsWindow(1, Occupancy()))
    (told,) = board.describe()["replicas"]
    assert (told["tokens_per_s"], told["running"], told["emitted_tokens"]) == (0.0, 0, 140)


def test_a_replica_without_work_is_silent_once_it_missed_its_half_minute() -> None:
    clock = Clock()
    board = a_board(clock=clock)
    board.note_stage("a", "ready")
    told = []
    for silence_s in (0.0, 31.0, SILENT_AFTER_S + 1.0):
        clock.now_s += silence_s
        told.append(board.describe()["replicas"][0]["is_silent"])
        if silence_s < SILENT_AFTER_S:
            board.note_stage("a", "ready")
    assert told == [False, False, True]


def test_a_replica_that_is_silent_for_long_is_forgotten() -> None:
    clock = Clock()
    board = a_board(clock=clock)
    board.note_stage("gone", "ready")
    clock.now_s += FORGET_REPLICA_AFTER_S / 2
    board.note_stage("here", "loading weights")
    clock.now_s += FORGET_REPLICA_AFTER_S / 2 + 1
    (replica,) = board.describe()["replicas"]
    assert replica["replica_id"] == "here"
    assert replica["stage"] == "loading weights"
    assert replica["seen_s_ago"] == FORGET_REPLICA_AFTER_S / 2 + 1
