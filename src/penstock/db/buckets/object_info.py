"""ObjectInfo: what an object store says of an object, and how objects lie in their stream.

Object store `files` is stream `OBJ_files`: chunks on `$O.files.C.<nuid>`, and on `$O.files.M.<name in base64>` one JSON
message that names them. The layout is that of the NATS clients, so that they and the library see the same objects.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypedDict

import msgspec

from penstock.base.duration import Duration, format_time
from penstock.consumer.names import DIGITS
from penstock.db.buckets.kv_entry import check_bucket
from penstock.errors import BadObject, BucketError
from penstock.store.read.message import Message

STREAM_PREFIX = "OBJ_"
CHUNK_SIZE = 128 * 1024
DIGEST_PREFIX = "SHA-256="
ROLLUP = {"Nats-Rollup": "sub"}
NUID_SIZE = 22
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

ObjectHeaders = Mapping[str, str | Sequence[str]]


class ObjectStoreOptions(TypedDict, total=False):
    """What an object store may be given when it is made, or changed to later; None: as it is."""

    description: str | None
    ttl: Duration | None
    """How long an object lives: "7d", a timedelta, or seconds; for ever where it is not said."""
    max_bytes: int | None
    """Of the whole store: a put that would pass it is refused."""
    storage: Literal["file", "memory"] | None
    compression: bool | None
    metadata: dict[str, str] | None
    replicas: int | None
    placement: dict[str, Any] | None


class ObjectLink(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an object that is a link leads to: an object of a store, or, without a name, a whole store."""

    bucket: str
    name: str = ""


class ObjectOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    link: ObjectLink | None = None
    max_chunk_size: int = 0


class ObjectInfo(msgspec.Struct, frozen=True):
    """An object's name, and what is known of it."""

    name: str
    bucket: str
    nuid: str
    """Names its chunks: another put of the same name has another one."""
    size: int = 0
    chunks: int = 0
    digest: str = ""
    is_deleted: bool = False
    description: str = ""
    headers: dict[str, list[str]] = {}
    metadata: dict[str, str] = {}
    options: ObjectOptions = ObjectOptions()
    time_ns: int = 0

    @property
    def modified(self) -> datetime:
        """When it was put or changed, as an aware datetime (UTC, microseconds); time_ns is exact."""
        return _EPOCH + timedelta(microseconds=self.time_ns // 1000)

    @property
    def link(self) -> ObjectLink | None:
        return self.options.link


class _Meta(msgspec.Struct):
    """The JSON of a meta message, whoever wrote it. Its `mtime` is not read: the message's own time is exact."""

    name: str
    bucket: str
    nuid: str | None = None  # nats.js gives a link none
    description: str | None = None
    headers: dict[str, str | list[str]] | None = None
    metadata: dict[str, str] | None = None
    options: ObjectOptions | None = None
    size: int | None = None
    chunks: int | None = None
    digest: str | None = None
    deleted: bool | None = None


class ObjectLayout:
    """One object store's names. A name that no store can have raises BadBucketName."""

    def __init__(self, bucket: str) -> None:
        check_bucket(bucket)
        self.bucket = bucket
        self.stream = STREAM_PREFIX + bucket
        self.every_meta = f"$O.{bucket}.M.>"

    def chunks(self, nuid: str) -> str:
        return f"$O.{self.bucket}.C.{nuid}"

    def meta(self, name: str) -> str:
        if not isinstance(name, str) or not name:
            raise BucketError(f"object store {self.bucket}: an object's name is text, not {name!r}")
        return f"$O.{self.bucket}.M.{base64.urlsafe_b64encode(name.encode()).decode()}"

    def info(self, message: Message) -> ObjectInfo:
        """What a meta message says; BadObject where it does not say it."""
        try:
            meta = msgspec.json.decode(message.data, type=_Meta)
            if not meta.nuid and (meta.options is None or meta.options.link is None):
                raise ValueError("it has no nuid, and is no link")
        except (ValueError, RecursionError) as error:  # msgspec.DecodeError and UnicodeDecodeError are ValueErrors
            why = f"message {message.seq} of stream {self.stream} is not its meta: {error}"
            raise BadObject(self.bucket, self._name(message.subject), why) from None
        return ObjectInfo(
            name=meta.name,
            bucket=meta.bucket,
            nuid=meta.nuid or "",
            size=meta.size or 0,
            chunks=meta.chunks or 0,
            digest=meta.digest or "",
            is_deleted=bool(meta.deleted),
            description=meta.description or "",
            headers={key: [one] if isinstance(one, str) else one for key, one in (meta.headers or {}).items()},
            metadata=meta.metadata or {},
            options=meta.options or ObjectOptions(),
            time_ns=message.time_ns,
        )

    def _name(self, subject: str) -> str:
        """The name of an object by its subject, for an error."""
        text = subject.rpartition(".")[2]
        try:
            return base64.urlsafe_b64decode(text).decode()
        except (binascii.Error, UnicodeDecodeError):
            return text

    def stream_fields(self, options: ObjectStoreOptions, *, is_new: bool) -> dict[str, Any]:
        """The configuration of the store's stream, or the fields of it that `options` change."""
        known = ObjectStoreOptions.__annotations__
        unknown = [name for name in options if name not in known]
        if unknown:
            raise BucketError(f"an object store has no option {unknown[0]!r}; it has: {', '.join(known)}")
        fields: dict[str, Any] = {
            "description": options.get("description"),
            "max_age": options.get("ttl"),
            "max_bytes": options.get("max_bytes"),
            "storage": options.get("storage"),
            "metadata": options.get("metadata"),
            "num_replicas": options.get("replicas"),
            "placement": options.get("placement"),
        }
        if options.get("compression") is not None:
            fields["compression"] = "s2" if options["compression"] else "none"
        fields = {field: value for field, value in fields.items() if value is not None}
        if not is_new:
            return fields
        return {
            "subjects": [f"$O.{self.bucket}.C.>", self.every_meta],
            "discard": "new",
            "allow_rollup_hdrs": True,
            "allow_direct": True,
        } | fields


def encode_meta(info: ObjectInfo, now_ns: int) -> bytes:
    """The meta message of an object, in the order in which the Go client writes it."""
    fields = {"name": info.name, "description": info.description, "headers": info.headers, "metadata": info.metadata}
    options = msgspec.to_builtins(info.options)
    plain = {key: value for key, value in (fields | {"options": options}).items() if value}
    plain |= {"bucket": info.bucket, "nuid": info.nuid, "size": info.size, "mtime": format_time(now_ns)}
    plain |= {"chunks": info.chunks}
    plain |= {key: value for key, value in (("digest", info.digest), ("deleted", info.is_deleted)) if value}
    return msgspec.json.encode(plain)


def encode_headers(headers: ObjectHeaders | None) -> dict[str, list[str]]:
    return {key: [one] if isinstance(one, str) else list(one) for key, one in (headers or {}).items()}


def encode_digest(digest: bytes) -> str:
    return DIGEST_PREFIX + base64.urlsafe_b64encode(digest).decode()


def make_nuid() -> str:
    """A name for chunks that no other object has."""
    return "".join(secrets.choice(DIGITS) for _ in range(NUID_SIZE))
