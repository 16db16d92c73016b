"""BucketError: what a key-value bucket or an object store cannot do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.errors.base import PenstockError, rebuild
from penstock.errors.library import ReadError

__all__ = [
    "BadBucketName",
    "BadKey",
    "BadLink",
    "BadObject",
    "BucketError",
    "BucketNotFound",
    "KeyDeleted",
    "KeyExists",
    "KeyNotFound",
    "NotABucket",
    "ObjectExists",
    "ObjectNotFound",
    "RevisionMismatch",
]


class BucketError(PenstockError):
    """An operation that a key-value bucket or an object store refuses; the text names the bucket and the key."""

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild, (type(self), self.__dict__ | {"args": self.args})


class BadBucketName(BucketError, ValueError):
    def __init__(self, name: object) -> None:
        super().__init__(f"bucket name {name!r}: letters, digits, - and _ only")


class BucketNotFound(BucketError):
    def __init__(self, bucket: str, kind: str, path: str, others: Sequence[str]) -> None:
        super().__init__(f"there is no {kind} {bucket!r} in {path}; there are: {', '.join(others) or 'none'}")


class NotABucket(BucketError):
    """The stream has the name of a bucket's stream, but not its configuration."""

    def __init__(self, stream: str, why: str) -> None:
        super().__init__(f"stream {stream} is not a bucket: {why}")


class BadKey(BucketError, ValueError):
    def __init__(self, bucket: str, key: object) -> None:
        super().__init__(
            f"key {key!r} of bucket {bucket}: letters, digits and - _ = / . only, no dot at an end or beside another"
        )


class KeyNotFound(BucketError, ReadError):
    """The key has no value: it was never put, has expired, or (KeyDeleted) was deleted."""

    def __init__(self, bucket: str, key: str, revision: int | None = None, why: str = "") -> None:
        self.bucket, self.key, self.revision = bucket, key, revision
        at = f" at revision {revision}" if revision is not None else ""
        super().__init__(f"bucket {bucket} has no key {key!r}{at}" + (f": {why}" if why else ""))


class KeyDeleted(KeyNotFound):
    """The key's newest entry is a marker: `operation` is "DEL" or "PURGE", `revision` the marker's."""

    def __init__(self, bucket: str, key: str, revision: int, operation: str) -> None:
        self.operation = operation
        super().__init__(bucket, key, revision, "it was purged" if operation == "PURGE" else "it was deleted")


class RevisionMismatch(BucketError):
    """The key has revision `actual` (0: none), not the one that the caller expected: another writer was faster."""

    def __init__(self, bucket: str, key: str, wanted: int, actual: int) -> None:
        self.bucket, self.key, self.wanted, self.actual = bucket, key, wanted, actual
        super().__init__(
            f"key {key!r} of bucket {bucket} is at revision {actual}, not {wanted}: get it again, then decide anew"
        )


class KeyExists(RevisionMismatch):
    """`create` of a key that already has a value."""

    def __init__(self, bucket: str, key: str, actual: int) -> None:
        super().__init__(bucket, key, 0, actual)
        self.args = (f"bucket {bucket} has key {key!r} already, at revision {actual}: `put` or `update` it",)


class ObjectNotFound(BucketError, ReadError):
    """No object has this name, or it was deleted."""

    def __init__(self, bucket: str, name: str, why: str = "") -> None:
        self.bucket, self.name = bucket, name
        super().__init__(f"object store {bucket} has no object {name!r}" + (f": {why}" if why else ""))


class ObjectExists(BucketError):
    """Another object has this name."""

    def __init__(self, bucket: str, name: str) -> None:
        self.bucket, self.name = bucket, name
        super().__init__(f"object store {bucket} has an object {name!r} already: delete it first, or take another name")


class BadObject(BucketError):
    """An object cannot be read: its metadata does not parse, or chunks are missing or differ."""

    def __init__(self, bucket: str, name: str, why: str) -> None:
        self.bucket, self.name = bucket, name
        super().__init__(f"object {name!r} of object store {bucket}: {why}")


class BadLink(BucketError, ValueError):
    """A link is not allowed here, or leads to no single object."""
