"""Checkpoints shared by the engine's tests: a target, and a draft that is right at times."""

from pathlib import Path

import pytest
import torch

from engine.kernels import native
from tests.tiny import load_reference, reference_greedy, save_perturbed, save_tiny_llama

PROMPTS: dict[str, list[int]] = {
    "short": [5, 9, 2],
    "repeating": [7, 8, 9, 10, 11] * 3 + [7, 8],
    "long": [(13 * i + i * i) % 120 + 1 for i in range(40)],
}
NEW_TOKENS = 30


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Tiny models gain nothing from more, and waiting threads would slow everything beside them."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def compile_folder(pytestconfig: pytest.Config) -> Path:
    """Kept with pytest's cache: compiling takes longer than most tests."""
    assert pytestconfig.cache is not None
    return pytestconfig.cache.mkdir("compiled")


@pytest.fixture(scope="session")
def operators(compile_folder: Path) -> None:
    native.load(compile_folder, print)


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_llama(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="session")
def draft(target: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_perturbed(target, tmp_path_factory.mktemp("draft"), noise=0.06)


@pytest.fixture(scope="session")
def expected(target: Path) -> dict[str, list[int]]:
    """What transformers' own greedy decoding makes of each prompt, alone."""
    model = load_reference(target)
    return {name: reference_greedy(model, prompt, NEW_TOKENS) for name, prompt in PROMPTS.items()}
