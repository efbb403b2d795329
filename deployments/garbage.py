"""Python's garbage collector, in a process that serves.

torch, transformers and Ray are half a million objects that never go. A full collection looks at all
of them: a quarter of a second in which no step is done.
"""

import gc

_MOST_YOUNG = 20_000
"""Objects before the young ones are looked at. A step of hundreds of sequences makes a thousand,
most of which are gone by the next one: looked at later, they cost nothing."""


def settle() -> None:
    """Look no more at what lives now, and less often at what comes. For when all is loaded."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_MOST_YOUNG, *gc.get_threshold()[1:])
