"""Upward calls in compiled code: what a .pyx may call on objects whose class lies in a higher layer.

A compiled class may call a method of `self`, or of a typed variable, only if that class declares it. On an attribute of
type `object` it may call only what the annotation of that attribute names, in the .pyi beside the class: the members of
a Protocol, or a class that is not in a higher layer. So everything that lower layers expect of higher ones is written
down.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

IGNORED = {"__class__", "__dict__"}
_QUOTED = re.compile(r'("""|\'\'\').*?\1|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|#[^\n]*', re.DOTALL)
_CLASS = re.compile(r"cdef class (\w+)(?:\((\w+)\))?")
_FUNCTION = re.compile(r"(?:cdef|cpdef|def)\b[^(=]*?\b(\w+)\s*\(")
_CHAIN = re.compile(r"(?<![\w.])()(\w+)((?:\.\w+)+)")
_CAST = re.compile(r"\(<(\w+)>([^()]*)\)((?:\.\w+)+)")
_MADE = re.compile(r"self\.(\w+) = (\w+)\(")
_IMPORT = re.compile(r"from (?!penstock)[\w.]+ import (.+)")
_ALIAS = re.compile(r"(\w+) = ((?:\w+\.)+\w+)$")


@dataclass
class Class:
    """A cdef class: its members, and the types of its attributes."""

    module: Path
    base: str = ""
    members: set[str] = field(default_factory=set)
    types: dict[str, str] = field(default_factory=dict)
    made: set[str] = field(default_factory=set)  # attributes of type `object` that hold a class of a lower layer


@dataclass
class Function:
    """The logical lines of a function, and the types of its parameters and variables."""

    owner: str
    lines: list[str]
    types: dict[str, str]


def violations(root: Path, layer: Callable[[str], int]) -> Iterator[tuple[Path, str]]:
    """(file, undeclared call) for all .pyx files below `root`; `layer` ranks a dotted module name."""
    modules = sorted(root.rglob("*.pyx"))
    classes: dict[str, Class] = {}
    functions: dict[Path, list[Function]] = {}
    for path in sorted(root.rglob("*.pxd")):
        _read(path, classes)
    for path in modules:
        functions[path] = _read(path, classes)
    stubs = _Stubs(root, layer)
    for path in modules:
        for function in functions[path]:
            for fault in _faults(function, classes, stubs):
                yield path, fault


def _faults(function: Function, classes: dict[str, Class], stubs: _Stubs) -> Iterator[str]:
    types = dict(function.types)
    if function.owner:
        types["self"] = function.owner
    aliases: dict[str, tuple[str, str]] = {}  # a variable → the class and the attribute whose object it holds
    for line in function.lines:
        for cast, name, rest in (*_CHAIN.findall(line), *_CAST.findall(line)):
            names = rest[1:].split(".")
            if name in aliases and not cast:
                where = aliases[name]
                if not _allows(stubs, classes, *where, names[0]):
                    yield f"{where[0]}.{where[1]}.{names[0]}"
                continue
            kind = cast or types.get(name, "")
            for n, each in enumerate(names):
                if kind not in classes:
                    break
                owner = _owner(each, kind, classes)
                if owner is None:
                    if each not in IGNORED:
                        yield f"{kind}.{each}"
                    break
                kind = classes[owner].types.get(each, "")
                if kind == "object" and n + 1 < len(names):
                    if not _allows(stubs, classes, owner, each, names[n + 1]):
                        yield f"{owner}.{each}.{names[n + 1]}"
                    break
        if found := _ALIAS.search(line.strip()):
            chain = found[2].split(".")
            kind = types.get(chain[0], "")
            for each in chain[1:-1]:
                owner = _owner(each, kind, classes)
                kind = classes[owner].types.get(each, "") if owner else ""
            owner = _owner(chain[-1], kind, classes)
            if owner and classes[owner].types.get(chain[-1]) == "object":
                aliases[found[1]] = owner, chain[-1]
            else:
                aliases.pop(found[1], None)


def _allows(stubs: _Stubs, classes: dict[str, Class], owner: str, attribute: str, name: str) -> bool:
    return attribute in classes[owner].made or stubs.allows(classes[owner].module, owner, attribute, name)


def _owner(member: str, kind: str, classes: dict[str, Class]) -> str | None:
    """The class that declares `member`: `kind` or one of its bases; `kind` itself if one of its bases is unknown."""
    name = kind
    while name in classes:
        if member in classes[name].members:
            return name
        name = classes[name].base
    return kind if name and kind in classes else None


