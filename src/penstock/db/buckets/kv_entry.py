"""KeyValueEntry, and how a key-value bucket is laid out in its stream: names, keys, markers.

Bucket `settings` is stream `KV_settings` with subjects `$KV.settings.>`; the rest of a subject is the key, and the
sequence of a message is its revision. The layout is that of the NATS clients, so that they and the library see the same
buckets.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypedDict

from penstock.base.duration import Duration, duration_ns, format_duration
from penstock.db.buckets.watch_source import Fed
from penstock.errors import BadBucketName, BadKey, BucketError, NotABucket
from penstock.store.read.message import Message
from penstock.stream.config import StreamConfig

Operation = Literal["PUT", "DEL", "PURGE"]

STREAM_PREFIX = "KV_"
HISTORY_MAX = 64
OPERATION = "KV-Operation"
MARKER_REASON = "Nats-Marker-Reason"  # in a marker that the stream itself stored
EXPECTED_REVISION = "Nats-Expected-Last-Subject-Sequence"
TTL = "Nats-TTL"
ROLLUP = "Nats-Rollup"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BUCKET = re.compile(r"[a-zA-Z0-9_-]+")
_KEY = re.compile(r"[-/_=a-zA-Z0-9]+(\.[-/_=a-zA-Z0-9]+)*")
_KEY_FILTER = re.compile(r"([-/_=a-zA-Z0-9]+|\*)(\.([-/_=a-zA-Z0-9]+|\*))*(\.>)?|>")
_OPERATIONS: dict[str | None, Operation] = {"DEL": "DEL", "PURGE": "PURGE"}
_REASONS: dict[str | None, Operation] = {"MaxAge": "PURGE", "Purge": "PURGE", "Remove": "DEL"}


class KeyValueOptions(TypedDict, total=False):
    """The options of a key-value bucket, for creating or changing it; None: unchanged."""

    history: int | None
    """How many entries are kept of each key, 1 to 64; the default is 1."""
    ttl: Duration | None
    """How long an entry lives: "1h", a timedelta, or seconds; the default is for ever."""
    description: str | None
    max_value_size: int | None
    max_bytes: int | None
    """The limit of the whole bucket: a put that would exceed it is refused."""
    storage: Literal["file", "memory"] | None
    limit_marker_ttl: Duration | None
    """When an entry expires, a marker tells watchers; the marker lives this long."""
    compression: bool | None
    metadata: dict[str, str] | None
    replicas: int | None
    placement: dict[str, Any] | None
    republish: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class KeyValueEntry:
    """One entry of a key: a value, or the marker of a deletion."""

    bucket: str
    key: str
    value: bytes
    """b"" in a marker, and in a watch with `meta_only`."""
    revision: int
    """The entry's number in the bucket: higher is newer, over all keys."""
    time_ns: int
    operation: Operation
    """"PUT": a value · "DEL": a marker, older entries stay · "PURGE": a marker, older entries are gone."""
    delta: int = 0
    """In a watch: how many of the entries that existed when it began are still to come."""

    @property
    def created(self) -> datetime:
        """When it was put, as an aware datetime (UTC, microseconds); time_ns is exact."""
        return _EPOCH + timedelta(microseconds=self.time_ns // 1000)

    @property
    def is_deleted(self) -> bool:
        return self.operation != "PUT"


class KeyValueLayout:
    """The names of one bucket. An invalid name raises BadBucketName or BadKey."""

    def __init__(self, bucket: str) -> None:
        check_bucket(bucket)
        self.bucket = bucket
        self.stream = STREAM_PREFIX + bucket
        self.prefix = f"$KV.{bucket}."

    def subject(self, key: str) -> str:
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            raise BadKey(self.bucket, key)
        return self.prefix + key

    def check_ttl(self, ttl: Duration | None, config: StreamConfig) -> None:
        """Check that a single entry may have a time to live: not in buckets that the Go client created without limit
        markers."""
        if ttl is not None and not config.allow_msg_ttl:
            raise BucketError(f"bucket {self.bucket} has no ttl for single keys: open it with limit_marker_ttl")

    def filters(self, keys: str | Sequence[str]) -> list[str]:
        """The subjects of some keys, which may have wildcards; without keys, of every key."""
        wanted = [keys] if isinstance(keys, str) else list(keys)
        for key in wanted:
            if not isinstance(key, str) or not _KEY_FILTER.fullmatch(key):
                raise BadKey(self.bucket, key)
        return [self.prefix + key for key in wanted or [">"]]

    def entry(self, message: Message, delta: int = 0, *, meta_only: bool = False) -> KeyValueEntry:
        return KeyValueEntry(
            bucket=self.bucket,
            key=message.subject[len(self.prefix) :],
            value=b"" if meta_only else message.data,
            revision=message.seq,
            time_ns=message.time_ns,
            operation=operation_of(message),
            delta=delta,
        )

    def watched(self, fed: Fed, ignore_deletes: bool, meta_only: bool) -> KeyValueEntry | None:
        """The entry that a watch yields for a message; None if it yields none."""
        if ignore_deletes and operation_of(fed.message) != "PUT":
            return None
        return self.entry(fed.message, fed.delta, meta_only=meta_only)

    def stream_fields(self, options: KeyValueOptions, *, is_new: bool) -> dict[str, Any]:
        """The configuration of the bucket's stream, or the fields of it that `options` change."""
        known = KeyValueOptions.__annotations__
        unknown = [name for name in options if name not in known]
        if unknown:
            raise BucketError(f"a key-value bucket has no option {unknown[0]!r}; it has: {', '.join(known)}")
        history = options.get("history")
        if history is not None and not 1 <= history <= HISTORY_MAX:
            raise BucketError(f"bucket {self.bucket}: history {history} is not between 1 and {HISTORY_MAX}")
        fields: dict[str, Any] = {
            "max_msgs_per_subject": history,
            "max_age": options.get("ttl"),
            "description": options.get("description"),
            "max_msg_size": options.get("max_value_size"),
            "max_bytes": options.get("max_bytes"),
            "storage": options.get("storage"),
            "subject_delete_marker_ttl": options.get("limit_marker_ttl"),
            "metadata": options.get("metadata"),
            "num_replicas": options.get("replicas"),
            "placement": options.get("placement"),
            "republish": options.get("republish"),
        }
        if options.get("compression") is not None:
            fields["compression"] = "s2" if options["compression"] else "none"
        fields = {field: value for field, value in fields.items() if value is not None}
        if not is_new:
            return fields | ({"allow_msg_ttl": True} if "subject_delete_marker_ttl" in fields else {})
        return {
            "subjects": [self.prefix + ">"],
            "max_msgs_per_subject": 1,
            "discard": "new",
            "deny_delete": True,
            "allow_rollup_hdrs": True,
            "allow_direct": True,
            "allow_msg_ttl": True,
        } | fields


def check_bucket(bucket: str) -> None:
    if not isinstance(bucket, str) or not _BUCKET.fullmatch(bucket):
        raise BadBucketName(bucket)


def check_key_value(config: StreamConfig) -> None:
    """Check that a stream can be a key-value bucket."""
    if config.max_msgs_per_subject < 1:
        raise NotABucket(config.name, "it keeps any number of messages of a subject; set max_msgs_per_subject")


def operation_of(message: Message) -> Operation:
    if message.raw_headers is None:
        return "PUT"
    headers = message.headers
    found = _OPERATIONS.get(headers.get(OPERATION))
    if found is None and OPERATION not in headers:
        found = _REASONS.get(headers.get(MARKER_REASON))
    return found or "PUT"


def expecting(revision: int | None, ttl: Duration | None = None) -> dict[str, str]:
    """The headers of a put that requires the key to be at `revision` (None: at any), and lives for `ttl`."""
    headers: dict[str, str] = {}
    if revision is not None:
        headers[EXPECTED_REVISION] = str(revision)
    if ttl is not None:
        headers[TTL] = format_duration(duration_ns(ttl))
    return headers


def marker(operation: Operation, revision: int | None, ttl: Duration | None = None) -> dict[str, str]:
    """The headers of a deletion."""
    rollup = {ROLLUP: "sub"} if operation == "PURGE" else {}
    return {OPERATION: operation, **rollup, **expecting(revision, ttl)}
