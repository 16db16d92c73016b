"""Database: a directory of streams in this process. `penstock.open` makes one."""

from __future__ import annotations

import atexit
import errno
import json
import logging
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from penstock.base.clock import SYSTEM, Clock
from penstock.base.disk import Disk
from penstock.db.stream import Stream
from penstock.db.write_session import WriteSession
from penstock.errors import (
    BadStreamName,
    CorruptBlock,
    DiskFull,
    ForkedHandle,
    NotAStore,
    PenstockError,
    ReadOnlyStore,
    StoreClosed,
    StoreError,
    StreamNameInUse,
    StreamNotFound,
    WriteFailed,
)
from penstock.format.identity import (
    Identity,
    create_identity,
    mend_identity,
    read_identity,
    with_config,
    write_identity,
)
from penstock.format.paths import StreamPaths, parse_block_name
from penstock.store.file_store import FileStore
from penstock.store.limits import DURABILITIES
from penstock.store.memory_store import MemoryStore
from penstock.store.open.adoption import remove_tree
from penstock.store.open.jsonl_migration import forget_begun, lifted, migrate_legacy
from penstock.store.open.marker import MARKER, check_marker, is_begun, may_lie_beside, require_marker, write_marker
from penstock.store.open.report import Finding, Report
from penstock.store.open.stream_folders import GLOBAL, list_streams
from penstock.store.open.unfinished_folders import DELETED, is_unfinished, remove_unfinished
from penstock.store.read.snapshot import Snapshot
from penstock.stream.config import DURABILITY, StreamConfig, make_config
from penstock.stream.config_json import encode_config
from penstock.stream.config_rules import check_create, check_overlap, check_update, same
from penstock.stream.stored_config import stored_config
from penstock.stream.stream import StreamRules, limits_of

if TYPE_CHECKING:
    from penstock.db.buckets.kv import KeyValue
    from penstock.db.buckets.kv_entry import KeyValueOptions
    from penstock.db.buckets.object_info import ObjectStoreOptions
    from penstock.db.buckets.objects import ObjectStore

OWN_FILES = ("config.", "messages.jsonl", "HEAD", "CHECKPOINT", "TRUNCATE", "ADOPT", "BATCHES", "DELETES")
DUPLICATE_WINDOW_NS = 120 * 10**9  # the default, unless max_age is shorter
_BAD = set(" \t\r\n\f.*>/\\")
log = logging.getLogger("penstock")


def open_database(
    path: str | os.PathLike[str],
    *,
    durability: str = "disk",
    read_only: bool = False,
    account: str = "$G",
    disk: Disk | None = None,
    clock: Clock | None = None,
) -> Database:
    """Open a directory of streams, and create it if it does not exist.

    durability: with "disk" a publish is acknowledged once it is synced; with "os" once it is written, which survives a
    killed process but perhaps not a power cut; with "lazy" at once. One process writes; others may open the directory
    read-only at the same time.
    """
    return Database(path, durability=durability, read_only=read_only, account=account, disk=disk, clock=clock)


