"""API keys: who may ask. From a file that may change while we serve, or from the environment."""

import hashlib
import hmac
import logging
import os
import re
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from engine.errors import ConfigError
from policy.quoting import shown

logger = logging.getLogger(__name__)

KEYS_VARIABLE = "PACELINE_API_KEYS"
CHECK_S = 1.0
"""The file is looked at no more often."""
MAX_FILE_BYTES = 2**20
_ENTRY = re.compile(r"(?:(?P<name>[\w.-]{1,64}):\s+)?(?P<key>[!-~]{1,512})", re.ASCII)


@dataclass(frozen=True, slots=True)
class ApiKey:
    digest: bytes
    """SHA-256: the key itself is not kept."""
    tenant: str
    """Keys of one name are one tenant's; a key without a name is a tenant of its own."""


def parse_keys(entries: list[str], where: Callable[[int], str]) -> tuple[ApiKey, ...]:
    """Keys from `name: key` or `key` entries. Raises ConfigError, which never shows an entry;
    `where` begins its message and is told the entry's index."""
    keys: dict[bytes, ApiKey] = {}
    for index, entry in enumerate(entries):
        text = entry.strip()
        if not text or text.startswith("#"):
            continue
        found = _ENTRY.fullmatch(text)
        if found is None:
            raise ConfigError(
                f"{where(index)} must be a key, or a name, a colon, a blank and a key; keys are "
                "up to 512 printable ASCII characters without blanks"
            )
        digest = _digest(found["key"])
        if digest in keys:
            raise ConfigError(f"{where(index)} is a key that stands there already")
        # A name can hold no blank, so it is never what stands for a key without one.
        keys[digest] = ApiKey(digest, found["name"] or f"key {digest.hex()}")
    return tuple(keys.values())


def keys_of_environment(environment: Mapping[str, str]) -> tuple[ApiKey, ...]:
    """Those of the variable, none if it is not set. Raises ConfigError, also if it holds none."""
    text = environment.get(KEYS_VARIABLE)
    if text is None:
        return ()
    keys = parse_keys(text.split(","), lambda index: f"{KEYS_VARIABLE}: entry {index + 1}")
    if not keys:
        raise ConfigError(f"{KEYS_VARIABLE} holds no key; unset it to serve without keys")
    return keys


def read_keys(path: Path) -> tuple[ApiKey, ...]:
    """Those of a file. Raises ConfigError if it has none, can't be read, or others can read it."""
    name = f"server.api_keys_file {shown(str(path))}"
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(MAX_FILE_BYTES + 1)
        text = content.decode()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a UTF-8 text file"
        raise ConfigError(f"{name} can't be read: {reason}") from None
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        raise ConfigError(
            f"{name} is open to every user of the machine (mode {stat.S_IMODE(mode):o}); "
            "chmod 600 it"
        )
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError(f"{name} has more than {MAX_FILE_BYTES} bytes")
    keys = parse_keys(text.splitlines(), lambda index: f"{name}: line {index + 1}")
    if not keys:
        raise ConfigError(f"{name} holds no key")
    return keys


class KeyRing:
    """The keys in force. A file that has become unreadable or empty leaves those it had."""

    def __init__(
        self,
        path: Path | None,
        environment: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises ConfigError."""
        self._path = path
        self._clock = clock
        self._fixed = keys_of_environment(environment)
        self._version = None if path is None else _version(path)
        self._of_file = () if path is None else read_keys(path)
        self._checked_s = clock()

    @property
    def is_open(self) -> bool:
        """Whether nobody needs a key, because none was configured."""
        return not self._fixed and self._path is None

    def tenant_of(self, presented: str) -> str | None:
        """Whose key it is; None: nobody's. Every key is compared, whichever is right."""
        self._reload()
        digest = _digest(presented)
        tenant = None
        for key in (*self._fixed, *self._of_file):
            if hmac.compare_digest(key.digest, digest):
                tenant = key.tenant
        return tenant

    def _reload(self) -> None:
        now = self._clock()
        if self._path is None or now - self._checked_s < CHECK_S:
            return
        self._checked_s = now
        version = _version(self._path)
        if version == self._version:
            return
        self._version = version  # a damaged file is complained of once
        try:
            self._of_file = read_keys(self._path)
        except ConfigError as error:
            logger.warning("%s; the keys read before stay in force", error)


def _version(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_size


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
