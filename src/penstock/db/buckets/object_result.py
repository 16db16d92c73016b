"""ObjectResult: reads an object all at once, as a file, or chunk by chunk, and checks its digest at the end."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.db.buckets.object_info import ObjectInfo, encode_digest
from penstock.db.stream import Stream
from penstock.errors import BadObject

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class ObjectResult(io.RawIOBase):
    """A readable binary file with `.info`. Read it at once (`.data`), in parts (`read`), or in chunks (`iter_chunks`).

    The last part is returned only after the size and digest of the whole object proved right; otherwise, or if the
    object was deleted or replaced while it was read, BadObject is raised.
    """

    def __init__(self, info: ObjectInfo, stream: Stream, subject: str) -> None:
        self.info = info
        self._left = memoryview(b"")
        self._data: bytes | None = None
        self._is_begun = False
        self._chunks = self._checked(stream, subject)

    def _checked(self, stream: Stream, subject: str) -> Iterator[bytes]:
        digest, size, count = hashlib.sha256(), 0, 0
        held: bytes | None = None  # the last chunk is returned only when the whole object proved right
        for message in stream.read(subject) if self.info.size else ():
            digest.update(message.data)
            size += len(message.data)
            count += 1
            if held is not None:
                yield held
            held = message.data
        self._check(size, count, digest.digest())
        if held is not None:
            yield held

    def _check(self, size: int, count: int, digest: bytes) -> None:
        info = self.info
        if size != info.size:
            why = f"{size} of {info.size} bytes are there ({count} of {info.chunks} chunks)"
            raise BadObject(info.bucket, info.name, f"{why}; was it deleted or put again meanwhile?")
        if info.digest and encode_digest(digest).rstrip("=") != _same_case(info.digest).rstrip("="):
            raise BadObject(info.bucket, info.name, f"its digest is {encode_digest(digest)}, not {info.digest}")

    @property
    def data(self) -> bytes:
        """The whole content; read a large object in parts instead."""
        if self._data is None:
            if self._is_begun:
                raise ValueError(f"object {self.info.name!r} was read in part already: get it again for all of it")
            self._data = b"".join(self.iter_chunks())
        return self._data

    def iter_chunks(self) -> Iterator[bytes]:
        """The rest of the content, in the chunks in which it was put."""
        self._is_begun = True
        if self._left:
            rest, self._left = bytes(self._left), memoryview(b"")
            yield rest
        yield from self._chunks

    # As a file.

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        self._is_begun = True
        while not self._left:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._left = memoryview(chunk)
        target = memoryview(buffer).cast("B")
        count = min(len(target), len(self._left))
        target[:count] = self._left[:count]
        self._left = self._left[count:]
        return count

    def readall(self) -> bytes:
        return b"".join(self.iter_chunks())

    def __repr__(self) -> str:
        return f"<penstock.ObjectResult {self.info.name!r} {self.info.size} bytes>"


def _same_case(digest: str) -> str:
    """A digest with its algorithm in the case that we write: some clients write it in lower case."""
    kind, sign, rest = digest.partition("=")
    return kind.upper() + sign + rest
