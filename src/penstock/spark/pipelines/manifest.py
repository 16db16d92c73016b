"""Manifest: what a lake holds, one numbered file per export. Design and layout: docs/lake.md.

Only this module touches the lake's own files, `LAKE/_lake`; it depends on neither Spark nor Parquet.
"""

from __future__ import annotations

import base64
import fcntl
import logging
import os
import re
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from penstock.base.seq_set import SeqSet
from penstock.spark.errors import PenstockSparkError
from penstock.store.deletes.deletes import Position

FORMAT = 1
FOLDER = "_lake"  # Parquet readers skip names that begin with an underscore
STATE_EVERY = 50  # exports between two states; a state saves readers all earlier manifests
_NUMBER = re.compile(r"(\d{8})\.(json|begun|state)")
T = TypeVar("T")
log = logging.getLogger("penstock.spark")


class LakeError(PenstockSparkError):
    """A lake that cannot be used as requested: the text says which lake, why and what to do."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The permanent settings of a lake, fixed by its first export."""

    partition_by: tuple[str, ...] = ("stream", "day")
    headers: str = "map"
    compression: str = "zstd"
    format: int = FORMAT


@dataclass(frozen=True, slots=True)
class LakeFile:
    """One Parquet file; `path` is relative to the lake. Rows are in sequence order."""

    path: str
    stream: str
    rows: int
    bytes: int
    first_seq: int
    last_seq: int
    min_ts_ns: int
    max_ts_ns: int