class Database:
    """A directory of streams. Thread-safe; refuses to work after `close` and in a forked child."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: str = "disk",
        read_only: bool = False,
        account: str = "$G",
        disk: Disk | None = None,
        clock: Clock | None = None,
        root: WriteSession | None = None,
    ) -> None:
        """As `open_database`. `root` is the write session of another database of the same directory: both write under
        its lock."""
        if durability not in DURABILITIES:
            raise ValueError(f"durability {durability!r}: one of {', '.join(DURABILITIES)}")
        check_name(account, "account")
        if root is not None and (read_only or root.path != os.path.abspath(os.fspath(path))):
            raise ValueError(f"{path} cannot be opened under the lock of {root.path}: it is for writers there")
        self.path = os.path.abspath(os.fspath(path))
        self.durability = durability
        self.is_read_only = read_only
        self.account = account
        self.disk = disk or Disk()
        self.clock = clock or SYSTEM
        self._lock = threading.RLock()
        self._streams: dict[str, Stream] = {}
        self._closed_configs: dict[str, StreamConfig] = {}  # of closed streams; only this process changes them
        self._is_closed = False
        self._pid = os.getpid()
        self._report = Report()
        _check_root(self.path, self.disk, read_only, self._report)
        self._folder = os.path.join(self.path, account)
        self.on_change: list[Callable[[str], None]] = []  # called with the name of a created, changed or deleted stream
        self.root: WriteSession | None = None
        if not read_only:
            joined = root or WriteSession(self.path, self.disk)
            joined.join(self)
            self.root = joined
            try:
                self._mark()
                self._tidy()
                joined.open_door()
            except BaseException:
                self.close()
                raise
        _open_databases.add(self)
        for finding in self._report.findings:
            log.warning("%s", finding)

    @property
    def findings(self) -> list[Finding]:
        """What opening the store found wrong or put off in the store itself; each stream has its own findings."""
        return list(self._report.findings)

    def _mark(self) -> None:
        """Write the marker file of a store if it is missing, and remove the unfinished one of a killed process."""
        try:
            write_marker(self.path, self.disk)
            for name in filter(is_begun, os.listdir(self.path)):
                self.disk.unlink(os.path.join(self.path, name))
        except OSError as error:
            self._put_off(os.path.join(self.path, MARKER), error)

    def _make_folder(self) -> None:
        if self.disk.mkdir(self._folder):
            self.disk.sync_folder(self.path)

    def _tidy(self) -> None:
        """Create the account's folder, and remove what a killed process left of streams being created or deleted."""
        try:
            self._make_folder()
        except OSError as error:
            if os.path.lexists(self._folder):
                raise NotAStore(self.path, f"{self._folder} is no folder: {error.strerror}; move it away") from error
            self._put_off(self._folder, error)
            return
        for name in os.listdir(self._folder):
            path = os.path.join(self._folder, name)
            try:
                if name.endswith(DELETED):
                    self._clear(path)
                elif is_unfinished(path):
                    remove_unfinished(self.disk, path)
            except OSError as error:
                self._put_off(path, error)

    def _put_off(self, path: str, error: OSError) -> None:
        """Report a write that failed while opening; the next open tries it again."""
        self._report.add("put off", path, f"left for the next open: {error.strerror or error}")

    # Streams.

    def stream(self, name: str, **config: Any) -> Stream:
        """Open a stream, or create it with this configuration (JetStream's names; durations may be "7d" and the like).

        If the configuration differs from an existing stream's, the stream is updated under JetStream's rules.
        """
        with self._lock:
            self._check()
            check_name(name, "stream")
            known = self._streams.get(name)
            if known is None and self._exists(name):
                with _told("open", self._paths(name).root):
                    known = self._open_stream(name)
            if known is None:
                return self._create_stream(name, config)
            if config:
                self._update(known, _merged(known.config, config))
            return known

    def create_stream(self, config: StreamConfig, *, pedantic: bool = False) -> Stream:
        """Create a stream from a whole configuration; an existing stream with the same configuration is returned.

        pedantic: refuse a configuration in which a value would have to be changed.
        """
        with self._lock:
            self._check()
            wanted = check_create(config, pedantic=pedantic)
            if wanted.name not in self._streams and not self._exists(wanted.name):
                return self._create(wanted)
            known = self.get_stream(wanted.name)
            if not same(known.config, wanted):
                raise StreamNameInUse
            return known

    def update_stream(self, config: StreamConfig, *, pedantic: bool = False) -> Stream:
        """Replace the configuration of a stream, under JetStream's rules."""
        with self._lock:
            known = self.get_stream(config.name)
            self._update(known, config, pedantic=pedantic)
            return known

    def get_stream(self, name: str) -> Stream:
        """An existing stream; raises StreamNotFound otherwise."""
        with self._lock:
            self._check()
            check_name(name, "stream")
            if name not in self._streams and not self._exists(name):
                raise StreamNotFound(self._whereabouts(name))
            return self.stream(name)

    def _whereabouts(self, name: str) -> str:
        """The text of StreamNotFound: which streams exist, and which accounts have one of this name."""
        others = [one.account for one in list_streams(self.path) if one.name == name]
        place = self.path if self.account == GLOBAL and not others else f"account {self.account} of {self.path}"
        text = f"stream {name!r} not found in {place}; there are: {', '.join(self.streams()) or 'none'}"
        has = "have" if len(others) > 1 else "has"
        return f"{text}. Account {', '.join(others)} {has} one of that name: open it with account=" if others else text

    def _known(self, name: str) -> Stream | None:
        """A stream that is open here, or None. This neither reads the disk nor waits."""
        return self._streams.get(name)

    def streams(self) -> list[str]:
        """The names of the streams, sorted."""
        with self._lock:
            self._check()
            names = set(self._streams)
            if os.path.isdir(self._folder):
                found = (name for name in os.listdir(self._folder) if name not in self._streams)
                names.update(name for name in found if self._exists(name))
            return sorted(names)

    def accounts(self) -> list[str]:
        """The accounts that have streams in this directory, sorted. Each is opened separately, with `account=`."""
        with self._lock:
            self._check()
            return list(dict.fromkeys(one.account for one in list_streams(self.path)))

    def __iter__(self) -> Iterator[Stream]:
        return (self.stream(name) for name in self.streams())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self.streams()

    def delete_stream(self, name: str) -> None:
        """Remove a stream and everything in it."""
        with self._lock:
            self._check()
            check_name(name, "stream")
            if name not in self._streams and not self._exists(name):
                self.get_stream(name)  # raises StreamNotFound, which lists what exists
            self._refuse_if_read_only()
            stream = self._streams.pop(name, None)
            if stream is not None:  # a closed stream is not opened first: perhaps it cannot be
                stream._let_go()
            self._closed_configs.pop(name, None)
            self._tell(name)
            paths = self._paths(name)
            if os.path.isdir(paths.root):
                # One rename deletes it; after a crash the next open removes what is left.
                rubbish = f"{paths.root}.{os.urandom(4).hex()}{DELETED}"
                with _told("delete", paths.root):
                    self.disk.rename(paths.root, rubbish)
                    self.disk.sync_folder(self._folder)
                    left = self._clear(rubbish)
                if left:
                    raise StoreError(
                        f"{rubbish}: the stream is deleted; files that are not ours remain: {', '.join(left)}"
                    )

    # Buckets: streams in the layout of the NATS clients, which see them under the same names.

    def key_value(self, bucket: str, **options: Unpack[KeyValueOptions]) -> KeyValue:
        """Open a key-value bucket, or create it: history, ttl, description, max_value_size, max_bytes, storage,
        limit_marker_ttl, compression, metadata.

        Options that differ from an existing bucket's change it. The bucket is stream `KV_<bucket>`.
        """
        from penstock.db.buckets.kv import open_key_value

        return open_key_value(self, bucket, options)

    def key_values(self) -> list[str]:
        """The names of the key-value buckets, sorted."""
        from penstock.db.buckets.kv import key_value_names

        return key_value_names(self)

    def delete_key_value(self, bucket: str) -> None:
        """Remove a key-value bucket and everything in it."""
        from penstock.db.buckets.kv import delete_key_value

        delete_key_value(self, bucket)

    def object_store(self, bucket: str, **options: Unpack[ObjectStoreOptions]) -> ObjectStore:
        """Open an object store, or create it: description, ttl, max_bytes, storage, compression, metadata.

        Options that differ from an existing store's change it. The object store is stream `OBJ_<bucket>`.
        """
        from penstock.db.buckets.objects import open_object_store

        return open_object_store(self, bucket, options)

    def object_stores(self) -> list[str]:
        """The names of the object stores, sorted."""
        from penstock.db.buckets.objects import object_store_names

        return object_store_names(self)

    def delete_object_store(self, bucket: str) -> None:
        """Remove an object store and everything in it."""
        from penstock.db.buckets.objects import delete_object_store

        delete_object_store(self, bucket)

    def _clear(self, root: str) -> list[str]:
        """Remove the files of a deleted stream; returns the names of the files that are not Penstock's, which stay."""
        blocks = os.path.join(root, "blocks")
        for folder in ("staging", "consumers"):
            remove_tree(self.disk, os.path.join(root, folder))
        for folder in (blocks, root):
            for entry in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
                if entry.endswith((".blk", ".sum", ".damaged", ".tmp", ".begun")) or entry.startswith(OWN_FILES):
                    self.disk.unlink(os.path.join(folder, entry))
        left = [entry for folder in (blocks, root) if os.path.isdir(folder) for entry in os.listdir(folder)]
        left = [entry for entry in left if entry != "blocks"]
        if not left:
            for folder in (blocks, root):
                if os.path.isdir(folder):
                    self.disk.rmdir(folder)
        return left

    def _paths(self, name: str) -> StreamPaths:
        return StreamPaths(os.path.join(self._folder, name))

    def _exists(self, name: str) -> bool:
        paths = self._paths(name)
        return any(os.path.exists(path) for path in (paths.config, paths.config_copy))

    def _open_stream(self, name: str) -> Stream:
        paths = self._paths(name)
        identity = read_identity(self.disk, paths, lambda copy: stored_config(copy.config, name))
        config = stored_config(identity.config, name)
        if config.compression != "none":
            # An earlier version accepted it but stored uncompressed: show what is really done.
            log.info("stream %s asks for compression %s, which is not there yet: it is stored raw", name,
                     config.compression)  # fmt: skip
            config = msgspec.structs.replace(config, compression="none")
        if self.is_read_only:
            store: Snapshot | FileStore = Snapshot(
                paths.root, identity.stream_id, name=name, limits=limits_of(config), disk=self.disk, clock=self.clock
            )
        else:
            late = self._mend_identity(paths, identity)
            store = self._open_store(paths, identity, config)
            if late is not None:
                store.report.add(
                    "put off", paths.config, f"{late.strerror}: its copies are made equal by the next open"
                )
        return self._add(Stream(self, identity, StreamRules(config, store)))

    def _mend_identity(self, paths: StreamPaths, identity: Identity) -> OSError | None:
        """Repair the damaged copy of a configuration, so that both are valid; returns the error that prevented it."""
        try:
            mend_identity(self.disk, paths, identity)
        except OSError as error:
            return error
        return None

    def _open_store(self, paths: StreamPaths, identity: Identity, config: StreamConfig) -> FileStore:
        assert self.root is not None, "a reader opens no store for writing"
        limits, is_legacy = limits_of(config), os.path.exists(paths.legacy)
        if not is_legacy:
            forget_begun(self.disk, paths.legacy)
        store = FileStore(
            paths.root,
            identity.stream_id,
            name=config.name,
            limits=lifted(limits) if is_legacy else limits,
            durability=config.metadata.get(DURABILITY, self.durability),
            disk=self.disk,
            clock=self.clock,
            committer=self.root.committer,
        )
        if is_legacy:
            try:
                migrate_legacy(store, paths.legacy, limits)
            except BaseException:
                store.abandon()
                raise
        return store

    def _create_stream(self, name: str, fields: dict[str, Any]) -> Stream:
        self._refuse_if_read_only(f"stream {name!r} does not exist, and the store was opened read-only")
        return self._create(check_create(make_config(name, **fields)))

    def _create(self, config: StreamConfig) -> Stream:
        check_name(config.name, "stream")
        self._refuse_if_read_only()
        check_overlap(config, self._other_configs(config.name))
        identity = Identity(os.urandom(16), self.clock.wall_ns(), _plain(config))
        if config.storage == "memory":
            return self._add(
                Stream(self, identity, StreamRules(config, MemoryStore(config.name, limits_of(config), self.clock)))
            )
        paths = self._paths(config.name)
        if os.path.isdir(paths.blocks) and any(map(parse_block_name, os.listdir(paths.blocks))):
            raise CorruptBlock(
                paths.config,
                0,
                "it is missing, and so is its copy, but there are blocks; restore it, or move them away",
            )
        with _told("create", paths.root):
            self._make_folder()
            is_new = self.disk.mkdir(paths.root)
            try:
                self.disk.mkdir(paths.blocks)
                create_identity(self.disk, paths, identity)
                self.disk.sync_folder(self._folder)
                store = self._open_store(paths, identity, config)
                if (
                    store.has_deferred_writes
                ):  # an existing stream may wait for the disk; a new one is created completely or not at all
                    failure = store.write_failure()
                    store.abandon()
                    raise failure
            except (OSError, WriteFailed):
                with suppress(OSError):  # if this fails, the next open does it
                    if is_new:
                        self._clear(paths.root)
                raise
        return self._add(Stream(self, identity, StreamRules(config, store)))

    def _other_configs(self, name: str) -> list[StreamConfig]:
        """The configurations of all streams but one. No stream is opened for this; an unreadable one captures
        nothing."""
        found = (self._config_of(other) for other in self.streams() if other != name)
        return [config for config in found if config is not None]

    def _config_of(self, name: str) -> StreamConfig | None:
        if name in self._streams:
            return self._streams[name].config
        if name not in self._closed_configs:
            try:
                identity = read_identity(self.disk, self._paths(name), lambda copy: stored_config(copy.config, name))
                self._closed_configs[name] = stored_config(identity.config, name)
            except (PenstockError, OSError) as error:
                log.warning("stream %s in %s: its subjects are not known: %s", name, self._folder, error)
                return None
        return self._closed_configs[name]

    def _add(self, stream: Stream) -> Stream:
        self._streams[stream.name] = stream
        self._closed_configs.pop(stream.name, None)
        self._tell(stream.name)
        return stream

    def _update(self, stream: Stream, wanted: StreamConfig, *, pedantic: bool = False) -> None:
        config = check_update(stream.config, wanted, pedantic=pedantic)
        if config == stream.config:
            return
        self._refuse_if_read_only()
        check_overlap(config, self._other_configs(config.name))
        identity = with_config(stream.identity, _plain(config))
        if config.storage == "file":
            with _told("write", self._paths(config.name).config):
                write_identity(self.disk, self._paths(config.name), identity)
        stream._configure(identity, config)
        self._tell(stream.name)

    def _tell(self, name: str) -> None:
        for listener in tuple(self.on_change):
            listener(name)

    # Life.

    def close(self) -> None:
        """Write what is pending, close the streams, and release the directory. Closing twice is harmless."""
        if self.root is not None and self._pid == os.getpid():
            self.root.close_door(self)  # first, and without the lock: a request being served needs the lock
        with self._lock:
            if self._is_closed or self._pid != os.getpid():
                return
            self._is_closed = True
            _open_databases.discard(self)
            errors: list[Exception] = []
            for stream in self._streams.values():
                try:
                    stream._close()
                except StoreError as error:
                    errors.append(error)
            self._streams.clear()  # a stream that is still referenced keeps the database alive, and refuses to work
            if self.root is not None:
                self.root.leave(self)
            if errors:
                raise errors[0]

    def __del__(self) -> None:
        """Close a database that was dropped without `close`, with a warning, as Python does for files."""
        if getattr(self, "root", None) is None or self._is_closed or self._pid != os.getpid():
            return
        text = f"unclosed {self!r}: close it, or use `with penstock.open(...)`"
        warnings.warn(text, ResourceWarning, stacklevel=2, source=self)
        self.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check(self) -> None:
        if self._pid != os.getpid():
            raise ForkedHandle(self.path)
        if self._is_closed:
            raise StoreClosed(f"{self.path} is closed")

    def _refuse_if_read_only(self, why: str = "it was opened read-only") -> None:
        if self.is_read_only:
            raise ReadOnlyStore(self.path, why)

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "read-only" if self.is_read_only else self.durability
        return f"<penstock.Database {self.path!r} {state}>"


