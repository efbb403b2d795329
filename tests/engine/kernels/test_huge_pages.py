"""Asking for huge pages."""

from pathlib import Path

import pytest
import torch

from engine.kernels.huge_pages import use_huge_pages


def is_advised(address: int) -> bool:
    """Whether the mapping that holds the address has the kernel's flag for "asked for"."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first = line.split()[0]
        if "-" in first and not first.endswith(":"):
            start, end = (int(part, 16) for part in first.split("-"))
            inside = start <= address < end
        elif inside and first == "VmFlags:":
            return "hg" in line.split()
    raise AssertionError("no such mapping")


@pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage/enabled").is_file(),
    reason="the kernel has no transparent huge pages",
)
def test_large_memory_is_asked_for_and_keeps_what_it_holds() -> None:
    large = torch.arange(16 * 2**20, dtype=torch.int32)
    middle = large.data_ptr() + 32 * 2**20
    before = large.clone()
    assert not is_advised(middle)
    use_huge_pages()
    assert is_advised(middle)
    assert torch.equal(large, before)
