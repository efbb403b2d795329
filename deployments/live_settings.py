"""What of the configuration changes without a restart: Serve's `user_config`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, ValidationError

from deployments.config import AppConfig, LimitsSection, Section, absolute_path, read_policy
from deployments.config_errors import describe_fault
from engine.errors import ConfigError
from policy.choice import PolicyChoice


class LiveSettings(Section):
    """A key that is left out is what the configuration says."""

    policy: Annotated[PolicyChoice, BeforeValidator(read_policy)] | None = None
    limits: LimitsSection | None = None
    api_keys_file: Annotated[str, BeforeValidator(absolute_path)] | None = None

    def keys_path(self, config: AppConfig) -> Path | None:
        name = self.api_keys_file or config.server.api_keys_file
        return None if name is None else Path(name)


def parse_live(values: Mapping[str, Any], config: AppConfig) -> LiveSettings:
    """Raises ConfigError, which names the key."""
    try:
        live = LiveSettings.model_validate(dict(values))
        if live.policy is not None:
            live.policy.limited_to(config.max_draft_len)
    except ValidationError as error:
        raise ConfigError(f"user_config: {describe_fault(error, LiveSettings)}") from None
    except ValueError as error:
        raise ConfigError(f"user_config: policy: {error}") from None
    return live
