"""The rules on imports, as functions over source text."""

import ast
from collections.abc import Iterator
from pathlib import PurePosixPath

ORDER = ("policy", "engine", "cluster", "deployments")
"""A folder may import itself and those before it."""

RAY_ROOMS = ("policy/actor.py", "cluster/", "deployments/")
"""Where ray may be imported."""


def violations(path: str, source: str) -> list[str]:
    """Broken rules of the file at `path` (relative to the repository), as `path:line: reason`.

    Every import counts, wherever it stands: inside a function, under TYPE_CHECKING, or made by
    `importlib.import_module` and `__import__` with a constant name.
    """
    folder = PurePosixPath(path).parts[0]
    later = ORDER[ORDER.index(folder) + 1 :]
    may_use_ray = path.startswith(RAY_ROOMS)
    found = []
    for line, module in _imports(ast.parse(source)):
        top = module.split(".")[0]
        if top in later:
            found.append(f"{path}:{line}: {folder} must not import {module}")
        elif top == "ray" and not may_use_ray:
            found.append(f"{path}:{line}: ray must not be imported here")
        elif top in ("tests", "benchmarks", "examples"):
            found.append(f"{path}:{line}: the product must not import {module}")
        elif module.startswith("."):
            found.append(f"{path}:{line}: relative imports hide their direction")
        elif f"{module}.".startswith("policy.actor.") and not may_use_ray:
            found.append(f"{path}:{line}: policy.actor brings ray along")
    return found


def _imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, module) of every import; `from a import b` counts as `a.b`, whatever b is."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for name in names:
                    yield node.lineno, name.name
            case ast.ImportFrom(module=module, names=names, level=level):
                if level:
                    yield node.lineno, "." * level + (module or "")
                else:
                    for name in names:
                        yield node.lineno, f"{module}.{name.name}"
            case ast.Call(
                func=ast.Name(id="__import__")
                | ast.Attribute(attr="import_module")
                | ast.Name(id="import_module"),
                args=[ast.Constant(value=str(module)), *_],
            ):
                yield node.lineno, module
