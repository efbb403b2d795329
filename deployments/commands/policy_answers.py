"""What a running application answers about its policy, or why it does not."""

import time
from typing import Any

from deployments.commands.options import bearer
from engine.errors import ConfigError
from policy.quoting import shown

TIMEOUT_S = 30.0
TAKEN_OVER_S = 3.0
"""A replica between two steps reports within a fraction of this."""
POLL_S = 0.1
MAX_REASON_CHARACTERS = 400
"""How much is shown of another server's error message."""


def ask(
    method: str,
    url: str,
    api_key: str | None = None,
    *,
    body: dict[str, Any] | None = None,
    path: str = "/policy",
    expected: str = "table",
) -> dict[str, Any]:
    """The application's answer, which has the field `expected`. Raises ConfigError in one line when
    there is none, or a refusal."""
    import httpx

    headers = bearer(api_key)
    try:
        answer = httpx.request(
            method,
            f"{url.rstrip('/')}{path}",
            json=body,
            headers=headers,
            timeout=TIMEOUT_S,
            trust_env=False,
        )
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ConfigError(f"--url: no answer from {url}: {error}") from None
    try:
        told = answer.json()
    except ValueError:
        told = None
    if answer.status_code == httpx.codes.OK and isinstance(told, dict) and expected in told:
        return told
    raise ConfigError(f"{url} answered {answer.status_code}: {_reason(told, answer.text)}")


def taken_over(url: str, api_key: str | None, described: dict[str, Any]) -> dict[str, Any]:
    """The answer once every replica reports the table in force, or after a short while."""
    deadline_s = time.monotonic() + TAKEN_OVER_S
    while not in_force_everywhere(described) and time.monotonic() < deadline_s:
        time.sleep(POLL_S)
        described = ask("GET", url, api_key)
    return described


def in_force_everywhere(described: dict[str, Any]) -> bool:
    """Whether each replica has the table of its kind, or of all of them."""
    versions = {kind.get("kind"): kind["table"]["version"] for kind in described.get("kinds") or ()}
    version = described["table"]["version"]
    return all(
        replica["version_in_force"] >= versions.get(replica.get("kind"), version)
        for replica in described["replicas"]
    )


def kinds_of(described: dict[str, Any]) -> list[dict[str, Any]]:
    """A table with its history for each kind of replica; the only one, nameless, without kinds."""
    kinds: list[dict[str, Any]] = described.get("kinds") or [described]
    return kinds


def one_kind(described: dict[str, Any], wanted: str | None) -> dict[str, Any]:
    """The kind named, or the only one. Raises ConfigError."""
    kinds = kinds_of(described)
    if wanted is None and len(kinds) == 1:
        return kinds[0]
    found = [kind for kind in kinds if wanted is not None and kind.get("kind") == wanted]
    if not found:
        names = ", ".join(shown(str(kind.get("kind", ""))) for kind in kinds)
        got = "nothing" if wanted is None else shown(wanted)
        raise ConfigError(f"--kind must be one of {names}, got {got}")
    return found[0]


def _reason(told: object, text: str) -> str:
    error = told.get("error") if isinstance(told, dict) else None
    if isinstance(error, dict) and "message" in error:
        return " ".join(str(error["message"]).split())[:MAX_REASON_CHARACTERS]
    return f"not Paceline, or not ready ({' '.join(text.split())[:80]!r})"
