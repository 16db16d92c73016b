"""The layout shows the data flow: in src/penstock a folder imports only from those above it (ARCHITECTURE.md)."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from support.compiled_calls import violations

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "penstock"
# From the top of the picture to the bottom; the shared nouns come first.
LAYERS = [
    "shared",
    "errors",
    "base",
    "wire",
    "format",
    "store",
    "scan",
    "stream",
    "consumer",
    "db",
    "check",
    "broker",
    "api",
    "server",
    "spark",
    "cli",
    "testing",
]
FACES = {"aio", "pytest_plugin", "__init__", "__main__"}
"""They may use everything below them."""
TWINS = "twins"
"""tests/twins: the compiled structures once more, in plain Python."""


def layer_of(module: str) -> str:
    """The layer of a dotted module name."""
    parts = module.split(".")
    if len(parts) == 1 or parts[1] in FACES:
        return "face"
    if (SOURCE / parts[1]).is_dir():
        return parts[1]
    return "shared"


def imports_of(path: Path) -> set[str]:
    """The penstock modules that a file imports, also inside functions; those for types only do not count."""
    text = path.read_text()
    if path.suffix in (".pyx", ".pxd"):
        return set(re.findall(r"^\s*(?:from|cimport|import)\s+(penstock[\w.]*)", text, re.MULTILINE))
    found: set[str] = set()
    tree = ast.parse(text)
    guarded = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for child in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in guarded:
            continue
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names if alias.name.split(".")[0] == "penstock")
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "penstock":
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


FILES = sorted(path for suffix in ("*.py", "*.pyx", "*.pxd") for path in SOURCE.rglob(suffix))


def module_of(path: Path) -> str:
    return ".".join(("penstock", *path.relative_to(SOURCE).with_suffix("").parts))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_folder_imports_only_from_those_above_it(path: Path) -> None:
    own = layer_of(module_of(path))
    if own == "face":
        return
    for wanted in imports_of(path):
        other = layer_of(wanted)
        assert other != "face", f"{path} imports {wanted}"
        assert LAYERS.index(other) <= LAYERS.index(own), f"{path} ({own}) imports {wanted} ({other})"


def test_every_folder_has_its_place() -> None:
    folders = {path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders <= {*LAYERS, *FACES}, folders - {*LAYERS, *FACES}


def test_production_never_uses_the_plain_twins() -> None:
    for path in FILES:
        assert not re.search(rf"^\s*(from|import) {TWINS}\b", path.read_text(), re.MULTILINE), path


def test_only_the_spark_layer_imports_pyspark() -> None:
    """The command line does inside its functions, so that the other commands start fast."""
    for path in FILES:
        if path.suffix != ".py" or layer_of(module_of(path)) == "spark":
            continue
        tree = ast.parse(path.read_text())
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        late = {id(child) for function in functions for child in ast.walk(function)}
        typing = {
            id(child)
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
            for child in ast.walk(node)
        }
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            if any(name.split(".")[0] == "pyspark" for name in names) and id(node) not in typing:
                assert layer_of(module_of(path)) == "cli" and id(node) in late, f"{path} imports pyspark"


def test_every_compiled_module_has_types() -> None:
    for path in SOURCE.rglob("*.pyx"):
        assert path.with_suffix(".pyi").exists(), f"{path} has no .pyi"


UNDECLARED = {
    "StreamEngine.store": "the engine's host gets its Protocol with the store's own parts",
}
"""Attributes on which compiled code may still call anything, and why. To be emptied."""


def test_compiled_code_calls_upward_only_what_its_stub_declares() -> None:
    """Imports do not show all that a lower layer knows of a higher one: it may call an object of any class."""

    def rank(module: str) -> int:
        layer = layer_of(module)
        return len(LAYERS) if layer == "face" else LAYERS.index(layer)

    found = [(path, called) for path, called in violations(SOURCE, rank) if called.rpartition(".")[0] not in UNDECLARED]
    assert not found, "\n".join(f"{path.relative_to(ROOT)} calls {called}" for path, called in found)


UPWARD = {
    "low/box.pxd": """
        cdef class Box:
            cdef object host                       # a comment, with host.neither
            cdef int open(self) except -1
        """,
    "low/box.pyx": '''
        cdef class Box:
            """self.docstring is not code."""

            def __init__(self, host):
                self.host = host

            cdef int open(self) except -1:
                self.host.opened("self.text is not code")
                return BODY
        ''',
    "low/box.pyi": """
        from typing import Any, Protocol

        from penstock.high.shelf import Shelf

        class BoxHost(Protocol):
            def opened(self, text: str) -> None: ...

        class Box:
            def __init__(self, host: BoxHost) -> None: ...
        """,
}


@pytest.mark.parametrize(
    ("body", "host", "wanted"),
    [
        ("0", "BoxHost", []),
        ("self.open()", "BoxHost", []),
        ("self.host.closed()", "BoxHost", ["Box.host.closed"]),  # not in the protocol
        ("self.closed()", "BoxHost", ["Box.closed"]),  # only a subclass in Python could have it
        ("(<Box>self.other).closed()", "BoxHost", ["Box.other", "Box.closed"]),
        ("0", "Any", ["Box.host.opened"]),
        ("0", "Shelf", ["Box.host.opened"]),  # a class of a higher layer
        ("0", "Box", ["Box.host.opened"]),
        ("0", "BoxHost | None", []),
    ],
)
def test_an_upward_call_without_a_declaration_is_found(tmp_path: Path, body: str, host: str, wanted: list[str]) -> None:
    root = tmp_path / "penstock"
    (root / "high").mkdir(parents=True)
    (root / "low").mkdir()
    (root / "high" / "shelf.py").write_text("class Shelf: ...\n")
    for name, text in UPWARD.items():
        text = textwrap.dedent(text).replace("BODY", body)
        (root / name).write_text(text.replace("host: BoxHost", f"host: {host}"))
    found = violations(root, lambda module: ["penstock.low", "penstock.high"].index(module.rpartition(".")[0]))
    assert sorted(called for _, called in found) == sorted(wanted)


def test_an_alias_of_a_host_is_followed(tmp_path: Path) -> None:
    (root := tmp_path / "penstock").mkdir()
    (root / "low").mkdir()
    for name, text in UPWARD.items():
        body = "0\n        host = self.host\n        host.opened()\n        host.closed()"
        (root / name).write_text(textwrap.dedent(text).replace("BODY", body))
    assert [called for _, called in violations(root, lambda module: 0)] == ["Box.host.closed"]


def test_opening_a_store_imports_neither_pyarrow_nor_the_command_line(tmp_path: Path) -> None:
    code = (
        "import sys, penstock, penstock.spark\n"
        f"with penstock.open({str(tmp_path / 'data')!r}) as db: db.stream('S').publish('S', b'x')\n"
        "heavy = {'pyarrow', 'pyspark', 'typer', 'rich', 'numpy', 'asyncio', 'matplotlib'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
