"""What is distributed: whole, and refused while it is built where it could not run. `make wheel` builds all of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOTS_OWN = ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE")


def build(tree: Path, kind: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Build a distribution into tree/dist, without a network."""
    return subprocess.run(
        [sys.executable, "-m", "build", f"--{kind}", "--no-isolation", "--outdir", str(tree / "dist"), str(tree)],
        capture_output=True,
        text=True,
        timeout=300,
        env={name: value for name, value in os.environ.items() if name != "PENSTOCK_KERNELS"} | environment,
    )


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution of this tree, unpacked."""
    tree = tmp_path_factory.mktemp("tree")
    for name in ROOTS_OWN:
        shutil.copy(ROOT / name, tree)
    shutil.copytree(ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    done = build(tree, "sdist")
    assert done.returncode == 0, done.stdout + done.stderr
    (packed,) = (tree / "dist").iterdir()
    with tarfile.open(packed) as archive:
        archive.extractall(tree / "out", filter="data")
    (found,) = (tree / "out").iterdir()
    return found


def test_a_source_distribution_has_all_that_a_build_needs(unpacked: Path) -> None:
    def sources(tree: Path) -> set[str]:
        files = (str(path.relative_to(tree)) for path in (tree / "src").rglob("*") if path.is_file())
        return {name for name in files if name.endswith((".py", ".pyx", ".pxd", ".pyi", "py.typed"))}

    assert sources(unpacked) == sources(ROOT) and len(list(unpacked.rglob("*.pyx"))) > 30
    assert all((unpacked / name).is_file() for name in ROOTS_OWN)
    assert not [path for path in unpacked.rglob("*") if path.suffix in (".so", ".c", ".pyc")]
    about = (unpacked / "PKG-INFO").read_text()
    assert "License-Expression: Apache-2.0" in about and "License-File: LICENSE" in about
    assert (ROOT / "README.md").read_text().splitlines()[0] in about


def test_a_wheel_of_it_imports_outside_of_the_tree(unpacked: Path, tmp_path: Path) -> None:
    """With one kernel instead of all: they are compiled in the same way, but for minutes."""
    tree = Path(shutil.copytree(unpacked, tmp_path / "tree"))
    for path in tree.rglob("*.pyx"):
        if path.name != "xxh64.pyx":
            path.unlink()
    done = build(tree, "wheel")
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = (tree / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert not [name for name in archive.namelist() if name.endswith((".pyx", ".c"))]
        archive.extractall(tmp_path / "site")
    code = (
        "import penstock, penstock.base.xxh64 as x; print(x.__file__, penstock.__version__, hex(x.xxh64_of(bytes())))"
    )
    ran = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path / "site")},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith(str(tmp_path / "site")) and ran.stdout.endswith("0xef46db3751d8e999\n")


def test_what_could_not_run_fails_while_it_is_built(unpacked: Path, tmp_path: Path) -> None:
    for kind in ("wheel", "sdist"):
        done = build(unpacked, kind, PENSTOCK_KERNELS="0")
        assert done.returncode != 0 and "PENSTOCK_KERNELS=0 is for an editable install" in done.stdout + done.stderr
    tree = Path(shutil.copytree(unpacked, tmp_path / "tree"))
    for path in tree.rglob("*.pyx"):
        path.unlink()
    done = build(tree, "wheel")
    assert done.returncode != 0 and "no kernels (*.pyx)" in done.stdout + done.stderr
