from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from pydantic import BaseModel

from deployments.config import CONTROL_SLOTS, AppConfig, load_config, parse_config
from deployments.config_errors import parse_yaml
from engine.errors import ConfigError
from policy.choice import parse_choice

EXAMPLE = Path(__file__).parents[2] / "examples" / "config.yaml"


def fault_of(tmp_path: Path, text: str) -> str:
    path = tmp_path / "app.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(str(path))
    return message.removeprefix(str(path)).lstrip(": ")


def test_the_example_holds_every_key_with_its_default() -> None:
    assert load_config(EXAMPLE) == AppConfig()
    assert keys_of(yaml.safe_load(EXAMPLE.read_text())) == keys_of(AppConfig())


def keys_of(values: object, prefix: str = "") -> set[str]:
    """Dotted names of every key."""
    items: dict[str, Any] = dict(values) if isinstance(values, (dict, BaseModel)) else {}
    keys: set[str] = set()
    for key, value in items.items():
        keys |= {f"{prefix}{key}"} | keys_of(value, f"{prefix}{key}.")
    return keys


def test_an_empty_file_is_the_default(tmp_path: Path) -> None:
    path = tmp_path / "app.yaml"
    path.write_text("# nothing\n")
    assert load_config(path) == AppConfig()


@pytest.mark.parametrize("text", ["policy: off", "policy: 'off'", "policy: false"])
def test_off_is_understood_however_yaml_reads_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "app.yaml"
    path.write_text(text)
    assert load_config(path).initial_policy == parse_choice("off")


def test_the_policy_is_adaptive_where_somebody_drafts() -> None:
    for values, says in (
        ({}, "adaptive"),
        ({"drafter": {"kind": "auto"}}, "adaptive"),
        ({"policy": "adaptive"}, "adaptive"),
        ({"policy": {"fixed": 2}}, {"fixed": 2}),
        ({"drafter": {"kind": "none"}}, "off"),
        ({"engine": {"max_draft_len": 0}}, "off"),
    ):
        assert parse_config(values, "args").initial_policy.setting == says, values


