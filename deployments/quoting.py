"""How a value of the configuration is quoted in an error message."""

LONGEST_QUOTE = 80
LONGEST_PATH = 400


def shown(value: object, limit: int = LONGEST_QUOTE) -> str:
    """The value in one line of at most `limit` characters."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of thousands of digits, lists in lists
        text = f"a value of type {type(value).__name__} too large to show"
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
