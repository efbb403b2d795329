"""How a refused value is quoted in an error message."""

import reprlib

SHOWN_CHARACTERS = 80
"""Longest rendering of a value in a message, ..."""
SHOWN_PATH_CHARACTERS = 400
"""... and of a path, whose end matters."""


def shown(value: object, limit: int = SHOWN_CHARACTERS) -> str:
    """`value` as Python writes it, in one line of at most `limit` characters.

    It may be as large and as deep as a whole document: it is cut before it is written.
    """
    short = reprlib.Repr()
    short.maxstring = short.maxother = short.maxlong = limit
    short.maxlist = short.maxtuple = short.maxset = short.maxfrozenset = limit // 3
    short.maxdict = limit // 6
    try:
        text = short.repr(value)
    except ValueError:  # Python writes no number of more than some thousand digits
        return "a value with too many digits"
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
