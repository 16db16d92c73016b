"""The states that a crash could leave on disk, derived from the log of a CrashDisk.

A crash is a cut: the calls before it were made, the others were not. These changes before the cut are durable:

  - changes of a file's data (write, truncation) made before the start of a sync of that file that ended before the cut;
  - changes of a directory's names (create, rename, unlink, mkdir, rmdir) made before the start of such a sync of that
    directory. A rename from one directory to another needs both syncs. Syncing a file does not sync its name.

All other changes are unsynced: each may or may not have reached the disk. A failed sync of a file guarantees nothing,
and changes that were unsynced then stay so for good, even after a later sync that succeeds: the kernel no longer marks
those pages dirty. Only writing the bytes again helps.

The mode decides which of the unsynced changes an image has:

  kill         all: the process was killed, the machine kept running
  none         none
  prefix       those up to some moment, none after it
  reordered    a random choice of writes and truncations; a missing write leaves zeros below a later one
  torn         the same, and only some 512-byte sectors of a write may be present, or be zeros
  directories  all data; names as below

In `reordered`, `torn` and `directories`, changes of a directory's names are lost from some change onwards: a later
change is present only if the earlier ones are.
"""

from __future__ import annotations

import os
import random
import shutil
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, get_args

from penstock.testing.crash_disk import CrashDisk, Op

Mode = Literal["kill", "none", "prefix", "reordered", "torn", "directories"]
MODES: tuple[Mode, ...] = get_args(Mode)
SECTOR_SIZE = 512
NEVER = 1 << 62


@dataclass(frozen=True, slots=True)
class CrashImage:
    """One state that a crash could leave, in a directory of its own; the caller removes it."""

    path: Path
    cut: int  # how many of the log's changes had been made
    mode: Mode
    seed: int  # together with cut and mode it reproduces the image: `crash_image`
    marks: list[Any]  # all values marked before the cut
    description: str

    @property
    def mark(self) -> Any:
        """The last value marked before the cut; None if there is none."""
        return self.marks[-1] if self.marks else None

    @property
    def is_power_cut(self) -> bool:
        """Whether unsynced changes may be missing."""
        return self.mode != "kill"

    def remove(self) -> None:
        shutil.rmtree(self.path)


def crash_images(
    disk: CrashDisk,
    out_dir: str | os.PathLike[str],
    *,
    count: int,
    seed: int,
    modes: Sequence[Mode] = MODES,
    start: int = 0,
) -> Iterator[CrashImage]:
    """`count` images in the order of their cuts, from `start` on, each in a directory under `out_dir`.

    With fewer images than cuts, the cuts are chosen at random; with more, each cut is used once, and cuts with unsynced
    changes are used again.
    """
    history = _History(disk)
    rng = random.Random(seed)
    cuts = _draw_cuts(history, start, count, rng)
    deck: list[Mode] = []
    for number, cut in enumerate(cuts):
        deck = deck or rng.sample(list(modes), len(modes))
        path = Path(out_dir, f"{number:06}")
        yield _build(history, path, cut, deck.pop(), rng.getrandbits(32))


def crash_image(
    disk: CrashDisk, path: str | os.PathLike[str], *, cut: int, mode: Mode = "kill", seed: int = 0
) -> CrashImage:
    """The image for `cut`, `mode` and `seed`, in the new directory `path`."""
    return _build(_History(disk), Path(path), cut, mode, seed)


def _draw_cuts(history: _History, start: int, count: int, rng: random.Random) -> list[int]:
    every = list(range(start, len(history.ops) + 1))
    cuts = every if count > len(every) else rng.sample(every, count)
    loose = [cut for cut in every if history.loose_counts[cut]] or every
    while len(cuts) < count:
        cuts = cuts + rng.sample(loose, min(len(loose), count - len(cuts)))
    return sorted(cuts)


# ------------------------------------------------------------------------------- what happened, and when it was durable


