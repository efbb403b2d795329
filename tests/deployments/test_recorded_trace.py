"""Traces as they are recorded: in any order, with zones or without."""

from pathlib import Path

import pytest

from deployments.recorded_trace import Row, read_rows
from engine.errors import ConfigError

HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def test_rows_come_in_order_of_time(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(
        f"{HEAD}2023-11-16 18:17:05.0000000,5,6\n2023-11-16 18:17:03.5000000,1,2\n"
        "2023-11-16 18:17:04.0000000,3,4\n"
    )
    assert read_rows(file, "it") == [Row(0.0, 3, 1, 2), Row(0.5, 4, 3, 4), Row(1.5, 2, 5, 6)]


def test_zones_are_heeded_and_none_is_utc(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(
        f"{HEAD}2024-05-10 00:00:00.0099301+00:00,1,1\n2024-05-10 00:00:01,1,1\n"
        "2024-05-10 02:00:02+02:00,1,1\n2024-05-10 00:00:03.1234567Z,1,1\n"
    )
    told = [row.at_s for row in read_rows(file, "it")]
    assert told == pytest.approx([0.0, 0.99007, 1.99007, 3.113526])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("soon,1,1", "line 3: TIMESTAMP must be a date and time, got 'soon'"),
        ("2023-11-16,many,1", "line 3: ContextTokens must be a whole number of tokens, got 'many'"),
        ("2023-11-16,1,-1", "line 3: GeneratedTokens must be a whole number of tokens, got '-1'"),
        ("2023-11-16,1", "line 3: GeneratedTokens must be a whole number of tokens, got ''"),
    ],
)
def test_a_line_that_is_none_is_named(line: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(f"{HEAD}2023-11-16,1,1\n{line}\n")
    with pytest.raises(ConfigError, match=said):
        read_rows(file, "it")
