"""What a tokenizer's decoder is made of, and how byte-level vocabularies write bytes."""

import json
from typing import Any


def decoder_kinds(decoder: Any) -> list[str]:
    """Types of a decoder's parts, in order."""
    if decoder is None:
        return []
    return _kinds(json.loads(decoder.__getstate__()))


def _kinds(state: dict[str, Any]) -> list[str]:
    if state["type"] != "Sequence":
        return [state["type"]]
    return [kind for part in state["decoders"] for kind in _kinds(part)]


def byte_level_alphabet() -> dict[str, int]:
    """The character by which byte-level vocabularies write each byte.

    Printable bytes of Latin-1 are their own characters; the others follow in order from U+0100 on.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(256 + index): byte for index, byte in enumerate(others)
    }
