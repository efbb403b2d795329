"""Recorded traces of requests: when each came and how long it was, without texts.

The columns are those of Azure's traces of LLM inference (Patel et al. 2024, "Splitwise: Efficient
Generative LLM Inference Using Phase Splitting", arXiv 2311.18677;
github.com/Azure/AzurePublicDataset, CC-BY-4.0).
"""

import csv
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from engine.errors import ConfigError
from policy.quoting import shown

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_FURTHER_DIGITS = re.compile(r"(\.\d{6})\d+")
"""Of a second: traces have seven, and Python keeps six."""


class Row(NamedTuple):
    """One request. `line`: where it stands, from 2 on."""

    at_s: float
    """After the earliest of the trace."""
    line: int
    prompt_tokens: int
    new_tokens: int


def read_rows(file: Path, name: str) -> list[Row]:
    """In order of time, whatever order they are written in; those of one moment as written. Times
    without a zone are UTC. Numbers of tokens are at least 0. Raises ConfigError, which `name` and
    the file begin, for a file that can't be read, has no requests or lacks a column, and for a line
    that is none, with its number."""
    try:
        with file.open(encoding="utf-8", newline="") as text:
            found = sorted(_rows(f"{name} {file}", text), key=lambda one: one[0])
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{name} {file}: can't be read: {error}") from None
    if not found:
        raise ConfigError(f"{name} {file}: there are no requests")
    first = found[0][0]
    return [Row((at - first).total_seconds(), line, prompt, new) for at, line, prompt, new in found]


def _rows(what: str, text: Iterator[str]) -> Iterator[tuple[datetime, int, int, int]]:
    lines = csv.DictReader(text)
    missing = [column for column in COLUMNS if column not in (lines.fieldnames or ())]
    if missing:
        raise ConfigError(f"{what}: there is no column {missing[0]}")
    for line in lines:
        number = lines.line_num
        # A line that is too short has no value there.
        stamp, prompt, new = (line[column] or "" for column in COLUMNS)
        try:
            at = datetime.fromisoformat(_FURTHER_DIGITS.sub(r"\1", stamp.strip()))
        except ValueError:
            raise ConfigError(
                f"{what}, line {number}: TIMESTAMP must be a date and time, got {shown(stamp)}"
            ) from None
        yield (
            at if at.tzinfo is not None else at.replace(tzinfo=UTC),
            number,
            _count(f"{what}, line {number}: {COLUMNS[1]}", prompt),
            _count(f"{what}, line {number}: {COLUMNS[2]}", new),
        )


def _count(what: str, text: str) -> int:
    try:
        count = int(text)
    except ValueError:
        count = -1
    if count < 0:
        raise ConfigError(f"{what} must be a whole number of tokens, got {shown(text)}")
    return count