@dataclass(frozen=True, slots=True)
class StreamExport:
    """The result of one export for one stream: messages `first` to `last` are in the lake now (none: first > last)."""

    stream: str
    stream_id: str
    epoch: int
    first: int
    last: int
    rows: int
    position: Position | None
    """The position up to which delete records were read."""
    gone: str
    """Packed: the sequences up to `last` that the store no longer holds, or never held."""
    deletes: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """Reason to inclusive ranges of exported rows that are hidden from now on."""
    unexplained: list[tuple[int, int]] = field(default_factory=list)
    """Rows that the store lost without a record that says why; they are not hidden."""
    is_restarted: bool = False
    """A new stream with the old name: the lake's earlier rows of that name no longer count."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """One export."""

    export: int
    run: str
    written: str
    store: str
    streams: list[StreamExport]
    files: list[LakeFile]
    format: int = FORMAT


@dataclass(slots=True)
class StreamInLake:
    """The state of a stream after all exports."""

    stream_id: str
    epoch: int
    last: int
    position: Position | None
    gone: str
    hidden: str
    rows: int = 0
    files: list[LakeFile] = field(default_factory=list)


@dataclass(slots=True)
class LakeState:
    """The state after all exports up to a number."""

    export: int = 0
    streams: dict[str, StreamInLake] = field(default_factory=dict)
    format: int = FORMAT

    def add(self, *manifests: Manifest) -> None:
        """Apply these exports."""
        hidden: dict[str, SeqSet] = {}
        for manifest in manifests:
            self.export = manifest.export
            for one in manifest.streams:
                known = self.streams.get(one.stream)
                if known is None or one.is_restarted:
                    known = self.streams[one.stream] = StreamInLake(one.stream_id, one.epoch, 0, None, "", "")
                    hidden.pop(one.stream, None)
                known.epoch, known.last, known.position, known.gone = one.epoch, one.last, one.position, one.gone
                known.rows += one.rows
                if one.deletes and one.stream not in hidden:
                    hidden[one.stream] = unpack(known.hidden)
                for ranges in one.deletes.values():
                    for first, last in ranges:
                        hidden[one.stream].add_range(first, last)
            for file in manifest.files:
                self.streams[file.stream].files.append(file)
        for name, seqs in hidden.items():
            self.streams[name].hidden = pack(seqs)


def pack(seqs: SeqSet) -> str:
    """A set of sequences as text."""
    return base64.b64encode(zlib.compress(seqs.encode())).decode() if seqs else ""


def unpack(text: str) -> SeqSet:
    return SeqSet.decode(zlib.decompress(base64.b64decode(text))) if text else SeqSet()


class Lake:
    """A directory of Parquet files, and the manifests that say which of them are valid.

    Always true: every file that manifest N names is complete and stays; files that no manifest names are ignored.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        text = os.fspath(path)
        if "://" in text and not text.startswith("file://"):
            raise LakeError(f"{text}: a lake lies in a file system that can rename, such as a mounted directory")
        self.path = os.path.abspath(text.removeprefix("file://"))
        self.folder = os.path.join(self.path, FOLDER)
        self._manifests = os.path.join(self.folder, "manifest")
        self._settings = os.path.join(self.folder, "lake.json")

    @property
    def exists(self) -> bool:
        return os.path.exists(self._settings)

    def settings(self) -> Settings:
        """The lake's settings."""
        if not self.exists:
            raise LakeError(f"{self.path} is no lake: `penstock pipeline lake STORE {self.path}` makes one")
        found = _decode(Settings, self._settings)
        if found.format > FORMAT:
            raise LakeError(f"{self._settings}: format {found.format} is newer than this version of Penstock reads")
        return found

    def create(self, settings: Settings) -> Settings:
        """Create the lake, or check that the existing one has these settings."""
        if self.exists:
            found = self.settings()
            if found != settings:
                raise LakeError(
                    f"{self.path} was made with {_spoken(found)}, not {_spoken(settings)}: "
                    "leave these settings out, or export to another directory"
                )
            return found
        if os.path.isdir(self.path) and any(name != FOLDER for name in os.listdir(self.path)):
            raise LakeError(f"{self.path} is not empty and no lake: export to a directory of its own")
        os.makedirs(self._manifests, exist_ok=True)
        write_file(self._settings, msgspec.json.encode(settings))
        return settings

    # One exporter at a time.

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the lake for one export; LakeError says who holds it."""
        os.makedirs(self._manifests, exist_ok=True)
        fd = os.open(os.path.join(self.folder, "LOCK"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.pread(fd, 100, 0).decode("ascii", "replace").strip() or "unknown"
                raise LakeError(f"{self.path}: another export is at work ({holder}); wait for it, or stop it") from None
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"pid {os.getpid()} on host {os.uname().nodename}\n".encode(), 0)
            yield
        finally:
            os.close(fd)

    # Reading.

    def state(self) -> LakeState:
        """The current state of the lake."""
        numbers: dict[str, list[int]] = {"json": [], "begun": [], "state": []}
        for name in os.listdir(self._manifests) if os.path.isdir(self._manifests) else ():
            found = _NUMBER.fullmatch(name)
            if found:
                numbers[found[2]].append(int(found[1]))
        state = self._latest_state(numbers["state"])
        begin = state.export
        new = sorted(number for number in numbers["json"] if number > begin)
        for expected, number in enumerate(new, start=begin + 1):
            if number != expected:
                raise LakeError(f"{self._path(expected, 'json')} is missing, and {number:08}.json is there")
        state.add(*map(self.manifest, new))
        return state

    def _latest_state(self, numbers: list[int]) -> LakeState:
        for number in sorted(numbers, reverse=True):
            try:
                return _decode(LakeState, self._path(number, "state"))
            except LakeError as error:
                log.warning("%s; the manifests are read instead", error)
        return LakeState()

    def manifest(self, number: int) -> Manifest:
        return _decode(Manifest, self._path(number, "json"))

    # Writing, under the lock.

    def clean(self) -> None:
        """Remove the files of an unfinished export."""
        for name in sorted(os.listdir(self._manifests)):
            found = _NUMBER.fullmatch(name)
            path = os.path.join(self._manifests, name)
            if name.endswith(".tmp"):
                os.unlink(path)
            elif found and found[2] == "begun":
                begun, number = _decode(Manifest, path), int(found[1])
                is_kept = os.path.exists(self._path(number, "json")) and self.manifest(number).run == begun.run
                for file in () if is_kept else begun.files:
                    _remove(os.path.join(self.path, file.path))
                os.unlink(path)
        shutil.rmtree(os.path.join(self.folder, "staging"), ignore_errors=True)

    def staging(self, run: str) -> str:
        """The staging folder for the tasks of a run; paths below it are those in the lake."""
        folder = os.path.join(self.folder, "staging", run)
        os.makedirs(folder, exist_ok=True)
        return folder

    def discard(self, run: str) -> None:
        """Discard a failed run; the next `clean` removes files that its last tasks still write."""
        shutil.rmtree(os.path.join(self.folder, "staging", run), ignore_errors=True)

    def commit(self, manifest: Manifest) -> None:
        """Move the run's files into place and add the manifest, which is the commit point of the export."""
        staging = self.staging(manifest.run)
        begun, final = self._path(manifest.export, "begun"), self._path(manifest.export, "json")
        write_file(begun, msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")
        folders = set()
        for file in manifest.files:
            target = os.path.join(self.path, file.path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.rename(os.path.join(staging, file.path), target)
            folders.add(os.path.dirname(target))
        for folder in folders | {os.path.dirname(folder) for folder in folders}:
            _sync_folder(folder)
        try:
            os.link(begun, final)  # fails if another exporter that bypassed the lock was first
        except FileExistsError:
            raise LakeError(f"{final} was written by another export meanwhile: run this one again") from None
        _sync_folder(self._manifests)
        os.unlink(begun)
        self.discard(manifest.run)

    def write_state(self, state: LakeState) -> None:
        """Write the state after all exports so far, as readers' starting point; the manifests stay authoritative."""
        write_file(self._path(state.export, "state"), msgspec.json.encode(state))

    def _path(self, number: int, kind: str) -> str:
        return os.path.join(self._manifests, f"{number:08}.{kind}")


def write_file(path: str, data: bytes) -> None:
    """Whole or not at all, and on disk."""
    with open(f"{path}.tmp", "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.rename(f"{path}.tmp", path)
    _sync_folder(os.path.dirname(path))


def _sync_folder(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


def _decode(kind: type[T], path: str) -> T:
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=kind)
    except msgspec.MsgspecError as error:
        raise LakeError(f"{path}: {error}; restore it from a backup, or export to another directory") from None


def _spoken(settings: Settings) -> str:
    shown: dict[str, Any] = msgspec.to_builtins(settings)
    return ", ".join(f"{name}={value if isinstance(value, str) else list(value)}" for name, value in shown.items()
                     if name != "format")  # fmt: skip