@dataclass(eq=False, slots=True)
class _Node:
    """A file or directory, independent of its name: `content` and `names` are the durable state folded so far, `live`
    is the state at this point of the log."""

    is_dir: bool
    content: bytearray = field(default_factory=bytearray)
    changes: list[_Change] = field(default_factory=list)
    folded_count: int = 0
    names: dict[str, _Node] = field(default_factory=dict)
    live: dict[str, _Node] = field(default_factory=dict)
    waiting: list[_Change | _NameChange] = field(default_factory=list)  # not covered by a sync yet


@dataclass(eq=False, slots=True)
class _Change:
    """A write or truncation of one file: `data` at `offset`, or with no data the new size."""

    index: int
    offset: int
    data: bytes | None
    durable: int = NEVER  # the first cut at which it is durable
    syncs_missing: int = 1

    def apply(self, content: bytearray) -> None:
        _resize(content, self.offset, may_shrink=self.data is None)
        if self.data is not None:
            content[self.offset : self.offset + len(self.data)] = self.data


@dataclass(eq=False, slots=True)
class _NameChange:
    """`node` moves from `old` to `new`, each a directory and a name; either may be missing."""

    index: int
    node: _Node
    old: tuple[_Node, str] | None
    new: tuple[_Node, str] | None
    durable: int = NEVER
    syncs_missing: int = 0

    @property
    def folders(self) -> set[_Node]:
        return {place[0] for place in (self.old, self.new) if place is not None}


class _History:
    """The log, resolved to files and directories.

    Always true: changes folded into `content` and `names` are durable at every cut that is still to come, so callers
    request cuts in rising order.
    """

    def __init__(self, disk: CrashDisk) -> None:
        self.ops = disk.ops
        self.marks = disk.marks
        self.mark_positions = [position for position, _ in self.marks]
        self.name_changes: list[_NameChange] = []
        self.names_folded_count = 0
        self.top = _Node(is_dir=True)
        self.root = disk.root
        self._files: dict[int, _Node] = {}
        for path, content in sorted(disk.base.items()):
            node = _Node(content is None, bytearray(content or b""))
            folder, name = self._place(os.path.join(disk.root, path))
            folder.names[name] = folder.live[name] = node
            if content is not None:
                self._files[disk.base_files[path]] = node
        for op in self.ops:
            if op.kind == "sync_file":
                self._read_sync(op, self._file(op))
            elif op.kind == "sync_dir":
                if not self._shorten(str(op.path)).startswith(".." + os.sep):  # everything above the root is durable
                    self._read_sync(op, self._folder(str(op.path)))
            elif op.kind in ("pwrite", "store_mapped", "truncate_file"):
                self._read_change(op, self._file(op))
            else:
                self._read_name_change(op)
        self.loose_counts = self._count_loose()

    def _place(self, path: str) -> tuple[_Node, str]:
        """The directory that holds `path` at this point of the log, and its name there."""
        folder, name = os.path.split(os.path.abspath(path))
        return self._folder(folder), name

    def _shorten(self, path: str) -> str:
        """`path` as seen from the root, with a separator at its end."""
        return os.path.join(os.path.relpath(path, self.root), "")

    def _folder(self, path: str) -> _Node:
        node = self.top
        for part in self._shorten(path).removeprefix("./").split(os.sep)[:-1]:
            if part not in node.live:
                raise ValueError(f"{path}: outside of {self.root}, or made behind the disk's back")
            node = node.live[part]
        return node

    def _file(self, op: Op) -> _Node:
        if op.file not in self._files:
            raise ValueError(f"call {op.index}, {op.kind}: the file was opened or made behind the disk's back")
        return self._files[op.file]

    def _read_sync(self, op: Op, node: _Node) -> None:
        if op.error:
            if not node.is_dir:
                node.waiting.clear()  # unsynced for good
            return
        for change in node.waiting:
            if change.index < op.start:
                change.syncs_missing -= 1
                if not change.syncs_missing:
                    change.durable = op.index + 1
        node.waiting = [change for change in node.waiting if change.index >= op.start]

    def _read_change(self, op: Op, node: _Node) -> None:
        is_size = op.kind == "truncate_file"
        change = _Change(op.index, op.size if is_size else op.offset, None if is_size else op.data)
        node.changes.append(change)
        node.waiting.append(change)

    def _read_name_change(self, op: Op) -> None:
        place = self._place(str(op.path))
        folder, name = place
        if op.kind in ("create_file", "make_dir"):
            node = folder.live[name] = _Node(is_dir=op.kind == "make_dir")
            change = _NameChange(op.index, node, None, place)
            if not node.is_dir:
                self._files[op.file] = node
        else:
            if name not in folder.live:
                raise ValueError(f"call {op.index}, {op.kind}: {op.path} was made behind the disk's back")
            node = folder.live.pop(name)
            new = None
            if op.kind == "rename_file":
                new = self._place(str(op.new_path))
                new[0].live[new[1]] = node
            change = _NameChange(op.index, node, place, new)
        self.name_changes.append(change)
        change.syncs_missing = len(change.folders)
        for folder in change.folders:
            folder.waiting.append(change)

    def _count_loose(self) -> list[int]:
        """How many changes are unsynced at each cut."""
        steps = [0] * (len(self.ops) + 2)
        changes: list[_Change | _NameChange] = [*self.name_changes]
        for node in self._files.values():
            changes += node.changes
        for change in changes:
            steps[change.index + 1] += 1
            steps[min(change.durable, len(self.ops) + 1)] -= 1
        return list(accumulate(steps))[:-1]