def test_whole_numbers_are_fine_where_fractions_are_allowed() -> None:
    assert parse_config({"replicas": {"num_cpus": 2}}, "args").replicas.num_cpus == 2.0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("modle: x", "modle is not a known key; did you mean 'model'?"),
        ("engine: {max_num_seq: 4}", "engine.max_num_seq is not a known key; did you mean 'max_n"),
        ("drafter: {knd: ngram}", "drafter.knd is not a known key; did you mean 'kind'?"),
        ("zzz: 1", "zzz is not a known key; known keys: model, "),
        ("7: 1", "7 is not a known key; known keys: model, "),
        ("model: 7", "model must be a text, got 7"),
        ("model: ''", "model must be a text that is not empty, got ''"),
        ("engine: 7", "engine must be a group of keys, got 7"),
        ("engine: {max_num_seqs: '8'}", "engine.max_num_seqs must be a whole number, got '8'"),
        ("engine: {max_num_seqs: 8.0}", "engine.max_num_seqs must be a whole number, got 8.0"),
        ("engine: {max_num_seqs: true}", "engine.max_num_seqs must be a whole number, got True"),
        ("engine: {max_num_seqs: 0}", "engine.max_num_seqs must be at least 1, got 0"),
        ("engine: {max_model_len: 1}", "engine.max_model_len must be at least 2, got 1"),
        ("engine: {max_draft_len: 17}", "engine.max_draft_len must be at most 16, got 17"),
        ("engine: {trust_remote_code: 1}", "engine.trust_remote_code must be true or false, got 1"),
        ("engine: {dtype: fp8}", "engine.dtype must be one of 'auto', 'bfloat16', "),
        ("engine: {device: cuda}", "replicas.num_gpus must be above 0"),
        ("server: {port: 70000}", "server.port must be at most 65535, got 70000"),
        ("server: {port: '80'}", "server.port must be a whole number, got '80'"),
        ("replicas: {num_cpus: many}", "replicas.num_cpus must be a number, got 'many'"),
        ("replicas: {num_gpus: .inf}", "replicas.num_gpus must be a finite number, got inf"),
        (
            "{engine: {max_num_seqs: 4, max_num_waiting: 6}, replicas: {max_ongoing_requests: 10}}",
            "replicas.max_ongoing_requests must be above engine.max_num_seqs + "
            "engine.max_num_waiting (10), got 10",
        ),
        (
            "drafter: {kind: magic}",
            "drafter.kind must be one of 'auto', 'none', 'ngram', 'model' or 'cascade', got",
        ),
        ("drafter: {kind: model}", "drafter.model must name the draft model"),
        ("drafter: {model: x}", "drafter.model is only for kinds 'model' and 'cascade', got 'x'"),
        ("drafter: {max_ngram: 1}", "drafter.min_ngram must be at most max_ngram (1), got 2"),
        (
            "policy: on",
            "policy must be adaptive, off, {fixed: K} or {table: {batch: length, ...}}, got",
        ),
        ("policy: {fixed: 17}", "policy.fixed must be between 0 and 16, got 17"),
        ("policy: {table: {4: x}}", "policy.table[4] must be a whole number, got 'x'"),
        ("policy: {fixed: 9}", "policy: draft length must be at most 8, got 9"),
        ("{drafter: {kind: none}, policy: {fixed: 1}}", "policy: draft length must be at most 0"),
        ("[model]", "must hold keys and values, got ['model']"),
        ("model: a\nmodel: b", "line 2, column 1: key 'model' is given twice"),
        ("policy: {table: {1: 2, 1: 3}}", "line 1, column 24: key 1 is given twice"),
        ("model: x\nengine: [1,", "line 2, column 12: "),
        ("model: x\n\tengine: 1", "line 2, column 1: "),
        ("model: 2020-99-99", "line 1, column 8: '2020-99-99' is no valid date"),
        ("model: 0b_", "line 1, column 8: '0b_' is no valid whole number"),
        ("model: !!bool perhaps", "line 1, column 8: 'perhaps' is no valid truth value"),
        ("model: !!timestamp soon", "line 1, column 8: 'soon' is no valid date"),
        (f"model: {'9' * 5000}", "line 1, column 8: '999"),
        (f"{'9' * 500}: 1", "line 1, column 1: a whole number must fit in 64 bits, got 999"),
        (f"model: 0x{'f' * 5000}", "line 1, column 8: a whole number must fit in 64 bits, got "),
        (f"model: {'[' * 3000}{']' * 3000}", "values are nested too deeply"),
        (f"policy: {'[' * 3000}{']' * 3000}", "values are nested too deeply"),
        ('model: "\\U99999999"', "not valid YAML: "),
        ("engine: {<<: 5}", "line 1, column 14: << takes a mapping or a list of mappings"),
        ("engine: {<<: [{}, 5]}", "line 1, column 19: << takes a mapping or a list of mappings"),
        ("engine: &all {<<: *all, zzz: 1}", "engine.zzz is not a known key; "),
        ("[1]: 1", "line 1, column 1: a key must be a single value"),
        ("engine: {<<: {block_size: 8}, <<: {}}", "line 1, column 31: key '<<' is given twice"),
    ],
)
def test_a_fault_is_one_line_with_key_and_value(tmp_path: Path, text: str, says: str) -> None:
    assert fault_of(tmp_path, text).startswith(says)


def test_merge_keys_fill_in_what_is_not_given(tmp_path: Path) -> None:
    path = tmp_path / "app.yaml"
    path.write_text(
        "engine: {<<: [{max_num_seqs: 4, block_size: 8}, {block_size: 2}], max_num_seqs: 5}\n"
    )
    engine = load_config(path).engine
    assert (engine.max_num_seqs, engine.block_size) == (5, 8)


def test_a_mapping_that_was_merged_into_others_is_none_the_worse(tmp_path: Path) -> None:
    path = tmp_path / "app.yaml"
    # The inner mapping is merged elsewhere before its own keys are read.
    path.write_text(
        "policy: {table: &table {<<: &rest {8: 1, 4: 2}, 4: 3}}\n<<: {drafter: {kind: ngram}}\n"
    )
    assert load_config(path).initial_policy == parse_choice({"table": {4: 3, 8: 1}})
    assert parse_yaml("a: {b: &b {<<: &c {x: 1}, x: 2}}\nd: {<<: *b}", "text") == {
        "a": {"b": {"x": 2}},
        "d": {"x": 2},
    }


def test_values_nested_as_deep_as_yaml_allows_are_refused_in_one_line(tmp_path: Path) -> None:
    for depth in (50, 150, 250, 350):
        fault = fault_of(tmp_path, f"policy: {'[' * depth}{']' * depth}")
        assert len(fault) < 1000


def test_a_model_folder_has_the_name_of_where_it_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "tinymodel"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (tmp_path / "link").symlink_to(model)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(model)
    for name in (".", "..//tinymodel/", "~/tinymodel", str(model)):
        found = parse_config({"model": name}, "args").with_models_found()
        assert (found.model, found.model_name) == (str(model), "tinymodel")
    assert parse_config({"model": "~/link"}, "args").model_name == "link"
    assert parse_config({"model": "org/name"}, "args").model_name == "org/name"


