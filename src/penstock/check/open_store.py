"""OpenStore: a store as a command opens it: the streams of all its accounts, or of one."""

from __future__ import annotations

import os
from collections.abc import Iterable
from types import TracebackType

from penstock.base.disk import Disk
from penstock.db.database import Database
from penstock.db.stream import Stream
from penstock.errors import UsageError
from penstock.store.open.marker import require_marker
from penstock.store.open.stream_folders import GLOBAL, StreamFolder, find_stream, list_streams, names_of, pick_streams


class OpenStore:
    """Accounts are opened when they are first used; for writing, all under one lock."""

    def __init__(
        self,
        root: str,
        account: str | None = None,
        *,
        read_only: bool = True,
        durability: str = "disk",
        create: bool = False,
    ) -> None:
        """StoreLocked names the writer. Only `create` makes a store, or an account, where there is none."""
        self.path = os.path.abspath(root)
        self.account = account
        self._read_only, self._durability = read_only, durability
        self._databases: dict[str, Database] = {}
        self.folders: list[StreamFolder] = []
        if not create:
            require_marker(self.path, Disk())
            self.folders = list_streams(self.path, account)
        elif os.path.isdir(os.path.join(self.path, account or "")):  # else it is made when it is opened
            self.folders = list_streams(self.path, account)

    def pick(self, names: Iterable[str]) -> list[StreamFolder]:
        """The streams with these names; all where none is given."""
        return pick_streams(self.path, self.folders, list(names) or None, self.account)

    def one(self, name: str | None) -> StreamFolder:
        """The stream with this name, or the only one there is."""
        if name is not None:
            return find_stream(self.path, self.folders, name, self.account)
        if len(self.folders) == 1:
            return self.folders[0]
        raise UsageError(f"which stream? Name it with --stream; there are: {names_of(self.folders) or 'none'}")

    def stream(self, folder: StreamFolder) -> Stream:
        """Open a stream."""
        return self.database(folder.account).get_stream(folder.name)

    def database(self, account: str = GLOBAL) -> Database:
        """Open an account."""
        found = self._databases.get(account)
        if found is None:
            root = next((one.root for one in self._databases.values()), None)
            found = Database(
                self.path, account=account, read_only=self._read_only, durability=self._durability, root=root
            )
            self._databases[account] = found
        return found

    def close(self) -> None:
        errors: list[Exception] = []
        for database in self._databases.values():
            try:
                database.close()
            except Exception as error:  # noqa: BLE001  the others are closed, too; raised below
                errors.append(error)
        self._databases.clear()
        if errors:
            raise errors[0]

    def __enter__(self) -> OpenStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
