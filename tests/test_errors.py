"""The error tree: codes and texts as the reference's list has them, texts that name the remedy, pickling."""

from __future__ import annotations

import errno
import pickle
import runpy
from pathlib import Path

import pytest

from penstock import errors
from penstock.errors import (
    ApiError,
    CorruptBlock,
    DiskFull,
    EndOfStream,
    FeatureMissing,
    ForkedHandle,
    InvalidJson,
    MessageDeleted,
    MessageNotFound,
    NewerFormat,
    NotAStore,
    PenstockError,
    PublishRefused,
    ReadOnlyStore,
    StoreClosed,
    StoreError,
    StoreLocked,
    StreamNotFound,
    WriteFailed,
    WrongLastMsgId,
    WrongLastSequence,
    quote,
)

API_ERRORS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, ApiError) and kind is not ApiError
]

# code, err_code and text as nats-server 2.15 has them, for errors whose text is fixed there.
REFERENCE = {
    10003: (400, "bad request"),
    10037: (404, "no message found"),
    10054: (400, "message size exceeds maximum allowed"),
    10056: (400, "stream name in subject does not match request"),
    10058: (400, "stream name already in use with a different configuration"),
    10059: (404, "stream not found"),
    10225: (400, "consumer's stream identity does not match"),
    10060: (400, "expected stream does not match"),
    10065: (400, "subjects overlap with an existing stream"),
    10074: (500, "replicas > 1 not supported in non-clustered mode"),
    10097: (400, "header size exceeds maximum allowed of 64k"),
    10109: (400, "invalid operation on sealed stream"),
    10128: (400, "Stream name can not contain path separators"),
    10133: (400, "replicas count cannot be negative"),
    10165: (400, "invalid per-message TTL"),
    10166: (400, "per-message TTL is disabled"),
    10168: (400, "message counters is disabled"),
    10171: (400, "message counter increment is invalid"),
    10174: (400, "atomic publish is disabled"),
    10188: (400, "message schedules is disabled"),
    10193: (400, "missing sequence for expected last sequence per subject"),
    10212: (400, "message schedules invalid scheduler"),
    10227: (400, "message stream source header is not allowed"),
    10002: (400, "resource limits exceeded for account"),
    10010: (503, "JetStream clustering support required"),
    10014: (404, "consumer not found"),
    10023: (503, "insufficient resources"),
    10026: (400, "maximum consumers limit reached"),
    10027: (400, "maximum number of streams reached"),
    10028: (500, "insufficient memory resources available"),
    10038: (400, "expected an empty request payload"),
    10039: (503, "JetStream not enabled for account"),
    10047: (500, "insufficient storage resources available"),
    10113: (400, "account requires a stream config to have max bytes set"),
    10122: (400, "stream max bytes exceeds account limit max stream bytes"),
    10167: (429, "too many requests"),
    10185: (412, "JetStream minimum api level required"),
    10205: (400, "batch publish is disabled"),
    10013: (400, "consumer name already in use"),
    10016: (400, "consumer expected to be durable but no durable name set in subject"),
    10017: (400, "consumer name in subject does not match durable name in request"),
    10018: (400, "consumer expected to be durable but a durable name was not set"),
    10020: (400, "consumer expected to be ephemeral but a durable name was set in request"),
    10079: (400, "consumer deliver subject has wildcards"),
    10080: (400, "consumer in push mode can not set max waiting"),
    10081: (400, "consumer deliver subject forms a cycle"),
    10082: (400, "consumer requires ack policy for max ack pending"),
    10083: (400, "consumer idle heartbeat needs to be >= 100ms"),
    10084: (400, "consumer in pull mode requires explicit ack policy on workqueue stream"),
    10086: (400, "consumer in pull mode can not have rate limit set"),
    10088: (400, "consumer idle heartbeat requires a push based consumer"),
    10089: (400, "consumer flow control requires a push based consumer"),
    10090: (400, "consumer direct requires a push based consumer"),
    10091: (400, "consumer direct requires an ephemeral consumer"),
    10098: (400, "workqueue stream requires explicit ack"),
    10099: (400, "multiple non-filtered consumers not allowed on workqueue stream"),
    10100: (400, "filtered consumer not unique on workqueue stream"),
    10101: (400, "consumer must be deliver all on workqueue stream"),
    10108: (400, "consumer with flow control also needs heartbeats"),
    10112: (400, "invalid push consumer deliver subject"),
    10115: (400, "consumer max request expires needs to be >= 1ms"),
    10116: (400, "max deliver is required to be > length of backoff values"),
    10126: (400, "consumer config replica count exceeds parent stream"),
    10127: (400, "Consumer name can not contain path separators"),
    10131: (400, "Consumer create request did not match filtered subject from create subject"),
    10132: (400, "Consumer Durable and Name have to be equal if both are provided"),
    10134: (400, "consumer config replicas must match interest retention stream's replicas"),
    10136: (400, "consumer cannot have both FilterSubject and FilterSubjects specified"),
    10137: (400, "consumer with multiple subject filters cannot use subject based API"),
    10138: (400, "consumer subject filters cannot overlap"),
    10139: (400, "consumer filter in FilterSubjects cannot be empty"),
    10148: (400, "consumer already exists"),
    10149: (400, "consumer does not exist"),
    10159: (400, "Setting PriorityPolicy requires at least one PriorityGroup to be set"),
    10160: (400, "Provided priority group does not exist for this consumer"),
    10161: (400, "Group name cannot be an empty string"),
    10162: (400, "Valid priority group name must match A-Z, a-z, 0-9, -_/=)+ and may not exceed 16 characters"),
    10178: (400, "priority groups can not be used with push consumers"),
    10183: (400, "consumer ack wait needs to be positive"),
    10184: (400, "consumer backoff needs to be positive"),
    10196: (400, "consumer can not have priority groups when policy is none"),
    10197: (400, "PinnedTTL cannot be set when PriorityPolicy is none"),
    10218: (400, "flow control ack policy requires a push based consumer"),
    10219: (400, "flow control ack policy requires flow control"),
    10220: (400, "flow control ack policy requires max ack pending"),
    10221: (400, "flow control ack policy requires unset ack wait"),
    10222: (400, "flow control ack policy requires unset max deliver"),
}
REFERENCE_CODES = {
    10094: 400,
    10095: 400,
    10102: 400,
    10107: 400,
    10121: 400,
    10125: 400,
    10135: 400,
    10153: 400,
    10204: 400,
    10012: 500,
    10025: 400,
    10043: 400,
    10049: 500,
    10050: 500,
    10052: 500,
    10057: 500,
    10062: 500,
    10064: 500,
    10069: 500,
    10070: 400,
    10071: 400,
    10077: 503,
    10110: 500,
    10111: 500,
    10155: 400,
    10156: 400,
    10157: 400,
}


