"""The streams of a store by account: where each one lies, and what it is called. Layout: docs/format.md.

A stream of account `$G` is called by its name alone, one of another account `ACCOUNT/STREAM`: no name holds a slash.
Where a single account is asked for, names are within it. Whoever names a stream may always write both parts; a bare
name is looked for in all accounts, and must not be in several.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from penstock.base.disk import Disk
from penstock.errors import AccountNotFound, AmbiguousStream, BadStreamName, StreamNotFound
from penstock.format.paths import StreamPaths
from penstock.store.open.marker import require_marker

GLOBAL = "$G"


@dataclass(frozen=True, slots=True)
class StreamFolder:
    """One stream of a store."""

    account: str
    name: str
    root: str
    """Its folder: STORE/account/name."""
    label: str
    """What it is called where its messages are told apart by stream: in a table, in an export."""

    @property
    def full_name(self) -> str:
        return f"{self.account}/{self.name}"


def list_streams(root: str, account: str | None = None, *, with_broken: bool = False) -> list[StreamFolder]:
    """The streams of all accounts of a store, or of one, sorted; AccountNotFound names those that there are.

    with_broken: also folders that have blocks, but no configuration any more.
    """
    return [one for one in list_folders(root, account) if is_stream(one.root, with_broken=with_broken)]


def list_folders(root: str, account: str | None = None) -> Iterator[StreamFolder]:
    """All that may be streams, without a look into it. A name with a dot is what is left of a deleted one."""
    there = _account_folders(root)
    if account is not None and account not in there:
        known = dict.fromkeys(one.account for one in list_streams(root, with_broken=True))
        raise AccountNotFound(
            f"account {account!r} not found in {root}; accounts with streams: {', '.join(known) or 'none'}"
        )
    for one in there if account is None else [account]:
        folder = os.path.join(root, one)
        for name in sorted(os.listdir(folder)):
            if "." not in name:
                label = name if account is not None or one == GLOBAL else f"{one}/{name}"
                yield StreamFolder(one, name, os.path.join(folder, name), label)


def _account_folders(root: str) -> list[str]:
    """The folders that may be accounts, sorted. No account's name has a dot."""
    with os.scandir(root) as entries:
        return sorted(one.name for one in entries if "." not in one.name and one.name != "lost+found" and one.is_dir())


def is_stream(root: str, *, with_broken: bool = False) -> bool:
    """Whether a folder holds a stream: a configuration, or its copy."""
    paths = StreamPaths(root)
    marks = (paths.config, paths.config_copy, *((paths.blocks,) if with_broken else ()))
    return any(map(os.path.exists, marks))


def choose_streams(
    root: str, wanted: Iterable[str] | None = None, account: str | None = None, disk: Disk | None = None
) -> list[StreamFolder]:
    """The wanted streams of a store, as they were asked for; None: all of them. Every one is there.

    NotAStore where there is none; StreamNotFound and AmbiguousStream list what there is.
    """
    require_marker(root, disk or Disk())
    return pick_streams(root, list_streams(root, account), wanted, account)


def pick_streams(
    root: str, there: list[StreamFolder], wanted: Iterable[str] | None, account: str | None = None
) -> list[StreamFolder]:
    """Those of the streams of a store that were asked for; None: all of them."""
    if wanted is None:
        return there
    return list(dict.fromkeys(find_stream(root, there, name, account) for name in wanted))


def find_stream(root: str, there: Sequence[StreamFolder], name: str, account: str | None = None) -> StreamFolder:
    """The stream called `name`, or `ACCOUNT/STREAM`, among those of a store."""
    found = [one for one in there if name in (one.name, one.full_name)]
    if len(found) == 1:
        return found[0]
    if found:
        candidates = " or ".join(one.full_name for one in found)
        raise AmbiguousStream(f"stream {name!r} is in {len(found)} accounts of {root}: say {candidates}")
    place = root if account is None else f"account {account} of {root}"
    raise StreamNotFound(f"stream {name!r} not found in {place}; there are: {names_of(there) or 'none'}")


def place_of(root: str, name: str, account: str | None = None) -> tuple[str, str]:
    """Account and name of a stream that is written to, and that may have to be made: then in `$G`, unless said.

    AmbiguousStream where it is not clear which one is meant.
    """
    first, slash, rest = name.partition("/")
    if slash and account not in (None, first):
        raise StreamNotFound(f"stream {name!r} is not one of account {account}")
    if slash or account is not None:
        found = (first, rest) if slash else (account or GLOBAL, name)
        if any(not one or set("./\\\0") & set(one) for one in found):
            raise BadStreamName(f"stream {name!r}: ACCOUNT/STREAM, and no dots or further slashes in either")
        return found
    there = [one for one in list_streams(root) if one.name == name] if os.path.isdir(root) else []
    return (find_stream(root, there, name).account if there else GLOBAL), name


def shown_names(folders: Iterable[StreamFolder]) -> dict[StreamFolder, str]:
    """What people are shown: the account, too, as soon as there are several."""
    found = list(folders)
    has_many = len({one.account for one in found}) > 1
    return {one: one.full_name if has_many else one.label for one in found}


def names_of(folders: Iterable[StreamFolder]) -> str:
    """The same as one text, for errors."""
    return ", ".join(shown_names(folders).values())