# ------------------------------------------------------------------------------------------------------------ one image


@dataclass(slots=True)
class _Chance:
    """Decides which unsynced changes one image has, and counts them."""

    mode: Mode
    rng: random.Random
    moment: int  # for mode prefix
    kept_count: int = 0
    lost_count: int = 0
    torn_count: int = 0

    def keeps(self, change: _Change | _NameChange, odds: float) -> bool:
        if self.mode == "prefix":
            is_kept = change.index < self.moment
        else:
            is_kept = self.mode == "kill" or (self.mode != "none" and self.rng.random() < odds)
        self.kept_count += is_kept
        self.lost_count += not is_kept
        return is_kept


def _build(history: _History, path: Path, cut: int, mode: Mode, seed: int) -> CrashImage:
    if not 0 <= cut <= len(history.ops):
        raise ValueError(f"cut {cut} is not within the {len(history.ops)} calls of the log")
    rng = random.Random(seed)
    # Choose the moment so that all distances from the cut, in powers of two, are equally likely.
    chance = _Chance(mode, rng, cut - int((cut + 1) ** rng.random()) + rng.randint(0, 1))
    _write_dir(history.top, _names_at(history, cut, chance), os.fspath(path), cut, chance)
    marks = [value for _, value in history.marks[: bisect_right(history.mark_positions, cut)]]
    after = _describe(history.ops[cut - 1], history.root) if cut else "nothing"
    description = (
        f"{mode}, cut {cut} of {len(history.ops)} after {after}, seed {seed}: of the loose changes "
        f"{chance.kept_count} kept, {chance.lost_count} lost, {chance.torn_count} torn"
    )
    return CrashImage(path, cut, mode, seed, marks, description)


def _names_at(history: _History, cut: int, chance: _Chance) -> dict[_Node, dict[str, _Node]]:
    """The names of each directory in which they differ from the folded ones."""
    changes = history.name_changes
    while history.names_folded_count < len(changes) and changes[history.names_folded_count].durable <= cut:
        change = changes[history.names_folded_count]
        _move(change, {folder: folder.names for folder in change.folders})
        history.names_folded_count += 1
    names: dict[_Node, dict[str, _Node]] = {}
    stopped: set[_Node] = set()  # directories that have lost a change
    odds = 1.0 if chance.rng.random() < 0.25 else chance.rng.random()
    for change in changes[history.names_folded_count :]:
        if change.index >= cut:
            break
        folders = change.folders
        if change.durable > cut:
            if not stopped.isdisjoint(folders):
                chance.lost_count += 1
                stopped |= folders
                continue
            if not chance.keeps(change, odds):
                stopped |= folders
                continue
        for folder in folders:
            if folder not in names:
                names[folder] = dict(folder.names)
        _move(change, names)
    return names


