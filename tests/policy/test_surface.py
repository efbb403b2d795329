"""Grids with gaps, as a calibration leaves them that ran out of time or saw the answer early."""

import random
from itertools import pairwise

import pytest

from policy.surface import Point, Surface

LENGTHS = (0, 1, 2, 4, 8)


def seconds(batch_size: int, draft_len: int, context: int) -> float:
    """Flat up to eight tokens and linear from there; a context adds its reading."""
    tokens = batch_size * (draft_len + 1)
    return 0.010 + 0.001 * max(0, tokens - 8) + 1e-6 * batch_size * context


def points(batch_size: int, context: int, *lengths: int) -> list[Point]:
    return [Point(batch_size, s, context, seconds(batch_size, s, context)) for s in lengths]


def test_a_context_of_few_lengths_has_the_shape_of_the_one_with_all() -> None:
    surface = Surface(
        [one for b in (1, 2, 4) for one in (*points(b, 128, *LENGTHS), *points(b, 1024, 0, 2, 8))]
    )
    for b in (1, 2, 4):
        # A straight line from length 2 to 8 would be far above at 4.
        assert surface.at(b, 1024) == pytest.approx([seconds(b, s, 1024) for s in LENGTHS])


def test_a_context_of_few_batch_sizes_goes_on_as_its_own_do() -> None:
    surface = Surface(
        [*(one for b in (1, 2, 8) for one in points(b, 128, *LENGTHS)), *points(2, 1024, 0, 2, 8)]
    )
    for b in (1, 2, 8):
        assert surface.at(b, 1024) == pytest.approx([seconds(b, s, 1024) for s in LENGTHS])


def test_lengths_left_out_at_a_batch_size_go_on_as_they_began() -> None:
    surface = Surface([*points(1, 128, *LENGTHS), *points(16, 128, 0, 1)])
    assert surface.at(16, 128) == pytest.approx([seconds(16, s, 128) for s in LENGTHS])


def test_what_is_guessed_moves_nothing_that_was_measured() -> None:
    # From 0 and 1 one would guess 0.090 at length 8 of batch size 2; batch size 4 took 0.050.
    surface = Surface(
        [
            *(Point(1, s, 128, 0.010) for s in LENGTHS),
            Point(2, 0, 128, 0.010),
            Point(2, 1, 128, 0.020),
            *(Point(4, s, 128, 0.050) for s in LENGTHS),
        ]
    )
    assert surface.at(1, 128) == pytest.approx([0.010] * 5)
    assert surface.at(4, 128) == pytest.approx([0.050] * 5)
    assert surface.at(2, 128) == pytest.approx([0.010, 0.020, 0.030, 0.050, 0.050])


def test_noise_on_a_grid_with_gaps_never_makes_more_work_take_less_time() -> None:
    chance = random.Random(2)
    for _ in range(100):
        some = [
            Point(b, s, context, seconds(b, s, context) * chance.uniform(0.6, 1.6))
            for context in (128, 1024)
            for b in (1, 2, 4, 8)
            for s in LENGTHS
            if s == 0 or chance.random() < 0.7
        ]
        surface = Surface(some)
        for context in (128, 400, 1024):
            rows = [surface.at(b, context) for b in range(1, 12)]
            for row in rows:
                assert all(a <= b + 1e-12 for a, b in pairwise(row))
            for column in zip(*rows, strict=True):
                assert all(a <= b + 1e-12 for a, b in pairwise(column))
