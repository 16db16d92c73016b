"""PenstockError: every error we raise on purpose, grouped by who is told.

  ProtocolError      the client hears -ERR
  ApiError           the caller gets code, err_code and description as JSON; codes and texts are JetStream's
  StoreError         the operator is told, and the stream stops taking writes
    CorruptBlock     "000007.blk at byte 4096: checksum differs": the thing, the place, the reason
  ReadError          a read found no message: past the end, deleted, never there
  PublishRefused     some messages of a batch were refused; it holds the acks of the others

JetStream has many more errors; here are those that a stream and its publish
path can raise.
"""

from __future__ import annotations

import errno as errno_names
import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar


class PenstockError(Exception):
    """Everything that Penstock raises on purpose."""


class ProtocolError(PenstockError):
    """The peer broke the NATS protocol; it hears -ERR with this text."""


class BadHeader(PenstockError, ValueError):
    """A header that cannot be written: its key or value would break the header block."""


# ---------------------------------------------------------------------------------------------------- JetStream's own


class ApiError(PenstockError):
    """A request that is answered with an error; `str()` gives the description alone.

    A subclass says code, err_code and description once; an instance may say the description more exactly.
    """

    code: ClassVar[int] = 500
    err_code: ClassVar[int] = 10051
    description: str = "general error"

    def __init__(self, description: str | None = None) -> None:
        if description is not None:
            self.description = description
        super().__init__(self.description)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.__dict__ | {"description": self.description})

    def __str__(self) -> str:
        return self.description

    def to_json(self) -> dict[str, int | str]:
        """The `error` object of an API response."""
        return {"code": self.code, "err_code": self.err_code, "description": self.description}


class BadRequest(ApiError):
    code, err_code, description = 400, 10003, "bad request"


class InvalidJson(ApiError):
    """JSON that does not parse, has an unknown field, or a field of another type."""

    code, err_code, description = 400, 10025, "invalid JSON"

    def __init__(self, why: str) -> None:
        super().__init__(f"invalid JSON: {why}")


class MsgNotFound(ApiError):
    code, err_code, description = 404, 10037, "no message found"


class InvalidConfig(ApiError):
    """A stream configuration that breaks a rule; the description names the rule."""

    code, err_code, description = 500, 10052, "stream configuration invalid"


class FeatureMissing(InvalidConfig):
    """A field of a configuration asks for something that this version of Penstock does not have."""

    def __init__(self, field: str, what: str) -> None:
        self.field = field
        super().__init__(f"{field}: this version of Penstock does not have {what} yet")


class MessageTooLarge(ApiError):
    code, err_code, description = 400, 10054, "message size exceeds maximum allowed"


class StreamNameMismatch(ApiError):
    code, err_code, description = 400, 10056, "stream name in subject does not match request"


class DeleteFailed(ApiError):
    code, err_code, description = 500, 10057, "message delete failed"


class DeniedDelete(DeleteFailed):
    description = "message delete not permitted"


class StreamNameInUse(ApiError):
    code, err_code, description = 400, 10058, "stream name already in use with a different configuration"


class StreamNotFound(ApiError):
    code, err_code, description = 404, 10059, "stream not found"


class ExpectedStreamMismatch(ApiError):
    code, err_code, description = 400, 10060, "expected stream does not match"


class SubjectOverlap(ApiError):
    code, err_code, description = 400, 10065, "subjects overlap with an existing stream"


class BadSubject(BadRequest):
    """A subject that no message can have: blanks, empty tokens, wildcards."""

    def __init__(self, subject: str) -> None:
        super().__init__(
            f"subject {subject!r}: a subject is one or more tokens without blanks or wildcards, split by dots"
        )


class SubjectNotInStream(BadRequest):
    def __init__(self, subject: str, stream: str, subjects: Sequence[str]) -> None:
        super().__init__(f"subject {subject!r} is not one of stream {stream}'s: {', '.join(subjects)}")


