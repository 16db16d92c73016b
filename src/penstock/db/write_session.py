"""WriteSession: a store's directory while this process writes to it.

One lock, one control socket and one set of commit threads serve the databases of all its accounts.
"""

from __future__ import annotations

import gc
import os
import threading
import weakref
from typing import TYPE_CHECKING

from penstock.base.disk import Disk
from penstock.db.control_socket import ControlSocket
from penstock.db.lock import WriteLock
from penstock.errors import StoreError, StoreLocked
from penstock.store.write.committer import Committer

if TYPE_CHECKING:
    from penstock.db.database import Database


class WriteSession:
    """Who may write below a directory: we.

    Always true: the lock is held while a database is joined; the last one to leave lets go of it. A database that is
    dropped without being closed leaves when it is collected: nothing here keeps it alive.
    """

    def __init__(self, path: str, disk: Disk) -> None:
        self.path = path
        self.disk = disk
        self.committer = Committer()
        self._guard = threading.RLock()  # the collector may close a database anywhere, also in here
        self._databases: weakref.WeakValueDictionary[str, Database] = weakref.WeakValueDictionary()
        self.lock = _lock(path)
        self._door: ControlSocket | None = None

    def join(self, database: Database) -> None:
        """Take the database of one more account."""
        with self._guard:
            if database.account in self._databases:
                raise StoreError(f"{self.path}: account {database.account} is open in this process already")
            self._databases[database.account] = database

    def open_door(self) -> None:
        """Begin to answer other processes; the databases that joined are ready."""
        with self._guard:
            if self._door is None:
                self._door = ControlSocket(self)
                self.lock.tell(door=self._door.name)

    def leave(self, database: Database) -> None:
        """A database is closed; with the last one everything is."""
        with self._guard:
            if self._databases.get(database.account) is database:
                del self._databases[database.account]
            if self._databases:
                return
            self._door = None  # it is closed, and has us
        self.committer.stop()
        self.lock.release()

    def close_door(self, database: Database) -> None:
        """The last database is about to close: no request may be half done. Call it without any lock of a database,
        since a request that is being served needs that."""
        with self._guard:
            door = self._door if set(self._databases) <= {database.account} else None
        if door is not None:
            door.close()

    def database(self, account: str) -> Database:
        """The open database of an account."""
        with self._guard:
            found = self._databases.get(account)
            names = ", ".join(sorted(self._databases))
        if found is None:
            raise StoreError(f"this process writes to account {names}, not {account}")
        return found

    def forget(self) -> None:
        """In a forked child: locks that another thread held would hang it; threads and door are the parent's."""
        self._guard = threading.RLock()
        self.committer.forget_threads()  # type: ignore[attr-defined]
        if self._door is not None:
            self._door.forget()


def _lock(path: str) -> WriteLock:
    """The lock. Where this process has it, that may be garbage which nobody has collected yet."""
    try:
        return WriteLock(path)
    except StoreLocked as error:
        if error.holder.get("pid") != os.getpid():
            raise
    gc.collect()
    return WriteLock(path)
