"""A model by its name on the Hugging Face hub."""

from pathlib import Path

from engine.errors import ConfigError

_WANTED = ["*.safetensors", "*.json", "*.jinja", "*.model", "*.txt", "*.py"]
_UNWANTED = ["*/*", "consolidated*"]
"""Sub-folders and the publishers' own formats repeat the weights."""


def download(name: str, key: str) -> Path:
    """Folder of the hub model `name`, from the hub's own cache or the network.

    Raises ConfigError, in one line that starts with `key`, when neither has it.
    """
    # Imported here: the command line must start at once.
    import httpx2  # what the hub's client lets through when a connection breaks
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        folder = Path(snapshot_download(name, allow_patterns=_WANTED, ignore_patterns=_UNWANTED))
    except (HfHubHTTPError, HFValidationError, OSError, httpx2.HTTPError) as error:
        first_line = str(error).strip().split("\n")[0]
        raise ConfigError(f"{key}: cannot get {name!r} from the hub: {first_line}") from error
    if not (folder / "config.json").is_file():
        raise ConfigError(f"{key}: hub model {name!r} holds no config.json")
    if not any(folder.glob("*.safetensors")):
        raise ConfigError(f"{key}: hub model {name!r} holds no safetensors weights")
    return folder
