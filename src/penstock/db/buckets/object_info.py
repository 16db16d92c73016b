"""ObjectInfo: what an object store records about an object, and how objects are laid out in their stream.

Object store `files` is stream `OBJ_files`: chunks are on `$O.files.C.<nuid>`, and one JSON message on `$O.files.M.<name
in base64>` names them. The layout is that of the NATS clients, so that they and the library see the same objects.
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
    """The options of an object store, for creating or changing it; None: unchanged."""

    description: str | None
    ttl: Duration | None
    """How long an object lives: "7d", a timedelta, or seconds; the default is for ever."""
    max_bytes: int | None
    """The limit of the whole store: a put that would exceed it is refused."""
    storage: Literal["file", "memory"] | None
    compression: bool | None
    metadata: dict[str, str] | None
    replicas: int | None
    placement: dict[str, Any] | None


class ObjectLink(msgspec.Struct, frozen=True, omit_defaults=True):
    """The target of a link: an object of a store or, without a name, a whole store."""

    bucket: str
    name: str = ""


class ObjectOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    link: ObjectLink | None = None
    max_chunk_size: int = 0


class ObjectInfo(msgspec.Struct, frozen=True):
    """An object's name and metadata."""

    name: str
    bucket: str
    nuid: str
    """The name of its chunks; each put of the same object gets a new one."""
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
    """The JSON of a meta message of any client. Its `mtime` is not read, since the message's own time is exact."""

    name: str
    bucket: str
    nuid: str | None = None  # nats.js writes none for a link
    description: str | None = None
    headers: dict[str, str | list[str]] | None = None
    metadata: dict[str, str] | None = None
    options: ObjectOptions | None = None
    size: int | None = None
    chunks: int | None = None
    digest: str | None = None
    deleted: bool | None = None


class ObjectLayout:
    """The names of one object store. An invalid name raises BadBucketName."""

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
        """The object that a meta message describes; raises BadObject if the message is invalid."""
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
        """The name of an object from its subject, for an error."""
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
    """The meta message of an object, with its fields in the Go client's order."""
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
    """A new unique name for the chunks of an object."""
    return "".join(secrets.choice(DIGITS) for _ in range(NUID_SIZE))
