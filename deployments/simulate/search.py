"""The fewest replicas with which an objective holds."""

from collections.abc import Callable


def fewest(holds: Callable[[int], bool], guess: int, most: int) -> int | None:
    """The least number of 1 to `most` for which `holds`, if it holds for all above as well; None
    where it doesn't for `most`. Begins at `guess`, and doubles or halves its way from there.

    >>> fewest(lambda n: n >= 37, guess=10, most=100)
    37
    """
    low, high = 0, None
    size = min(max(1, guess), most)
    while high is None or high - low > 1:
        if holds(size):
            high = size
        elif size == most:
            return None
        else:
            low = size
        if high is None:
            size = min(most, 2 * size)
        elif low == 0:
            size = max(1, high // 2)
            if high == 1:
                break
        else:
            size = (low + high) // 2
    return high
