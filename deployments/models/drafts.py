"""A draft without what it shares with its target, as it is shipped, and whole again beside it.

`python -m deployments.models.drafts DRAFT TARGET OUT` packs what `paceline distill` made.
"""

import argparse
import json
import shutil
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from engine.distill.folder import ABOUT, TOKENIZER_FILES
from engine.errors import ConfigError
from engine.vocabulary import FILE as VOCABULARY

PACKED = "own.safetensors"
_WEIGHTS = "model.safetensors"
_SHARED = "shared_with_target"
"""Key of the packed file's metadata: names of the tensors that are the target's."""
_OWN_FILES = ("config.json", VOCABULARY, ABOUT)
_TARGET_FILES = ("generation_config.json", *TOKENIZER_FILES)


def pack_draft(draft: Path, target: Path, out: Path) -> None:
    """Write to `out`, a new folder, what the draft has and its target has not.

    Raises ConfigError when the two share no matrix: it is another target's draft then.
    """
    own, theirs = load_file(draft / _WEIGHTS), load_file(target / _WEIGHTS)
    shared = sorted(
        name
        for name, tensor in own.items()
        if name in theirs and tensor.dtype == theirs[name].dtype and tensor.equal(theirs[name])
    )
    if not any(own[name].dim() > 1 for name in shared):
        raise ConfigError(f"draft {draft}: it has no matrix in common with {target}")
    out.mkdir()
    metadata = {"format": "pt", _SHARED: json.dumps(shared)}
    for name in shared:
        del own[name]
    save_file(own, out / PACKED, metadata=metadata)
    for name in _OWN_FILES:
        if (draft / name).is_file():
            shutil.copyfile(draft / name, out / name)


def join_draft(packed: Path, target: Path, into: Path) -> None:
    """Make the whole draft again in `into`, a new folder. Raises OSError when the disk is full."""
    into.mkdir()
    with safe_open(packed / PACKED, framework="pt") as file:
        weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        shared = json.loads(file.metadata()[_SHARED])
    with safe_open(target / _WEIGHTS, framework="pt") as file:
        weights |= {name: file.get_tensor(name) for name in shared}
    try:
        save_file(weights, into / _WEIGHTS, metadata={"format": "pt"})
    except SafetensorError as error:
        raise OSError(str(error)) from error
    for folder, names in ((packed, _OWN_FILES), (target, _TARGET_FILES)):
        for name in names:
            if (folder / name).is_file():
                shutil.copyfile(folder / name, into / name)


def main() -> None:
    """Pack one draft."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("draft", "target", "out"):
        parser.add_argument(name, type=Path)
    args = parser.parse_args()
    pack_draft(args.draft, args.target, args.out)


if __name__ == "__main__":
    main()
