"""A step's inputs as bytes: what rank 0 tells the others, once a step, and nothing else.

    header   version of the table, number of parts
    parts    start, tokens, blocks, logits of each
    tokens   of all parts, one behind the other
    blocks   likewise

All are 32-bit integers in the byte order of the machines, which are alike. What a block's slots
hold need not be told: each rank has computed it for its own heads.
"""

from array import array
from collections.abc import Sequence as ReadOnly
from itertools import chain

from engine.runner import RunnerInput

MAX_BYTES = 64 * 2**20
"""Of one message. A step of 16 million tokens and blocks is no step."""

_HEADER = 2
_PER_PART = 4


def encode(inputs: ReadOnly[RunnerInput], table_version: int) -> bytes:
    """Raises ValueError when it would be more than `MAX_BYTES`."""
    message = array("i", (table_version, len(inputs)))
    for part in inputs:
        message.extend((part.start, len(part.token_ids), len(part.block_ids), part.num_logits))
    message.extend(chain.from_iterable(part.token_ids for part in inputs))
    message.extend(chain.from_iterable(part.block_ids for part in inputs))
    encoded = message.tobytes()
    if len(encoded) > MAX_BYTES:
        raise ValueError(f"a step's plan takes {len(encoded)} bytes; the limit is {MAX_BYTES}")
    return encoded


def decode(message: bytes) -> tuple[list[RunnerInput], int]:
    """The inputs, and the version of the table. Raises ValueError for what `encode` never made."""
    numbers = array("i")
    numbers.frombytes(message)
    if len(numbers) < _HEADER or numbers[1] < 0:
        raise ValueError(f"no plan: {len(message)} bytes")
    version, num_parts = numbers[:_HEADER]
    end = _HEADER + _PER_PART * num_parts
    if len(numbers) < end:
        raise ValueError(f"no plan: {len(message)} bytes can't hold {num_parts} parts")
    fields = numbers[_HEADER:end]
    sizes = [fields[i : i + _PER_PART] for i in range(0, len(fields), _PER_PART)]
    num_tokens, num_blocks = sum(size[1] for size in sizes), sum(size[2] for size in sizes)
    if min((*fields, 0)) < 0 or len(numbers) != end + num_tokens + num_blocks:
        raise ValueError(f"no plan: {len(message)} bytes do not hold what their header says")
    inputs, token, block = [], end, end + num_tokens
    for start, tokens, blocks, logits in sizes:
        inputs.append(
            RunnerInput(
                numbers[token : token + tokens].tolist(),
                start,
                numbers[block : block + blocks].tolist(),
                logits,
            )
        )
        token, block = token + tokens, block + blocks
    return inputs, version
