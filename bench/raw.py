"""The bare loop that `disk` is measured against: pwrite at the end of a file, fdatasync."""

from __future__ import annotations

import os
from pathlib import Path

# The best that the loop can do: larger writes get huge pages of the page cache, which on a virtual machine whose host
# takes free memory back may be ten times slower (docs/decisions/0008).
WRITE_SIZE = 1 << 18


class Raw:
    """Bytes at the end of a file, synced; with a size, in files of about that size."""

    def __init__(self, folder: Path, roll_size: int | None) -> None:
        folder.mkdir()
        self._folder, self._roll_size = folder, roll_size
        self._fd, self._at, self._number = -1, 0, 0

    def write(self, blobs: list[bytes]) -> None:
        for blob in blobs:
            is_new = self._fd < 0 or (self._roll_size is not None and self._at + len(blob) > self._roll_size)
            if is_new:
                self.close()
                self._number += 1
                self._fd = os.open(self._folder / f"{self._number:06}", os.O_RDWR | os.O_CREAT, 0o600)
                self._at = 0
            rest = memoryview(blob)
            while rest:
                put = os.pwrite(self._fd, rest[:WRITE_SIZE], self._at)
                self._at += put
                rest = rest[put:]
            os.fdatasync(self._fd)
            if is_new:
                folder = os.open(self._folder, os.O_RDONLY)
                os.fsync(folder)
                os.close(folder)

    def clear(self) -> None:
        """Free the disk space and the page cache."""
        self.close()
        for path in self._folder.iterdir():
            path.unlink()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
