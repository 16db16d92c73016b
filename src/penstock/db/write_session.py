"""WriteSession: the lock, control socket and commit threads of a store that this process writes to.

The databases of all accounts in the store's directory share them.
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
    """This process's right to write below a directory.

    Always true: the lock is held while any database has joined; the last database that leaves releases it. The session
    keeps no database alive: one that is dropped without being closed leaves when it is garbage-collected.
    """

    def __init__(self, path: str, disk: Disk) -> None:
        self.path = path
        self.disk = disk
        self.committer = Committer()
        self._guard = threading.RLock()  # reentrant: the garbage collector may close a database even in here
        self._databases: weakref.WeakValueDictionary[str, Database] = weakref.WeakValueDictionary()
        self.lock = _lock(path)
        self._door: ControlSocket | None = None

    def join(self, database: Database) -> None:
        """Add the database of another account."""
        with self._guard:
            if database.account in self._databases:
                raise StoreError(f"{self.path}: account {database.account} is open in this process already")
            self._databases[database.account] = database

    def open_door(self) -> None:
        """Open the control socket, once the databases that joined are ready."""
        with self._guard:
            if self._door is None:
                self._door = ControlSocket(self)
                self.lock.tell(door=self._door.name)

    def leave(self, database: Database) -> None:
        """Remove a closed database; the last one closes the session."""
        with self._guard:
            if self._databases.get(database.account) is database:
                del self._databases[database.account]
            if self._databases:
                return
            self._door = None  # it is closed, and refers to this session
        self.committer.stop()
        self.lock.release()

    def close_door(self, database: Database) -> None:
        """Close the control socket if this is the last database, so that no request is interrupted. Call it without
        holding a database's lock, which a request being served may need."""
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
        """In a forked child: replace the lock, which another thread may have held; threads and control socket are the
        parent's."""
        self._guard = threading.RLock()
        self.committer.forget_threads()  # type: ignore[attr-defined]
        if self._door is not None:
            self._door.forget()


def _lock(path: str) -> WriteLock:
    """Take the write lock. If this process holds it already, its owner may be garbage that has not been collected
    yet."""
    try:
        return WriteLock(path)
    except StoreLocked as error:
        if error.holder.get("pid") != os.getpid():
            raise
    gc.collect()
    return WriteLock(path)