class WrongLastMsgId(ApiError):
    """`actual` is the id of the last message, empty where it had none."""

    code, err_code, description = 400, 10070, "wrong last msg ID"

    def __init__(self, actual: str) -> None:
        self.actual = actual
        super().__init__(f"wrong last msg ID: {actual}")


class WrongLastSequence(ApiError):
    """`actual` is the last sequence of the stream, or of the subject that was asked about."""

    code, err_code, description = 400, 10071, "wrong last sequence"

    def __init__(self, actual: int) -> None:
        self.actual = actual
        super().__init__(f"wrong last sequence: {actual}")


class ReplicasNotSupported(ApiError):
    code, err_code, description = 500, 10074, "replicas > 1 not supported in non-clustered mode"


class StoreFailed(ApiError):
    """The store refused the message: a limit with discard new, or a record that is too large."""

    code, err_code, description = 503, 10077, "store failed"


class RecordTooLarge(StoreFailed):
    description = "message too large"


class MaxMsgsExceeded(StoreFailed):
    description = "maximum messages exceeded"


class MaxBytesExceeded(StoreFailed):
    description = "maximum bytes exceeded"


class MaxMsgsPerSubjectExceeded(StoreFailed):
    description = "maximum messages per subject exceeded"


class HeadersTooLarge(ApiError):
    code, err_code, description = 400, 10097, "header size exceeds maximum allowed of 64k"


class StreamSealed(ApiError):
    code, err_code, description = 400, 10109, "invalid operation on sealed stream"


class PurgeFailed(ApiError):
    code, err_code, description = 500, 10110, "stream purge failed"


class DeniedPurge(PurgeFailed):
    description = "stream purge not permitted"


class RollupFailed(ApiError):
    code, err_code, description = 500, 10111, "rollup failed"


class RollupNotAllowed(RollupFailed):
    description = "rollup not permitted"


class BadRollup(RollupFailed):
    def __init__(self, value: str) -> None:
        super().__init__(f"rollup value invalid: {quote(value)}")


class BadStreamName(ApiError):
    code, err_code, description = 400, 10128, "Stream name can not contain path separators"


class NegativeReplicas(ApiError):
    code, err_code, description = 400, 10133, "replicas count cannot be negative"


class PedanticError(ApiError):
    """A default that would be filled in silently, in a request that asked for none of that."""

    code, err_code, description = 400, 10157, "pedantic mode"

    def __init__(self, why: str) -> None:
        super().__init__(f"pedantic mode: {why}")


class BadTransformSource(ApiError):
    code, err_code, description = 400, 10155, "stream transform source: invalid subject"

    def __init__(self, source: str) -> None:
        super().__init__(f"stream transform source: invalid subject {source}")


class BadTransformDestination(ApiError):
    code, err_code, description = 400, 10156, "stream transform: invalid subject"

    def __init__(self, reason: str) -> None:
        super().__init__(f"stream transform: {reason}")


class BadTtl(ApiError):
    code, err_code, description = 400, 10165, "invalid per-message TTL"


class TtlDisabled(ApiError):
    code, err_code, description = 400, 10166, "per-message TTL is disabled"


class CountersDisabled(ApiError):
    code, err_code, description = 400, 10168, "message counters is disabled"


class BadIncrement(ApiError):
    code, err_code, description = 400, 10171, "message counter increment is invalid"


class AtomicPublishDisabled(ApiError):
    code, err_code, description = 400, 10174, "atomic publish is disabled"


class BatchesDisabled(ApiError):
    code, err_code, description = 400, 10205, "batch publish is disabled"


class TooManyRequests(ApiError):
    code, err_code, description = 429, 10167, "too many requests"


class SchedulesDisabled(ApiError):
    code, err_code, description = 400, 10188, "message schedules is disabled"


class MissingSubjectSequence(ApiError):
    code, err_code, description = 400, 10193, "missing sequence for expected last sequence per subject"


class BadScheduler(ApiError):
    code, err_code, description = 400, 10212, "message schedules invalid scheduler"


class SourceHeaderNotAllowed(ApiError):
    code, err_code, description = 400, 10227, "message stream source header is not allowed"


