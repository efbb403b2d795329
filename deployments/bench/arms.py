"""The policies that are compared, by name."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deployments.bench.characterize_report import best_lengths
from deployments.commands.policy import read_policy
from engine.errors import ConfigError
from policy.table import UNBOUNDED_BATCH_SIZE

ADAPTIVE, OFF, TABLE = "adaptive", "off", "table"
FIXED = "fixed "
SERVER = "server"
"""The only arm of a server whose policy is not ours to set."""


@dataclass(frozen=True, slots=True)
class Arm:
    name: str
    policy: str | dict[str, Any] | None
    """For `PUT /policy`; None: left as it is, or a table that is not known yet."""


def read_arms(text: str) -> list[Arm]:
    """From `off,2,4,table,adaptive`, each once. Raises ConfigError."""
    arms: list[Arm] = []
    for name in text.split(","):
        name = name.strip()
        if name in (OFF, ADAPTIVE):
            arm = Arm(name, name)
        elif name == TABLE:
            arm = Arm(TABLE, None)
        elif name.isascii() and name.isdigit():
            arm = Arm(f"{FIXED}{int(name)}", read_policy("fixed", name))
        else:
            raise ConfigError(
                f"--arms must be off, adaptive, table or draft lengths with commas between, "
                f"got {name!r} in {text!r}"
            )
        if arm in arms:
            raise ConfigError(f"--arms has {name!r} twice, in {text!r}")
        arms.append(arm)
    return arms


def read_static_table(text: str) -> dict[str, Any]:
    """The policy of `1:5,8:2`, or of the best lengths in a characterize.json. Raises
    ConfigError."""
    if not text.endswith(".json"):
        policy = read_policy(TABLE, text)
        assert isinstance(policy, dict)
        return policy
    try:
        lengths = best_lengths(json.loads(Path(text).read_text()))
    except (OSError, ValueError) as error:
        raise ConfigError(f"--table: can't read {text}: {error}") from None
    except (KeyError, TypeError):
        raise ConfigError(
            f"--table: {text} is not what `paceline bench characterize` writes"
        ) from None
    return {TABLE: {str(size): length for size, length in lengths.items()}}


def frozen_table(described: dict[str, Any]) -> dict[str, Any]:
    """The policy that holds on to the table in force, as `GET /policy` tells it."""
    rungs = described["table"]["rungs"] or [[UNBOUNDED_BATCH_SIZE, 0]]
    return {TABLE: {str(size): length for size, length in rungs}}