def _move(change: _NameChange, names: dict[_Node, dict[str, _Node]]) -> None:
    if change.old is not None:
        folder, name = change.old
        if names[folder].get(name) is change.node:
            del names[folder][name]
    if change.new is not None:
        folder, name = change.new
        names[folder][name] = change.node


def _write_dir(node: _Node, names: dict[_Node, dict[str, _Node]], path: str, cut: int, chance: _Chance) -> None:
    os.mkdir(path, 0o700)
    for name, child in names.get(node, node.names).items():
        child_path = f"{path}/{name}"
        if child.is_dir:
            _write_dir(child, names, child_path, cut, chance)
        else:
            fd = os.open(child_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                os.write(fd, _content_at(child, cut, chance))
            finally:
                os.close(fd)


def _content_at(node: _Node, cut: int, chance: _Chance) -> bytearray:
    """The file's bytes in this image."""
    changes = node.changes
    while node.folded_count < len(changes) and changes[node.folded_count].durable <= cut:
        changes[node.folded_count].apply(node.content)
        node.folded_count += 1
    if node.folded_count == len(changes) or changes[node.folded_count].index >= cut:
        return node.content
    content = bytearray(node.content)
    is_exact = chance.mode not in ("reordered", "torn")
    odds = 1.0 if is_exact else chance.rng.random()
    for change in changes[node.folded_count :]:
        if change.index >= cut:
            break
        if change.durable <= cut or chance.keeps(change, odds):
            if chance.mode == "torn" and change.durable > cut and change.data is not None and chance.rng.random() < 0.5:
                _apply_torn(change, content, chance)
            else:
                change.apply(content)
        elif chance.mode == "torn" and change.data is not None and chance.rng.random() < 0.25:
            _resize(content, change.offset + len(change.data))  # the new size was stored, the data was not
    return content


def _apply_torn(change: _Change, content: bytearray, chance: _Chance) -> None:
    """Write some of the change's sectors: at least one, and not all if there are several."""
    assert change.data is not None
    start, stop = change.offset, change.offset + len(change.data)
    sectors = range(start // SECTOR_SIZE, (stop + SECTOR_SIZE - 1) // SECTOR_SIZE)
    if len(sectors) < 2:
        change.apply(content)
        return
    chance.torn_count += 1
    count = chance.rng.randint(1, len(sectors) - 1)
    kept: Collection[int] = (sectors[:count], sectors[-count:], chance.rng.sample(sectors, count))[
        chance.rng.randrange(3)
    ]
    for sector in sorted(kept):
        a, b = max(start, sector * SECTOR_SIZE), min(stop, (sector + 1) * SECTOR_SIZE)
        _resize(content, a)
        content[a:b] = change.data[a - start : b - start]
    if chance.rng.random() < 0.25:
        _resize(content, stop)


def _resize(content: bytearray, size: int, *, may_shrink: bool = False) -> None:
    """Extend with zeros to `size`; truncate a longer content only if it may shrink."""
    if len(content) < size:
        content.extend(bytes(size - len(content)))
    elif may_shrink:
        del content[size:]


def _describe(op: Op, root: str) -> str:
    def shown(path: str | None) -> str:
        return "?" if path is None else os.path.relpath(path, root)

    text = f"{op.kind} {shown(op.path)}"
    if op.new_path is not None:
        text += f" to {shown(op.new_path)}"
    if op.kind in ("pwrite", "store_mapped"):
        text += f" [{op.offset}, {op.offset + op.size})"
    if op.kind == "truncate_file":
        text += f" to {op.size}"
    return text + (f" ({os.strerror(op.error)})" if op.error else "")