@pytest.mark.parametrize("kind", API_ERRORS, ids=lambda kind: kind.__name__)
def test_api_errors_have_the_codes_and_texts_of_the_reference(kind: type[ApiError]) -> None:
    if kind.err_code in REFERENCE:
        assert (kind.code, kind.description) == REFERENCE[kind.err_code]
    else:
        assert kind.code == REFERENCE_CODES[kind.err_code]


def test_an_api_error_shows_its_description_and_its_json() -> None:
    error = StreamNotFound()
    assert str(error) == "stream not found"
    assert error.to_json() == {"code": 404, "err_code": 10059, "description": "stream not found"}
    assert WrongLastSequence(7).to_json()["description"] == "wrong last sequence: 7"
    assert StreamNotFound.description == "stream not found", "an instance never changes its class"


def test_the_holder_of_a_lock_is_named_with_the_remedy() -> None:
    holder = {"pid": 42, "host": "db1", "since": "2026-11-01T10:00:00Z", "command": "penstock serve"}
    text = str(StoreLocked("/data", holder))
    for part in ("/data", "pid 42", "host db1", "since 2026-11-01T10:00:00Z", "penstock serve", "read-only"):
        assert part in text
    assert "pid unknown" in str(StoreLocked("/data", {})), "a holder that left no word is still an error, not a crash"


def test_store_errors_name_the_thing_the_place_and_the_reason() -> None:
    assert str(CorruptBlock("000007.blk", 4096, "checksum differs")) == "000007.blk at byte 4096: checksum differs"
    assert str(WriteFailed("fdatasync", "a.blk", errno.EIO)) == "fdatasync of a.blk failed: Input/output error (EIO)"
    assert "No space left" in str(DiskFull("write", "a.blk"))
    assert "version 9" in str(NewerFormat("a.blk", 9))


def test_a_refused_batch_counts_and_names_the_first() -> None:
    refused = [(17, WrongLastSequence(3)), (20, StreamNotFound())]
    error = PublishRefused(refused, [None] * 1000, 1000, "orders.x")
    assert str(error) == "2 of 1000 messages refused; first: #17 orders.x: wrong last sequence: 3"
    assert error.refused == refused


@pytest.mark.parametrize(
    "error",
    [
        StreamNotFound(),
        WrongLastSequence(7),
        WrongLastMsgId("x"),
        InvalidJson("why"),
        FeatureMissing("mirror", "mirrors"),
        CorruptBlock("a", 1, "r"),
        StoreLocked("a", {"pid": 1}),
        StoreClosed(),
        ReadOnlyStore("a"),
        WriteFailed("write", "a", errno.EIO),
        DiskFull("write", "a"),
        NewerFormat("a", 2),
        NotAStore("a", "it is a file"),
        ForkedHandle(),
        EndOfStream(9, 5),
        MessageDeleted(4),
        MessageNotFound("a.b"),
        PublishRefused([(0, StreamNotFound())], [None], 1),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_survive_pickling(error: PenstockError) -> None:
    """Spark and multiprocessing send them from one process to another."""
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert {k: str(v) for k, v in vars(again).items()} == {k: str(v) for k, v in vars(error).items()} or isinstance(
        error, ApiError
    )


def test_the_tree_is_grouped_by_who_is_told() -> None:
    assert issubclass(DiskFull, StoreError)
    assert not issubclass(StreamNotFound, StoreError)
    for kind in (EndOfStream, MessageDeleted, MessageNotFound):
        assert issubclass(kind, errors.ReadError)


@pytest.mark.parametrize(
    ("text", "quoted"),
    [("a", '"a"'), ('a"\\', '"a\\"\\\\"'), ("\n\x00\x7f", '"\\n\\x00\\x7f"'), ("é\udcff\u200b", '"é\\xff\\u200b"')],
)
def test_quote_prints_as_go_does(text: str, quoted: str) -> None:
    assert quote(text) == quoted


def test_the_generated_classes_are_those_of_the_table() -> None:
    tool = runpy.run_path(str(Path(__file__).parents[1] / "tools" / "make_api_errors.py"))
    assert tool["make_module"](tool["TABLE"].read_text()) == tool["MODULE"].read_text(), "run tools/make_api_errors.py"


def test_every_error_is_imported_from_one_place() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    assert all(issubclass(kind, PenstockError) and kind.__module__ == "penstock.errors" for kind in kinds)
    assert len(kinds) > len(API_ERRORS) > 100
