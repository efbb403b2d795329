"""What a token is by itself: its bytes, and a string that names it in a list of tokens."""

from collections.abc import Sequence

from deployments.text.detokenizer import Detokenizer


def token_bytes(detokenizer: Detokenizer, token_id: int) -> bytes | None:
    """What the token adds to a text; None where it never adds any."""
    if detokenizer.is_silent(token_id):
        return None
    if detokenizer.splits_characters:
        return detokenizer.level_bytes(token_id)
    byte = detokenizer.fallback_byte(token_id)
    if byte is not None:
        return bytes([byte])
    # Behind itself: at the beginning of a text many decoders drop a space.
    alone = detokenizer.decode_part([token_id])
    return detokenizer.decode_part([token_id, token_id])[len(alone) :].encode()


def token_text(detokenizer: Detokenizer, token_id: int) -> str:
    """The token's text; where that is none, its name.

    A part of a character is written as OpenAI does, `bytes:\\xf0\\x9f`: two different parts must
    not look the same in a list of alternatives.
    """
    raw = token_bytes(detokenizer, token_id)
    if raw is None:
        return detokenizer.name(token_id) or f"token_id:{token_id}"
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def decode_with_offsets(
    detokenizer: Detokenizer, token_ids: Sequence[int]
) -> tuple[str, tuple[int, ...]]:
    """The text, and for each token the number of characters before it (see `ShownToken`)."""
    stream = detokenizer.stream()
    pieces: list[str] = []
    offsets: list[int] = []
    num_certain = num_ahead = 0
    for token_id in token_ids:
        settled = stream.settle(token_id)
        if settled:
            num_certain, num_ahead = num_certain + len(settled), 0
        offsets.append(num_certain + num_ahead)
        piece = stream.push(token_id)
        if piece:
            num_certain, num_ahead = num_certain + len(piece), 0
        pieces += settled, piece
        num_ahead += len(stream.look_ahead())
    pieces.append(stream.flush())
    return "".join(pieces), tuple(offsets)