@contextmanager
def _told(op: str, path: str) -> Iterator[None]:
    """Raise Penstock's error, with the path, for a disk call in this block that the operating system refuses."""
    try:
        yield
    except OSError as error:
        code = error.errno or errno.EIO
        kind = DiskFull if code in (errno.ENOSPC, errno.EDQUOT) else WriteFailed
        raise kind(op, error.filename or path, code) from error


_open_databases: weakref.WeakSet[Database] = weakref.WeakSet()


def _after_fork() -> None:
    """In a forked child, handles only refuse to work: locks that another thread held would hang the child, and the
    commit threads exist only in the parent."""
    for database in list(_open_databases):
        database._lock = threading.RLock()
        if database.root is not None:
            database.root.forget()
        for stream in database._streams.values():
            stream.after_fork()


os.register_at_fork(after_in_child=_after_fork)


@atexit.register
def close_all() -> None:
    """At the end of the process, close the databases that the program left open."""
    for database in list(_open_databases):
        database.close()


def check_name(name: str, what: str) -> None:
    """Check an asset name by JetStream's rules; it must also be safe as the name of a directory."""
    if (
        not isinstance(name, str)
        or not name
        or len(name.encode("utf-8", "surrogatepass")) > 255
        or any(c in _BAD or ord(c) < 32 or ord(c) == 127 or 0xD800 <= ord(c) < 0xE000 for c in name)
    ):
        raise BadStreamName(f"{what} name {name!r}: 1 to 255 bytes without blanks, control characters and . * > / \\")


