"""Imports run one way: policy <- engine <- cluster <- deployments; the engine is free of ray."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture import ORDER, violations

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("folder", ORDER)
def test_every_file_keeps_the_direction_of_imports(folder: str) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    broken = [
        line
        for file in files
        for line in violations(file.relative_to(ROOT).as_posix(), file.read_text())
    ]
    assert broken == []


def test_importing_every_module_of_the_engine_brings_no_ray() -> None:
    modules = [
        ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for file in sorted((ROOT / "engine").rglob("*.py"))
    ]
    code = f"import sys, {', '.join(modules)}; sys.exit('ray' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("path", "source"),
    [
        pytest.param("policy/table.py", "import engine", id="policy imports engine"),
        pytest.param("policy/table.py", "from cluster.group import Group", id="skips a folder"),
        pytest.param("engine/core.py", "from deployments import app", id="from package"),
        pytest.param("engine/core.py", "import json, cluster.ranks", id="second name"),
        pytest.param("cluster/group.py", "import deployments.app as a", id="renamed"),
        pytest.param("engine/core.py", "def f():\n    import ray", id="ray in a function"),
        pytest.param("engine/core.py", "from ray import serve", id="from ray"),
        pytest.param("engine/core.py", "import ray.serve", id="ray's submodule"),
        pytest.param("engine/a/b.py", "import ray", id="deeper folder"),
        pytest.param("policy/table.py", "import ray", id="policy outside its actor"),
        pytest.param("engine/core.py", "from policy.actor import PolicyActor", id="by the actor"),
        pytest.param("engine/core.py", "from policy import actor", id="the actor's module"),
        pytest.param("policy/table.py", "import policy.actor", id="policy imports its actor"),
        pytest.param("policy/actor.py", "import engine.core", id="the actor imports engine"),
        pytest.param("engine/core.py", "from ..cluster import x", id="relative"),
        pytest.param("engine/core.py", "import tests.tiny", id="product imports tests"),
        pytest.param(
            "engine/core.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from cluster import x",
            id="type checking",
        ),
        pytest.param("engine/core.py", "try:\n    import ray\nexcept ImportError: 0", id="try"),
        pytest.param("engine/core.py", "m = __import__('ray')", id="__import__"),
        pytest.param(
            "engine/core.py", "import importlib\nimportlib.import_module('cluster.x')", id="dynamic"
        ),
    ],
)
def test_checker_finds_one_violation(path: str, source: str) -> None:
    assert len(violations(path, source)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("policy/actor.py", "import ray\nfrom policy.table import SpeculationTable"),
        ("engine/core.py", "import torch\nfrom policy.table import SpeculationTable"),
        ("engine/core.py", "import raylib, clusters\nfrom enginex import y"),
        ("cluster/ranks.py", "import ray\nimport engine.core, policy.table"),
        ("deployments/app.py", "from ray import serve\nimport cluster, engine, policy"),
        ("engine/core.py", "text = 'import ray'  # import cluster"),
    ],
)
def test_checker_allows_what_is_allowed(path: str, source: str) -> None:
    assert violations(path, source) == []
