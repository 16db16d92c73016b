"""penstock migrate: an old `messages.jsonl` becomes a stream. The source is left as it is."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, replace

from penstock.base.subject import is_valid_subject
from penstock.check.open_store import OpenStore
from penstock.cli.output import OK, REFUSED, Advance, complain, console, count, print_json, progress
from penstock.db.database import Database, check_name
from penstock.errors import UsageError
from penstock.format.paths import StreamPaths
from penstock.store.file_store import FileStore
from penstock.store.open.jsonl_migration import Migration, migrate_legacy, read_lines
from penstock.store.open.stream_folders import place_of
from penstock.stream.derived_subjects import derived_filters

LEGACY = "messages.jsonl"


@dataclass(frozen=True, slots=True)
class Source:
    stream: str
    path: str


def migrate(root: str, source: str, name: str | None, account: str | None, subjects: list[str], as_json: bool) -> int:
    """Migrate a file, a folder with one, or a folder of such folders; 1 when some lines were set aside."""
    within, _, own = (name or "").rpartition("/")  # the account, if given
    found = [replace(one, stream=f"{within}/{one.stream}" if within else one.stream)
             for one in find_sources(source, own or None)]  # fmt: skip
    done: list[tuple[Source, Migration]] = []
    total = sum(os.path.getsize(one.path) for one in found)
    with (
        OpenStore(root, account, read_only=False, create=True) as store,
        progress("migrating", total) as advance,
    ):
        for one in found:
            place, stream = place_of(store.path, one.stream, account)
            done.append((one, migrate_one(store.database(place), stream, one, subjects, advance)))
    if as_json:
        rows = [
            {"stream": one.stream, "source": one.path, "messages": got.messages, "gaps": got.skipped,
             "bad_lines": got.bad_lines, "set_aside": got.set_aside or None}
            for one, got in done
        ]  # fmt: skip
        print_json({"store": store.path, "streams": rows})
    else:
        for one, got in done:
            gaps = f", {count(got.skipped, 'sequence')} skipped that it does not have" if got.skipped else ""
            console().print(
                f"{one.stream}: {count(got.messages, 'message')} from {one.path}{gaps}", soft_wrap=True, markup=False
            )
    for one, got in done:
        if got.bad_lines:
            complain(f"{one.path}: {count(got.bad_lines, 'line')} could not be taken; they are in {got.set_aside}")
    return REFUSED if any(got.bad_lines for _, got in done) else OK


def find_sources(source: str, name: str | None) -> list[Source]:
    """The files to migrate, with the names of their streams."""
    if os.path.isfile(source):
        return [Source(name or os.path.basename(os.path.dirname(os.path.abspath(source))), source)]
    if not os.path.isdir(source):
        raise UsageError(f"{source}: there is no such file or folder")
    own = os.path.join(source, LEGACY)
    if os.path.isfile(own):
        return [Source(name or os.path.basename(os.path.abspath(source)), own)]
    below = [(folder, os.path.join(source, folder, LEGACY)) for folder in sorted(os.listdir(source))]
    found = [Source(folder, path) for folder, path in below if os.path.isfile(path) and name in (None, folder)]
    if not found:
        wanted = f"{name}/{LEGACY}" if name else f"{LEGACY}, and no folder with one"
        raise UsageError(f"{source}: there is no {wanted} in it")
    return found


def migrate_one(db: Database, name: str, source: Source, subjects: list[str], advance: Advance) -> Migration:
    check_name(name, "stream")
    paths = StreamPaths(os.path.join(db.path, db.account, name))
    if name in db:
        stream = db.get_stream(name)
        if stream.state().last_seq:
            raise UsageError(f"stream {source.stream} in {db.path} holds messages already: name another with --stream")
    else:
        filters = subjects or derived_filters(_subjects(source.path))
        if not filters:
            raise UsageError(f"{source.path}: no line of it is a message, so there is nothing to make a stream of")
        stream = db.stream(name, subjects=filters)
    store = stream.store
    assert isinstance(store, FileStore)
    if os.path.exists(source.path) and not _is_same(source.path, paths.legacy):
        _link_or_copy(source.path, paths.legacy)
    # After a crash from here on, the next open finishes the migration: the file is in the stream's own folder.
    done = migrate_legacy(store, paths.legacy)
    advance(os.path.getsize(source.path) if os.path.exists(source.path) else 0)
    return done


def _subjects(path: str) -> set[str]:
    return {line.subject for line in read_lines(path, Migration(), []) if is_valid_subject(line.subject)}


def _link_or_copy(path: str, target: str) -> None:
    """Add the file to the stream's folder: as a hard link if possible, else as a copy."""
    temporary = f"{target}.tmp"
    if os.path.exists(temporary):
        os.unlink(temporary)
    try:
        os.link(path, temporary)
    except OSError:
        shutil.copyfile(path, temporary)
    os.replace(temporary, target)


def _is_same(one: str, other: str) -> bool:
    return os.path.exists(other) and os.path.samefile(one, other)