def _check_root(root: str, disk: Disk, read_only: bool, report: Report) -> None:
    """Check that `root` is a store, or a place where one can be created."""
    if read_only:
        require_marker(root, disk, report)
        return
    if check_marker(root, disk, report):
        return
    if os.path.isdir(root) and any(not may_lie_beside(name) for name in os.listdir(root)):
        raise NotAStore(root, f"the directory holds other files and no {MARKER} file; choose an empty one")
    try:
        _make_folder(root, disk)
    except PermissionError as error:
        raise ReadOnlyStore(root, "no permission to make it") from error
    except OSError as error:
        raise NotAStore(root, f"it cannot be made: {error.strerror}") from error


def _make_folder(path: str, disk: Disk) -> None:
    """Create a folder and its parents, and sync them, so that a power cut cannot remove the folder with its
    contents."""
    if not os.path.isdir(path):
        above = os.path.dirname(path)
        _make_folder(above, disk)
        disk.mkdir(path)
        disk.sync_folder(above)


def _merged(config: StreamConfig, fields: dict[str, Any]) -> StreamConfig:
    """A stream's configuration with some fields changed."""
    fresh = make_config(config.name, **fields)
    changed = {field: getattr(fresh, field) for field in fields}
    if "max_age" in fields and "duplicate_window" not in fields:
        changed["duplicate_window"] = 0  # derived from max_age unless it was set
        if config.duplicate_window not in (DUPLICATE_WINDOW_NS, config.max_age):
            changed["duplicate_window"] = config.duplicate_window
    return msgspec.structs.replace(config, **changed)


def _plain(config: StreamConfig) -> dict[str, Any]:
    found = json.loads(encode_config(config))
    assert isinstance(found, dict)
    return found
