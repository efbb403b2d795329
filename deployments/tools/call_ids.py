"""Identifiers of calls: made for new ones, and brought into the form that a template insists on.

They are made of the reply's own name, which is a random one, and of the call's place there: so who
goes on with a reply gives its calls the ids that they had.
"""

import hashlib
import re

MISTRAL_ID_LENGTH = 9
_MISTRAL_ID = re.compile(rf"[a-zA-Z0-9]{{{MISTRAL_ID_LENGTH}}}")


def openai_call_id(reply: str, index: int) -> str:
    """As OpenAI's look."""
    return f"call_{_digest(reply, index)[:24]}"


def mistral_call_id(reply: str, index: int) -> str:
    """Of 9 ASCII letters and digits: Mistral's templates refuse any other."""
    return _digest(reply, index)[:MISTRAL_ID_LENGTH]


def as_mistral_call_id(call_id: str) -> str:
    """`call_id` if it has Mistral's form, or one that has, always the same for the same id.

    A conversation that another model began, or an id that the client made, goes on this way.
    """
    if _MISTRAL_ID.fullmatch(call_id):
        return call_id
    return hashlib.sha256(call_id.encode()).hexdigest()[:MISTRAL_ID_LENGTH]


def _digest(reply: str, index: int) -> str:
    return hashlib.sha256(f"{reply}/{index}".encode()).hexdigest()
