"""PenstockError: every error we raise on purpose, grouped by who is told.

  ProtocolError      the client hears -ERR
  ApiError           the caller gets code, err_code and description as JSON; codes and texts are JetStream's
  StoreError         the operator is told, and the stream stops taking writes
    CorruptBlock     "000007.blk at byte 4096: checksum differs": the thing, the place, the reason
  PullRefused        a pull request hears a status, such as "409 Consumer is push based"
  ReadError          a read found no message: past the end, deleted, never there
  BucketError        a key or an object cannot be had, put or named so; KeyNotFound, ObjectNotFound are ReadErrors too
  PublishRefused     some messages of a batch were refused; it holds the acks of the others

JetStream has many more errors; here are those that a stream, its publish path and its consumers can raise.
"""

from __future__ import annotations

import errno as errno_names
import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar


class PenstockError(Exception):
    """Everything that Penstock raises on purpose."""


class UsageError(PenstockError):
    """The command cannot be run as it was given: one line says why, and what to write instead."""


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
        self.why = why
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


class SnapshotMissing(ApiError):
    code, err_code = 500, 10064
    description = (
        "snapshot failed: this version of Penstock does not have snapshots of streams yet; stop the server and copy "
        "the store's folder, or use `penstock export`"
    )


class RestoreMissing(ApiError):
    code, err_code = 500, 10062
    description = (
        "restore failed: this version of Penstock does not have snapshots of streams yet; `penstock import` takes "
        "messages with their sequences and times"
    )


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


# --------------------------------------------------------------------------------------------------------- consumers


class PullRefused(PenstockError):
    """A pull request that is answered with a status in place of messages; `str()` gives the status line."""

    def __init__(self, code: int, text: str) -> None:
        self.code, self.text = code, text
        super().__init__(code, text)

    def __str__(self) -> str:
        return f"{self.code} {self.text}"


class ConsumerCreateFailed(ApiError):
    """A consumer that cannot be made or changed so; the description names the rule."""

    code, err_code, description = 500, 10012, "consumer create failed"


class ConsumerNameInUse(ApiError):
    code, err_code, description = 400, 10013, "consumer name already in use"


class DurableNotInSubject(ApiError):
    code, err_code, description = 400, 10016, "consumer expected to be durable but no durable name set in subject"


class DurableMismatch(ApiError):
    code, err_code, description = 400, 10017, "consumer name in subject does not match durable name in request"


class DurableNotSet(ApiError):
    code, err_code, description = 400, 10018, "consumer expected to be durable but a durable name was not set"


class EphemeralWithDurable(ApiError):
    code, err_code, description = 400, 10020, "consumer expected to be ephemeral but a durable name was set in request"


class DeliverToWildcards(ApiError):
    code, err_code, description = 400, 10079, "consumer deliver subject has wildcards"


class PushWithMaxWaiting(ApiError):
    code, err_code, description = 400, 10080, "consumer in push mode can not set max waiting"


class DeliverCycle(ApiError):
    code, err_code, description = 400, 10081, "consumer deliver subject forms a cycle"


class AckPolicyRequired(ApiError):
    code, err_code, description = 400, 10082, "consumer requires ack policy for max ack pending"


class HeartbeatTooShort(ApiError):
    code, err_code, description = 400, 10083, "consumer idle heartbeat needs to be >= 100ms"


class PullRequiresAck(ApiError):
    code, err_code, description = 400, 10084, "consumer in pull mode requires explicit ack policy on workqueue stream"


class PullWithRateLimit(ApiError):
    code, err_code, description = 400, 10086, "consumer in pull mode can not have rate limit set"


class HeartbeatRequiresPush(ApiError):
    code, err_code, description = 400, 10088, "consumer idle heartbeat requires a push based consumer"


class FlowControlRequiresPush(ApiError):
    code, err_code, description = 400, 10089, "consumer flow control requires a push based consumer"


class DirectRequiresPush(ApiError):
    code, err_code, description = 400, 10090, "consumer direct requires a push based consumer"


class DirectRequiresEphemeral(ApiError):
    code, err_code, description = 400, 10091, "consumer direct requires an ephemeral consumer"


class BadDeliverPolicy(ApiError):
    code, err_code, description = 400, 10094, "consumer delivery policy invalid"


class BadSampling(ApiError):
    code, err_code, description = 400, 10095, "failed to parse consumer sampling configuration"

    def __init__(self, why: str) -> None:
        super().__init__(f"failed to parse consumer sampling configuration: {why}")


class WorkQueueRequiresExplicitAck(ApiError):
    code, err_code, description = 400, 10098, "workqueue stream requires explicit ack"


class WorkQueueMultipleUnfiltered(ApiError):
    code, err_code, description = 400, 10099, "multiple non-filtered consumers not allowed on workqueue stream"


class WorkQueueNotUnique(ApiError):
    code, err_code, description = 400, 10100, "filtered consumer not unique on workqueue stream"


