"""The checks of one published message, in order: what its headers ask for, and the first rule that it breaks.

Rules: those of JetStream, in the order of nats-server 2.15.1, which checks sizes before headers. The order is recorded
in tests/parity/recorded/tables/stream.json, with every pair of faults in one message. Pure: the checks see the stream
through a `PublishView`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, Protocol

import msgspec

from penstock.base.duration import NS_PER_SECOND
from penstock.base.subject import is_valid_subject
from penstock.errors import (
    AtomicPublishDisabled,
    BadIncrement,
    BadRollup,
    BadScheduler,
    BadTtl,
    CountersDisabled,
    ExpectedStreamMismatch,
    HeadersTooLarge,
    MessageTooLarge,
    MissingSubjectSequence,
    RecordTooLarge,
    RollupNotAllowed,
    SchedulesDisabled,
    SourceHeaderNotAllowed,
    StreamSealed,
    TtlDisabled,
    WrongLastMsgId,
    WrongLastSequence,
)
from penstock.store.write.batch import ruled_headers
from penstock.stream.config import StreamConfig
from penstock.wire.headers import append, remove, strip_status
from penstock.wire.ttl import parse_digits, parse_ttl

HEADERS_SIZE_MAX = 65535
RECORD_SIZE_MAX = 32 * 1024 * 1024

Rollup = Literal["sub", "all"]


class PublishView(Protocol):
    """What the rules need to know about a stream, as of the message before this one."""

    @property
    def config(self) -> StreamConfig: ...

    @property
    def last_seq(self) -> int: ...

    def last_msg_id(self) -> str:
        """The id of the last message stored, "" if it has none."""
        ...

    def last_seq_of(self, subject_filter: bytes) -> int:
        """The last sequence on this subject or filter, 0 if there is none."""
        ...

    def find_duplicate(self, msg_id: bytes) -> int | None:
        """The sequence of the message with this id, if it lies within the duplicate window."""
        ...


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """The message may be stored, or is a duplicate (`duplicate_seq`: acknowledge that sequence and store nothing)."""

    headers: bytes = b""
    """The headers to store: without a status, and without headers that only the server may set."""
    duplicate_seq: int | None = None
    rollup: Rollup | None = None
    ttl_ns: int = 0
    """0 without one, -1 for never."""
    msg_id: bytes | None = None


def judge(view: PublishView, subject: bytes, headers: bytes, payload_size: int) -> Verdict:
    """Decide what to do with a message; raises the ApiError of the first rule that it breaks."""
    config = view.config
    asked = _NOTHING
    if headers:
        headers = strip_status(headers)
        asked = _asked(headers)
    batch_id = asked.get(b"Nats-Batch-Id")
    if not batch_id and len(headers) + payload_size > _SIZE_SAFE and config.storage == "file":
        _check_record_size(len(subject), len(headers), payload_size)
    if config.sealed:
        raise StreamSealed
    if b"Nats-Request-Info" in asked:
        headers = remove(headers, b"Nats-Request-Info")
        asked = _asked(headers)
    if 0 <= config.max_msg_size < len(headers) + payload_size:
        raise MessageTooLarge
    if batch_id:
        raise AtomicPublishDisabled
    if len(headers) > HEADERS_SIZE_MAX:
        raise HeadersTooLarge
    if not asked:
        return Verdict(headers)
    if len(asked) == 1:  # the most common cases: an id, or the update of a key
        msg_id = asked.get(b"Nats-Msg-Id")
        if msg_id:
            return Verdict(headers, view.find_duplicate(msg_id), None, 0, msg_id)
        expected = asked.get(b"Nats-Expected-Last-Subject-Sequence")
        if expected:
            actual = view.last_seq_of(subject)
            if parse_digits(expected) != actual:
                raise WrongLastSequence(actual)
            return Verdict(headers)
    return _judge_headers(view, subject, headers, asked)


Asked = Mapping[bytes, bytes]
"""What the headers ask for: the first value of each header that has a rule."""

_NOTHING: Asked = MappingProxyType({})
_RULED = ruled_headers()
_KEY_SIZE_MAX = max(map(len, _RULED))
_SIZE_SAFE = RECORD_SIZE_MAX // 2
"""Headers and payload up to this size never make a record too large, whatever the subject; most messages are below
it."""


def _asked(headers: bytes) -> Asked:
    """The ruled headers, found in one pass instead of a search for each of sixteen keys; the values are those of
    `headers.find`."""
    at = headers.find(b"\r\nNats-")
    if at < 0:
        return _NOTHING
    found: dict[bytes, bytes] = {}
    while at >= 0:
        start = at + 2
        colon = headers.find(b":", start, start + _KEY_SIZE_MAX + 1)
        key = headers[start:colon]
        if colon >= 0 and key in _RULED and key not in found:
            end = headers.find(b"\r\n", colon)
            found[key] = headers[colon + 1 : end if end >= 0 else len(headers)].lstrip(b" ")
        at = headers.find(b"\r\nNats-", start)
    return found


def _judge_headers(view: PublishView, subject: bytes, headers: bytes, asked: Asked) -> Verdict:
    config = view.config
    _check_increment(asked.get(b"Nats-Incr"))
    expected_stream = asked.get(b"Nats-Expected-Stream")
    if expected_stream and expected_stream != config.name.encode():
        raise ExpectedStreamMismatch
    ttl_text = asked.get(b"Nats-TTL")
    ttl_ns = parse_ttl(ttl_text) if ttl_text else 0
    if ttl_ns and not config.allow_msg_ttl:
        raise TtlDisabled
    _check_sequences(view, subject, asked)
    _check_schedules(subject, asked)
    if asked.get(b"Nats-Stream-Source"):
        raise SourceHeaderNotAllowed
    msg_id = asked.get(b"Nats-Msg-Id") or None
    if msg_id is not None:
        duplicate_seq = view.find_duplicate(msg_id)
        if duplicate_seq is not None:
            return Verdict(headers, duplicate_seq=duplicate_seq, msg_id=msg_id)
    last_id = asked.get(b"Nats-Expected-Last-Msg-Id")
    if last_id:
        actual = view.last_msg_id()
        if _text(last_id) != actual:
            raise WrongLastMsgId(actual)
    rollup = _rollup(config, asked.get(b"Nats-Rollup"))
    if ttl_ns is None:
        if config.retention != "interest":
            raise BadTtl
        ttl_ns = 0  # it is not stored, so its TTL does not matter
    marker_ttl_ns = config.subject_delete_marker_ttl // NS_PER_SECOND * NS_PER_SECOND
    if 0 < ttl_ns < marker_ttl_ns and config.max_msgs_per_subject != 1:
        # The marker of an older message of its subject must not outlive it.
        ttl_ns = marker_ttl_ns
        headers = append(remove(headers, b"Nats-TTL"), b"Nats-TTL", b"%d" % (ttl_ns // NS_PER_SECOND))
    return Verdict(headers, None, rollup, ttl_ns, msg_id)


def _check_record_size(subject_size: int, headers_size: int, payload_size: int) -> None:
    """nats-server computes a record's size in its own file format, and refuses one over 32 MiB in any stream on
    disk."""
    size = 22 + subject_size + (4 + headers_size if headers_size else 0) + payload_size + 8
    if size > RECORD_SIZE_MAX:
        raise RecordTooLarge


def _check_increment(increment: bytes | None) -> None:
    if not increment:
        return
    if re.fullmatch(rb"[+-]?[0-9]+", increment) is None:
        raise BadIncrement
    raise CountersDisabled


def _check_sequences(view: PublishView, subject: bytes, asked: Asked) -> None:
    of_subject = asked.get(b"Nats-Expected-Last-Subject-Sequence")
    other_subject = asked.get(b"Nats-Expected-Last-Subject-Sequence-Subject")
    if of_subject:
        actual = view.last_seq_of(other_subject or subject)
        if parse_digits(of_subject) != actual:
            raise WrongLastSequence(actual)
    elif other_subject:
        raise MissingSubjectSequence
    of_stream = asked.get(b"Nats-Expected-Last-Sequence")
    if of_stream and parse_digits(of_stream) != view.last_seq:
        raise WrongLastSequence(view.last_seq)


def _check_schedules(subject: bytes, asked: Asked) -> None:
    """This version has no schedules; it refuses and ignores the headers that nats-server does on a stream without
    them."""
    zone = asked.get(b"Nats-Schedule-Time-Zone")
    if asked.get(b"Nats-Schedule") or (zone is not None and not _is_time_zone(zone)):
        raise SchedulesDisabled
    scheduler = asked.get(b"Nats-Scheduler")
    following = asked.get(b"Nats-Schedule-Next")
    if following:
        if following != b"purge" or not scheduler or scheduler == subject or not is_valid_subject(scheduler):
            raise BadScheduler
        raise SchedulesDisabled
    if scheduler:
        raise BadScheduler


def _rollup(config: StreamConfig, value: bytes | None) -> Rollup | None:
    if not value:
        return None
    if not config.allow_rollup_hdrs or config.deny_purge:
        raise RollupNotAllowed
    text = _text(value).lower()
    if text == "sub":
        return "sub"
    if text == "all":
        return "all"
    raise BadRollup(text)


def _is_time_zone(value: bytes) -> bool:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # slow to import, and hardly ever needed

    try:
        ZoneInfo(_text(value))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return value in (b"UTC", b"Local")
    return bool(value)


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")