class AccountLimitsExceeded(ApiError):
    code, err_code, description = 400, 10002, "resource limits exceeded for account"


class ClusterRequired(ApiError):
    code, err_code, description = 503, 10010, "JetStream clustering support required"


class ConsumersMissing(ApiError):
    """Consumers are of a later version; the code is that of a consumer that could not be created."""

    code, err_code = 500, 10012
    description = "consumers: this version of Penstock does not have them yet"


class ConsumerNotFound(ApiError):
    code, err_code, description = 404, 10014, "consumer not found"


class ResourcesExhausted(ApiError):
    code, err_code, description = 503, 10023, "insufficient resources"


class MaxConsumersReached(ApiError):
    code, err_code, description = 400, 10026, "maximum consumers limit reached"


class MaxStreamsReached(ApiError):
    code, err_code, description = 400, 10027, "maximum number of streams reached"


class MemoryExceeded(ApiError):
    code, err_code, description = 500, 10028, "insufficient memory resources available"


class NotEmptyRequest(ApiError):
    code, err_code, description = 400, 10038, "expected an empty request payload"


class NotEnabledForAccount(ApiError):
    code, err_code, description = 503, 10039, "JetStream not enabled for account"


class SequenceNotFound(ApiError):
    code, err_code, description = 400, 10043, "sequence not found"

    def __init__(self, seq: int) -> None:
        super().__init__(f"sequence {seq} not found")


class StorageExceeded(ApiError):
    code, err_code, description = 500, 10047, "insufficient storage resources available"


class StreamCreateFailed(ApiError):
    code, err_code, description = 500, 10049, "error creating store for stream"


class StreamDeleteFailed(ApiError):
    code, err_code, description = 500, 10050, "stream delete failed"


class StreamUpdateFailed(ApiError):
    code, err_code, description = 500, 10069, "stream update failed"


class MaxBytesRequired(ApiError):
    code, err_code, description = 400, 10113, "account requires a stream config to have max bytes set"


class MaxStreamBytesExceeded(ApiError):
    code, err_code, description = 400, 10122, "stream max bytes exceeds account limit max stream bytes"


class ApiLevelRequired(ApiError):
    code, err_code, description = 412, 10185, "JetStream minimum api level required"


# ---------------------------------------------------------------------------------------------------------- the store


