"""ARCHITECTURE.md names files, functions and folders that exist, and the folders in the order of the import rule."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from test_architecture import LAYERS

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "penstock"
PAGE = (ROOT / "ARCHITECTURE.md").read_text()
STEPS = sorted(set(re.findall(r"`([a-z_/0-9]+\.pyx?):([A-Za-z_.]+)`", PAGE)))


def test_the_page_has_its_walks() -> None:
    assert len(STEPS) > 30


@pytest.mark.parametrize(("file", "name"), STEPS, ids=lambda part: part)
def test_a_step_of_a_walk_exists(file: str, name: str) -> None:
    text = (SOURCE / file).read_text()
    holder, _, function = name.rpartition(".")
    if holder:
        found = re.search(rf"^(?:cdef )?class {holder}\b.*?(?=^\S|\Z)", text, re.MULTILINE | re.DOTALL)
        assert found, f"{file} has no class {holder}"
        text = found[0]
    defined = rf"^\s*(?:(?:async )?def|cdef|cpdef|class|cdef class)\b[^=\n]*?\b{function}\b\s*[(:]"
    assert re.search(defined, text, re.MULTILINE), f"{file} defines no {name}"


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`([a-z_/0-9]+/[a-z_0-9]+\.pyx?)`", PAGE))))
def test_a_file_that_it_names_exists(path: str) -> None:
    assert (SOURCE / path).exists() or (ROOT / path).exists()


def test_it_lists_the_folders_in_their_order() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert [name for name in listed if name in LAYERS] == [name for name in LAYERS if name != "shared"]