class WorkQueueNotDeliverAll(ApiError):
    code, err_code, description = 400, 10101, "consumer must be deliver all on workqueue stream"


class ConsumerNameTooLong(ApiError):
    code, err_code, description = 400, 10102, "consumer name is too long, maximum allowed is"

    def __init__(self, maximum: int) -> None:
        super().__init__(f"consumer name is too long, maximum allowed is {maximum}")


class ConsumerDescriptionTooLong(ApiError):
    code, err_code, description = 400, 10107, "consumer description is too long, maximum allowed is"

    def __init__(self, maximum: int) -> None:
        super().__init__(f"consumer description is too long, maximum allowed is {maximum}")


class FlowControlNeedsHeartbeats(ApiError):
    code, err_code, description = 400, 10108, "consumer with flow control also needs heartbeats"


class BadDeliverSubject(ApiError):
    code, err_code, description = 400, 10112, "invalid push consumer deliver subject"


class MaxExpiresTooShort(ApiError):
    code, err_code, description = 400, 10115, "consumer max request expires needs to be >= 1ms"


class BackoffBeyondMaxDeliver(ApiError):
    code, err_code, description = 400, 10116, "max deliver is required to be > length of backoff values"


class MaxAckPendingExceeded(ApiError):
    code, err_code, description = 400, 10121, "consumer max ack pending exceeds system limit of"

    def __init__(self, limit: int) -> None:
        super().__init__(f"consumer max ack pending exceeds system limit of {limit}")


class MaxRequestBatchExceeded(ApiError):
    code, err_code, description = 400, 10125, "consumer max request batch exceeds server limit of"

    def __init__(self, limit: int) -> None:
        super().__init__(f"consumer max request batch exceeds server limit of {limit}")


class ConsumerReplicasExceeded(ApiError):
    code, err_code, description = 400, 10126, "consumer config replica count exceeds parent stream"


class BadConsumerName(ApiError):
    code, err_code, description = 400, 10127, "Consumer name can not contain path separators"


class FilterMismatch(ApiError):
    code, err_code = 400, 10131
    description = "Consumer create request did not match filtered subject from create subject"


class DurableAndNameMismatch(ApiError):
    code, err_code, description = 400, 10132, "Consumer Durable and Name have to be equal if both are provided"


class ReplicasMustMatchStream(ApiError):
    code, err_code, description = 400, 10134, "consumer config replicas must match interest retention stream's replicas"


class ConsumerMetadataTooLong(ApiError):
    code, err_code, description = 400, 10135, "consumer metadata exceeds maximum size of"

    def __init__(self, limit: str) -> None:
        super().__init__(f"consumer metadata exceeds maximum size of {limit}")


class DuplicateFilters(ApiError):
    code, err_code, description = 400, 10136, "consumer cannot have both FilterSubject and FilterSubjects specified"


class MultipleFiltersInSubject(ApiError):
    code, err_code, description = 400, 10137, "consumer with multiple subject filters cannot use subject based API"


class OverlappingFilters(ApiError):
    code, err_code, description = 400, 10138, "consumer subject filters cannot overlap"


class EmptyFilter(ApiError):
    code, err_code, description = 400, 10139, "consumer filter in FilterSubjects cannot be empty"


class ConsumerAlreadyExists(ApiError):
    code, err_code, description = 400, 10148, "consumer already exists"


class ConsumerDoesNotExist(ApiError):
    code, err_code, description = 400, 10149, "consumer does not exist"


class InactiveThresholdExceeded(ApiError):
    code, err_code, description = 400, 10153, "consumer inactive threshold exceeds system limit of"

    def __init__(self, limit: str) -> None:
        super().__init__(f"consumer inactive threshold exceeds system limit of {limit}")


class PriorityPolicyWithoutGroup(ApiError):
    code, err_code, description = 400, 10159, "Setting PriorityPolicy requires at least one PriorityGroup to be set"


class BadPriorityGroup(ApiError):
    code, err_code, description = 400, 10160, "Provided priority group does not exist for this consumer"


class EmptyGroupName(ApiError):
    code, err_code, description = 400, 10161, "Group name cannot be an empty string"


class BadGroupName(ApiError):
    code, err_code = 400, 10162
    description = "Valid priority group name must match A-Z, a-z, 0-9, -_/=)+ and may not exceed 16 characters"


class PushWithPriorityGroup(ApiError):
    code, err_code, description = 400, 10178, "priority groups can not be used with push consumers"


class NegativeAckWait(ApiError):
    code, err_code, description = 400, 10183, "consumer ack wait needs to be positive"


class NegativeBackoff(ApiError):
    code, err_code, description = 400, 10184, "consumer backoff needs to be positive"


class PriorityGroupWithoutPolicy(ApiError):
    code, err_code, description = 400, 10196, "consumer can not have priority groups when policy is none"


class PriorityTimeoutWithoutPolicy(ApiError):
    code, err_code, description = 400, 10197, "PinnedTTL cannot be set when PriorityPolicy is none"


