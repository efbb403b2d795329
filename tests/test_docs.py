"""What the documents point at exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
FOLDERS = ("policy", "engine", "cluster", "deployments", "benchmarks", "examples", "tests")


def walk(folder: Path) -> list[Path]:
    return [folder, *folder.rglob("*")]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_named_files_and_folders_exist(document: Path) -> None:
    known = [f"/{path.relative_to(ROOT)}" for folder in FOLDERS for path in walk(ROOT / folder)]
    named = re.findall(r"`([\w/.-]+(?:\.py|\.yaml|/))`", document.read_text())
    assert [
        name for name in named if not any(k.endswith(f"/{name.rstrip('/')}") for k in known)
    ] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_within_the_repository_lead_somewhere(document: Path) -> None:
    targets = re.findall(r"\]\((?!\w+:)([^)#]+)[^)]*\)", document.read_text())
    assert [target for target in targets if not (document.parent / target).exists()] == []