# Reading Cython.


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments and without the contents of strings; text in brackets is joined into one line."""
    text = _QUOTED.sub(lambda found: "" if found[0].startswith("#") else '""', text)
    line = ""
    for part in text.splitlines():
        line = f"{line} {part.strip()}" if line else part
        if line.count("(") + line.count("[") + line.count("{") > line.count(")") + line.count("]") + line.count("}"):
            continue
        if line.strip():
            yield line
        line = ""


def _read(path: Path, classes: dict[str, Class]) -> list[Function]:
    """Add the classes of a .pxd or .pyx to `classes`; return the functions of a .pyx."""
    functions: list[Function] = []
    owner, function = "", None
    imported: set[str] = set()  # from the standard library
    for line in _logical_lines(path.read_text()):
        indent, text = len(line) - len(line.lstrip()), line.strip()
        if indent == 0:
            owner, function = "", None
            if found := _IMPORT.match(text):
                imported.update(_split(found[1]))
            if found := _CLASS.match(text):
                owner = found[1]
                known = classes.setdefault(owner, Class(path))
                known.base = found[2] or known.base
                continue
        if indent == (4 if owner else 0):
            function = None
            if not text.startswith(("cdef", "cpdef", "def")) or text.startswith(
                ("cdef extern", "cdef enum", "cdef struct")
            ):
                continue
            if found := _FUNCTION.match(text):
                if owner:
                    classes[owner].members.add(found[1])
                function = Function(owner, [], dict(_parameters(text)))
                functions.append(function)
            elif owner:
                for kind, name in _variables(text):
                    classes[owner].members.add(name)
                    classes[owner].types[name] = kind
        elif function is not None:
            if text.startswith("cdef "):
                function.types.update((name, kind) for kind, name in _variables(text))
            function.lines.append(text)
            if owner and (found := _MADE.match(text)) and found[2] in imported:
                classes[owner].made.add(found[1])
    return functions


def _variables(text: str) -> Iterator[tuple[str, str]]:
    """(type, name) of each variable of `cdef type a, b = …`; the type of a pointer is empty."""
    first, *others = _split(text.removeprefix("cdef "))
    words = first.partition("=")[0].replace("*", " * ").split()
    kind = words[-2] if len(words) > 1 else "object"
    for part in (words[-1], *others):
        name = re.match(r"[*\s]*(\w+)", part)
        if name:
            is_pointer = kind == "*" or "*" in part.partition("=")[0]
            yield "" if is_pointer or kind in ("public", "readonly") else kind, name[1]


def _parameters(text: str) -> Iterator[tuple[str, str]]:
    """(name, type) of each parameter with a type."""
    inside = text[text.index("(") + 1 : text.rindex(")")]
    for part in _split(inside):
        words = part.partition("=")[0].removesuffix(" not None").replace("*", " * ").split()
        if len(words) == 2 and "*" not in words:
            yield words[1], words[0]


def _split(text: str) -> list[str]:
    """Split at the commas outside brackets."""
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text):
        depth += (char in "([{") - (char in ")]}")
        if char == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    return [*parts, text[start:].strip()]


# Reading .pyi.


class _Stubs:
    """The annotations of attributes, by the .pyi files."""

    def __init__(self, root: Path, layer: Callable[[str], int]) -> None:
        self._root, self._layer = root, layer
        self._trees: dict[Path, ast.Module] = {}

    def allows(self, module: Path, owner: str, attribute: str, name: str) -> bool:
        """Whether `name` may be used on `attribute` of class `owner`."""
        path = module.with_suffix(".pyi")
        annotation = self._annotation(path, owner, attribute) if path.exists() else None
        if annotation is None:
            return False
        kinds = {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)} - {"None"}
        return any(name in members for members in (self._members(path, kind) for kind in kinds) if members is not None)

    def _tree(self, path: Path) -> ast.Module:
        if path not in self._trees:
            self._trees[path] = ast.parse(path.read_text())
        return self._trees[path]

    def _annotation(self, path: Path, owner: str, attribute: str) -> ast.expr | None:
        node = next(
            (each for each in self._tree(path).body if isinstance(each, ast.ClassDef) and each.name == owner), None
        )
        for each in node.body if node is not None else ():
            if isinstance(each, ast.AnnAssign) and ast.unparse(each.target) == attribute:
                return each.annotation
            if isinstance(each, ast.FunctionDef) and each.name == attribute:
                return each.returns
            if isinstance(each, ast.FunctionDef) and each.name in ("__init__", "__new__", "__cinit__"):
                for argument in (*each.args.args, *each.args.kwonlyargs):
                    if argument.arg == attribute:
                        return argument.annotation
        return None

    def _members(self, path: Path, kind: str) -> _Names | None:
        """The names that a class declares; None if the class is untyped or lies in a layer above `path`."""
        for node in ast.walk(self._tree(path)):
            if isinstance(node, ast.ClassDef) and node.name == kind:
                names: set[str] = set()
                for each in node.body:
                    if isinstance(each, ast.FunctionDef):
                        names.add(each.name)
                    elif isinstance(each, ast.AnnAssign):
                        names.add(ast.unparse(each.target))
                bases = [self._members(path, base.id) for base in node.bases if isinstance(base, ast.Name)]
                return _Names(names, [base for base in bases if base is not None])
            if isinstance(node, ast.Import) and any(alias.name == kind for alias in node.names):
                return _Everything()
            if isinstance(node, ast.ImportFrom) and any(alias.name == kind for alias in node.names):
                if node.module is None or node.module.partition(".")[0] != self._root.name:
                    return None if kind in ("Any", "Protocol") else _Everything()
                own = ".".join((self._root.name, *path.relative_to(self._root).with_suffix("").parts))
                file = self._root.joinpath(*node.module.split(".")[1:])
                stub = file.with_suffix(".pyi")
                if stub.exists():
                    return self._members(stub, kind)
                return _Everything() if self._layer(node.module) <= self._layer(own) else None
        return _Everything() if kind in ("bytes", "str", "int", "dict", "list", "set", "tuple") else None


class _Names:
    """The members of a Protocol or class, those of its bases included."""

    def __init__(self, names: set[str], bases: list[_Names]) -> None:
        self._names, self._bases = names, bases

    def __contains__(self, name: object) -> bool:
        return name in self._names or any(name in base for base in self._bases)


class _Everything(_Names):
    """A class of a lower layer: mypy and the tests check what it has."""

    def __init__(self) -> None:
        super().__init__(set(), [])

    def __contains__(self, name: object) -> bool:
        return True