class InvalidReset(ApiError):
    code, err_code, description = 400, 10204, "invalid reset"

    def __init__(self, why: str) -> None:
        super().__init__(f"invalid reset: {why}")


class FlowControlAckRequiresPush(ApiError):
    code, err_code, description = 400, 10218, "flow control ack policy requires a push based consumer"


class FlowControlAckRequiresFlowControl(ApiError):
    code, err_code, description = 400, 10219, "flow control ack policy requires flow control"


class FlowControlAckRequiresMaxAckPending(ApiError):
    code, err_code, description = 400, 10220, "flow control ack policy requires max ack pending"


class FlowControlAckRequiresNoAckWait(ApiError):
    code, err_code, description = 400, 10221, "flow control ack policy requires unset ack wait"


class FlowControlAckRequiresNoMaxDeliver(ApiError):
    code, err_code, description = 400, 10222, "flow control ack policy requires unset max deliver"


class StreamIdentityMismatch(ApiError):
    """A consumer was asked for of a stream that has another identity: it was created anew meanwhile."""

    code, err_code, description = 400, 10225, "consumer's stream identity does not match"

    def __init__(self, identity: str) -> None:
        super().__init__(f"consumer's stream identity does not match: {identity}")


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
    """Somebody writes to the store; `holder` has the pid, host, since and command, as far as they are known."""

    def __init__(self, path: str | os.PathLike[str], holder: Mapping[str, Any]) -> None:
        self.path, self.holder = os.fspath(path), dict(holder)
        pid, host, since, command = (self.holder.get(key) or "unknown" for key in ("pid", "host", "since", "command"))
        if (pid, host) == (os.getpid(), os.uname().nodename):
            super().__init__(
                f"{self.path} is open for writing in this process already, since {since}: use that database, or close "
                "it first (`with penstock.open(...)` does); read_only=True opens it for reading beside it"
            )
            return
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


class AccountNotFound(StoreError):
    """A store has no such account."""


class AmbiguousStream(StoreError):
    """A stream's bare name, which several accounts of the store have."""


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


class ConsumerDeleted(ConsumerNotFound):
    """A handle of a consumer that was deleted meanwhile."""

    def __init__(self, stream: str, name: str) -> None:
        super().__init__(f"consumer {name} of stream {stream} was deleted: open another with stream.consumer()")


class FetchRefused(PenstockError):
    """A consumer that gives the library nothing, or not so much at once."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"nothing can be fetched from {what}: {why}")


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


# ------------------------------------------------------------------------------------------------------------- buckets


class BucketError(PenstockError):
    """Something that a key-value bucket or an object store does not do; the text names the bucket and the thing."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.__dict__ | {"args": self.args})


class BadBucketName(BucketError, ValueError):
    def __init__(self, name: object) -> None:
        super().__init__(f"bucket name {name!r}: letters, digits, - and _ only")


class BucketNotFound(BucketError):
    def __init__(self, bucket: str, kind: str, path: str, others: Sequence[str]) -> None:
        super().__init__(f"there is no {kind} {bucket!r} in {path}; there are: {', '.join(others) or 'none'}")


class NotABucket(BucketError):
    """A stream with the name of a bucket's that is not one."""

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
    """The key has another revision than the caller believed (`actual`; 0: it has none): somebody else was faster."""

    def __init__(self, bucket: str, key: str, wanted: int, actual: int) -> None:
        self.bucket, self.key, self.wanted, self.actual = bucket, key, wanted, actual
        super().__init__(
            f"key {key!r} of bucket {bucket} is at revision {actual}, not {wanted}: get it again, then decide anew"
        )


class KeyExists(RevisionMismatch):
    """`create` of a key that has a value."""

    def __init__(self, bucket: str, key: str, actual: int) -> None:
        super().__init__(bucket, key, 0, actual)
        self.args = (f"bucket {bucket} has key {key!r} already, at revision {actual}: `put` or `update` it",)


class ObjectNotFound(BucketError, ReadError):
    """No object has this name, or it was deleted."""

    def __init__(self, bucket: str, name: str, why: str = "") -> None:
        self.bucket, self.name = bucket, name
        super().__init__(f"object store {bucket} has no object {name!r}" + (f": {why}" if why else ""))


class ObjectExists(BucketError):
    """The name is another object's."""

    def __init__(self, bucket: str, name: str) -> None:
        self.bucket, self.name = bucket, name
        super().__init__(f"object store {bucket} has an object {name!r} already: delete it first, or take another name")


class BadObject(BucketError):
    """An object that cannot be given out as it was put: its meta does not parse, or chunks are missing or differ."""

    def __init__(self, bucket: str, name: str, why: str) -> None:
        self.bucket, self.name = bucket, name
        super().__init__(f"object {name!r} of object store {bucket}: {why}")


class BadLink(BucketError, ValueError):
    """A link that may not be, or that leads to no single object."""


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