def test_auto_takes_the_draft_in_the_models_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    values = {"model": str(tmp_path)}
    assert parse_config(values, "args").engine_config().drafter.kind == "ngram"
    draft = tmp_path / "draft"
    draft.mkdir()
    (draft / "config.json").write_text("{}")
    found = parse_config(values, "args").engine_config().drafter
    assert (found.kind, found.model) == ("cascade", draft)
    plain = {"model": str(tmp_path), "drafter": {"kind": "ngram"}}
    assert parse_config(plain, "args").engine_config().drafter.kind == "ngram"


def test_a_replica_takes_more_requests_than_its_engine() -> None:
    config = parse_config({"engine": {"max_num_seqs": 2, "max_num_waiting": 3}}, "args")
    assert config.max_ongoing_requests == 2 + 3 + CONTROL_SLOTS
    given = {"max_num_seqs": 2, "max_num_waiting": 3}
    config = parse_config({"engine": given, "replicas": {"max_ongoing_requests": 6}}, "args")
    assert config.max_ongoing_requests == 6


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing.yaml: can't read .*No such file"):
        load_config(tmp_path / "nothing.yaml")
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not a UTF-8 text file"):
        load_config(binary)


def test_the_initial_policy_never_asks_for_more_than_the_engine_drafts() -> None:
    for values in (
        {},
        {"drafter": {"kind": "none"}},
        {"engine": {"max_draft_len": 1}},
        {"engine": {"max_draft_len": 0}},
    ):
        config = parse_config(values, "args")
        config.initial_policy.limited_to(config.max_draft_len)


@pytest.mark.parametrize(
    ("told", "dtype"),
    [
        ('{"dtype": "bfloat16"}', "bfloat16"),
        ('{"torch_dtype": "float16"}', "float16"),
        ('{"dtype": "float32"}', "float32"),
        ('{"dtype": "float8_e4m3fn"}', "float32"),
        ("{}", "float32"),
        ("[]", "float32"),
        ("{", "float32"),
    ],
)
def test_a_cpu_without_bf16_arithmetic_takes_weights_as_they_are_stored(
    told: str, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    (tmp_path / "config.json").write_text(told)
    config = parse_config({"model": str(tmp_path), "engine": {"device": "cpu"}}, "test")
    assert config.engine_config().dtype == dtype
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True)
    assert config.engine_config().dtype == "bfloat16"


def test_compiled_code_is_kept_in_the_cache_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path / "home"))
    (tmp_path / "config.json").write_text("{}")
    config = parse_config({"model": str(tmp_path)}, "test")
    assert config.engine_config().compile_folder == tmp_path / "home" / "compiled"
    off = parse_config({"model": str(tmp_path), "engine": {"compile": False}}, "test")
    assert off.engine_config().compile_folder is None


def test_autoscaling_takes_the_place_of_the_number_of_replicas(tmp_path: Path) -> None:
    config = parse_config({"autoscaling": {"max_replicas": 3}}, "args")
    assert config.most_replicas == 3
    assert parse_config({"replicas": {"num_replicas": 2}}, "args").most_replicas == 2
    both = "replicas: {num_replicas: 2}\nautoscaling: {max_replicas: 3}"
    assert fault_of(tmp_path, both) == (
        "replicas.num_replicas and autoscaling exclude each other; leave one of them out, got "
        "num_replicas 2 and autoscaling with max_replicas 3"
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{}", "autoscaling.max_replicas"),
        ("{max_replicas: 0}", "autoscaling.max_replicas must be at least 1, got 0"),
        ("{max_replicas: 2, min_replicas: 3}", "must be at most max_replicas (2), got 3"),
        ("{max_replicas: 2, target_tpot_ms: 0}", "autoscaling.target_tpot_ms must be above 0"),
        ("{max_replicas: 2, target_itl_ms: 9}", "autoscaling.target_itl_ms is not a known key"),
    ],
)
def test_faults_of_autoscaling_name_the_key(tmp_path: Path, text: str, says: str) -> None:
    assert says in fault_of(tmp_path, f"autoscaling: {text}")


def test_routers_take_what_all_replicas_take() -> None:
    config = parse_config(
        {
            "resilient": True,
            "engine": {"max_num_seqs": 10, "max_num_waiting": 20},
            "replicas": {"num_replicas": 3},
        },
        "test",
    )
    assert config.max_routed_requests == 3 * (10 + 20) + CONTROL_SLOTS
