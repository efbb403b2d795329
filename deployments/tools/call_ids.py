"""Identifiers of calls: made for new ones, and brought into the form that a template insists on."""

import hashlib
import re
import secrets
import string

MISTRAL_ID_LENGTH = 9
_ALPHANUMERIC = string.ascii_letters + string.digits
_MISTRAL_ID = re.compile(rf"[a-zA-Z0-9]{{{MISTRAL_ID_LENGTH}}}")


def openai_call_id() -> str:
    """A new one as OpenAI's look."""
    return f"call_{secrets.token_hex(12)}"


def mistral_call_id() -> str:
    """A new one of 9 ASCII letters and digits: Mistral's templates refuse any other."""
    return "".join(secrets.choice(_ALPHANUMERIC) for _ in range(MISTRAL_ID_LENGTH))


def as_mistral_call_id(call_id: str) -> str:
    """`call_id` if it has Mistral's form, or one that has, always the same for the same id.

    A conversation that another model began, or an id that the client made, goes on this way.
    """
    if _MISTRAL_ID.fullmatch(call_id):
        return call_id
    return hashlib.sha256(call_id.encode()).hexdigest()[:MISTRAL_ID_LENGTH]