class StoreError(PenstockError):
    """The files of a store are not what they should be, or cannot be reached: the operator is told."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.__dict__ | {"args": self.args})


class CorruptBlock(StoreError):
    """Damage at a place in a file; what it covers is lost, the rest is not."""

    def __init__(self, path: str | os.PathLike[str], offset: int, reason: str) -> None:
        self.path, self.offset, self.reason = os.fspath(path), offset, reason
        super().__init__(f"{self.path} at byte {offset}: {reason}")


class StoreLocked(StoreError):
    """Another process writes to the store; `holder` has its pid, host, since and command, as far as they are known."""

    def __init__(self, path: str | os.PathLike[str], holder: Mapping[str, Any]) -> None:
        self.path, self.holder = os.fspath(path), dict(holder)
        pid, host, since, command = (self.holder.get(key) or "unknown" for key in ("pid", "host", "since", "command"))
        super().__init__(
            f"{self.path} is open for writing in another process: pid {pid} on host {host} since {since}, "
            f"command {command}. Close it there (or stop that process), or open the store read-only here"
        )


class StoreClosed(StoreError):
    """The store, or this handle of it, was closed."""

    def __init__(self, what: str = "the store is closed") -> None:
        super().__init__(what)


class ReadOnlyStore(StoreError):
    """A write to a store that was opened for reading, or lies in a directory that cannot be written."""

    def __init__(self, path: str | os.PathLike[str], why: str = "it was opened read-only") -> None:
        self.path, self.why = os.fspath(path), why
        super().__init__(f"cannot write to {self.path}: {why}")


class WriteFailed(StoreError):
    """The system refused a disk call. Nothing unsaved was acknowledged; writing resumes once the cause is gone."""

    def __init__(self, op: str, path: str | os.PathLike[str], errno: int) -> None:
        self.op, self.path, self.errno = op, os.fspath(path), errno
        name = errno_names.errorcode.get(errno, f"errno {errno}")
        super().__init__(f"{op} of {self.path} failed: {os.strerror(errno)} ({name})")


class DiskFull(WriteFailed):
    """No space is left, or the quota is used up."""

    def __init__(self, op: str, path: str | os.PathLike[str], errno: int = errno_names.ENOSPC) -> None:
        super().__init__(op, path, errno)


class NewerFormat(StoreError):
    """A file that a newer version of Penstock wrote; it is left as it is."""

    def __init__(self, path: str | os.PathLike[str], version: int) -> None:
        self.path, self.version = os.fspath(path), version
        super().__init__(f"{self.path} has format version {version}, newer than this Penstock: upgrade to read it")


class NotAStore(StoreError):
    """A path that holds no store, and is not a place where one can be made."""

    def __init__(self, path: str | os.PathLike[str], why: str) -> None:
        self.path, self.why = os.fspath(path), why
        super().__init__(f"{self.path} is not a Penstock store: {why}")


class ForkedHandle(StoreError):
    """A handle that came through a fork: two writers on one file would be corruption."""

    def __init__(self, what: str = "the store") -> None:
        super().__init__(f"{what} was opened before this process forked: open it again in the child")


# ------------------------------------------------------------------------------------------------------ reads, batches


class ReadError(PenstockError):
    """A read that found no message. The kinds are told apart: past the end, deleted, never there."""


class EndOfStream(ReadError):
    """The sequence lies above the last one."""

    def __init__(self, seq: int, last_seq: int) -> None:
        self.seq, self.last_seq = seq, last_seq
        super().__init__(f"sequence {seq} is past the end: the last one is {last_seq}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.seq, self.last_seq)


class MessageDeleted(ReadError):
    """The sequence held a message that was deleted, erased, purged or has expired."""

    def __init__(self, seq: int) -> None:
        self.seq = seq
        super().__init__(f"message {seq} was deleted")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.seq,)


class MessageNotFound(ReadError):
    """No message has this sequence, or matches this subject."""

    def __init__(self, what: int | str) -> None:
        self.what = what
        super().__init__(f"no message {what}" if isinstance(what, int) else f"no message matches {what}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.what,)


class PublishRefused(PenstockError):
    """Some messages of a batch were refused; the others are stored.

    `refused` lists (index, error) in the order of the batch; `acks` is indexed like the batch and holds None where a
    message was refused. `count` messages were given.
    """

    def __init__(
        self,
        refused: Sequence[tuple[int, ApiError]],
        acks: Sequence[Any],
        count: int,
        first_subject: str = "",
    ) -> None:
        self.refused, self.acks, self.count, self.first_subject = list(refused), acks, count, first_subject
        index, why = self.refused[0]
        place = f"#{index} {first_subject}" if first_subject else f"#{index}"
        super().__init__(f"{len(self.refused)} of {count} messages refused; first: {place}: {why}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.refused, self.acks, self.count, self.first_subject)


# ------------------------------------------------------------------------------------------------------------- helpers

_ESCAPES = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
_ESCAPES |= {'"': '\\"', "\\": "\\\\"}


def quote(text: str) -> str:
    """`text` in double quotes as Go's %q prints it: JetStream's texts quote names so."""
    return '"' + "".join(map(_quote_one, text)) + '"'


def _quote_one(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    point = ord(char)
    if 0xDC80 <= point <= 0xDCFF:  # a byte that is not UTF-8, as surrogateescape keeps it
        return f"\\x{point - 0xDC00:02x}"
    if point < 0x80:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"


def _rebuild(kind: type[PenstockError], state: dict[str, Any]) -> PenstockError:
    """Unpickle an error whose arguments differ from its text (Spark and multiprocessing send errors about)."""
    error = kind.__new__(kind)
    error.args = tuple(state.pop("args", (state.get("description"),)))
    error.__dict__.update(state)
    return error
