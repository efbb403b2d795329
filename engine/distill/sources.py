"""Files of prompts and running texts, as the texts that a target is asked about."""

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedTokenizerFast

from engine.errors import ConfigError

_USERS_WORDS = "what a user says"


@dataclass(frozen=True, slots=True)
class Chat:
    """What a user says, turn by turn; the target answers each."""

    turns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Opening:
    """A text that the target goes on with."""

    text: str


@dataclass(frozen=True, slots=True)
class Running:
    """A piece of a text that somebody else wrote; the target is asked about each token of it."""

    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Own:
    """A user's turn that the target writes itself, and then answers: a chat model that is given a
    chat up to where the user speaks writes what users say (Xu et al. 2024, "Magpie",
    arXiv 2406.08464). A model without a chat template writes a text from its beginning."""


Source = Chat | Opening | Running | Own


def read_prompts(path: Path) -> list[Chat | Opening]:
    """One JSON object a line, with `turns` (a chat) or `prompt` (a text to go on with); the file
    may be compressed by gzip. Raises ConfigError that names the file and the line."""
    found: list[Chat | Opening] = []
    for number, line in enumerate(_read(path, "--prompts").splitlines(), start=1):
        if not line.strip():
            continue
        where = f"--prompts {path}, line {number}"
        try:
            said = json.loads(line)
        except ValueError as error:
            raise ConfigError(f"{where}: not JSON: {error}") from None
        if not isinstance(said, dict) or not {"turns", "prompt"} & said.keys():
            raise ConfigError(f'{where}: must be an object with "turns" or "prompt"')
        turns = said.get("turns")
        if turns is None:
            if not isinstance(said["prompt"], str) or not said["prompt"]:
                raise ConfigError(f'{where}: "prompt" must be a text that is not empty')
            found.append(Opening(said["prompt"]))
        elif isinstance(turns, list) and turns and all(isinstance(t, str) and t for t in turns):
            found.append(Chat(tuple(turns)))
        else:
            raise ConfigError(f'{where}: "turns" must be a list of texts that are not empty')
    if not found:
        raise ConfigError(f"--prompts {path}: the file holds no prompts")
    return found


def read_text(path: Path, tokenizer: PreTrainedTokenizerFast, piece_len: int) -> list[Running]:
    """A text in pieces of `piece_len` tokens. Raises ConfigError that names the file."""
    token_ids = tokenizer.encode(_read(path, "--text"), add_special_tokens=False)
    pieces = [token_ids[at : at + piece_len] for at in range(0, len(token_ids), piece_len)]
    found = [Running(tuple(piece)) for piece in pieces if len(piece) > 1]
    if not found:
        raise ConfigError(f"--text {path}: the file holds no text")
    return found


def prompt_ids(
    turns: Sequence[str], answers: Sequence[str], tokenizer: PreTrainedTokenizerFast
) -> list[int]:
    """The chat up to where the next answer begins; without a chat template the turns as text."""
    said = [answers[i // 2] if i % 2 else turns[i // 2] for i in range(2 * len(answers) + 1)]
    if tokenizer.chat_template is None:
        return list(tokenizer.encode("\n\n".join(said) + "\n\n"))
    messages = [
        {"role": "assistant" if i % 2 else "user", "content": text} for i, text in enumerate(said)
    ]
    chat = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    return list(tokenizer.encode(str(chat), add_special_tokens=False))


def own_prompt_ids(tokenizer: PreTrainedTokenizerFast) -> list[int]:
    """What a target is given to write an `Own` prompt: a chat up to the user's first word, or what
    a text begins with. Raises ConfigError when neither is known."""
    if tokenizer.chat_template is not None:
        chat = tokenizer.apply_chat_template(
            [{"role": "user", "content": _USERS_WORDS}], tokenize=False
        )
        before, found, _ = str(chat).partition(_USERS_WORDS)
        if found and before:
            return list(tokenizer.encode(before, add_special_tokens=False))
    beginnings = (tokenizer.bos_token_id, tokenizer.eos_token_id)
    for token_id in beginnings:
        if token_id is not None:
            return [int(token_id)]
    raise ConfigError(
        "--own-prompts: the target has neither a chat template nor a token that texts begin with"
    )


def _read(path: Path, option: str) -> str:
    try:
        if path.suffix == ".gz":
            return gzip.decompress(path.read_bytes()).decode()
        return path.read_text()
    except (OSError, EOFError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{option} {path}: can't be read: {reason}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{option} {path}: is no text in UTF-8") from None
