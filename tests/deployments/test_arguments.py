from pathlib import Path
from typing import Any

import pytest

from deployments.arguments import parse_arguments
from engine.errors import ConfigError
from policy.choice import parse_choice


def test_texts_of_a_command_line_are_read_by_the_key() -> None:
    config = parse_arguments(
        {
            "model": "123",
            "policy": "off",
            "drafter.kind": "none",
            "engine.max_num_seqs": "8",
            "engine.max_model_len": "null",
            "engine.trust_remote_code": "true",
            "replicas": "{num_cpus: 0.5}",
        }
    )
    assert config.model == "123"
    assert config.policy == parse_choice("off")
    assert config.drafter.kind == "none"
    assert config.engine.max_num_seqs == 8
    assert config.engine.max_model_len is None
    assert config.engine.trust_remote_code
    assert config.replicas.num_cpus == 0.5


def test_values_of_a_deploy_file_keep_their_types() -> None:
    # JSON turned the batch sizes into texts on the way.
    config = parse_arguments({"policy": {"table": {"4": 2}}, "engine": {"block_size": 8}})
    assert config.initial_policy.rungs == ((4, 2),)
    assert config.engine.block_size == 8


def test_arguments_override_the_file_and_leave_its_other_keys(tmp_path: Path) -> None:
    file = tmp_path / "app.yaml"
    file.write_text("model: a\npolicy: {fixed: 2}\nengine: {block_size: 8, max_num_seqs: 4}\n")
    config = parse_arguments(
        {"config": str(file), "engine.max_num_seqs": "2", "policy": "{table: {1: 3}}"}
    )
    assert config.model == "a"
    assert config.initial_policy == parse_choice({"table": {1: 3}})
    assert (config.engine.block_size, config.engine.max_num_seqs) == (8, 2)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"modle": "x"}, "arguments: modle is not a known key; did you mean 'model'"),
        ({"engine.max_seqs": "1"}, "arguments: engine.max_seqs is not a known key; did you mean"),
        ({"engine.max_num_seqs": "x"}, "arguments: engine.max_num_seqs must be a whole number"),
        ({"engine": "8"}, "arguments: engine must be a group of keys, got 8"),
        ({"model.x": "1"}, "arguments: model must be a text, got {'x': 1}"),
        ({"policy": "{fixed: "}, "arguments: policy line 1"),
        ({"config": 7}, "arguments: config must be the path of a YAML file, got 7"),
        ({"config": "/nowhere/app.yaml"}, "/nowhere/app.yaml: can't read"),
    ],
)
def test_a_fault_names_the_argument(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_arguments(arguments)
    assert str(caught.value).startswith(says)
    assert "\n" not in str(caught.value)


def test_a_fault_in_the_file_is_blamed_on_the_file(tmp_path: Path) -> None:
    file = tmp_path / "app.yaml"
    file.write_text("modle: a\n")
    with pytest.raises(ConfigError, match=r"app.yaml: modle is not a known key"):
        parse_arguments({"config": str(file), "model": "x"})
