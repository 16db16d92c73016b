"""STREAM.MSG: get or delete one stored message."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

from penstock.api.call import Answer, Call, Endpoint, Fields
from penstock.base.subject import is_valid_filter
from penstock.broker.streams.endpoint import StreamEndpoint
from penstock.db.stream import Stream
from penstock.errors import (
    BadRequest,
    CorruptBlock,
    DeleteFailed,
    DeniedDelete,
    MsgNotFound,
    SequenceNotFound,
    StoreError,
    StreamSealed,
)
from penstock.store.read.message import Message
from penstock.wire.go_decode import Struct
from penstock.wire.go_json import time_text

SEQ_STOP = 2**63
GET_FIELDS = {
    "seq": "uint64",
    "last_by_subj": "string",
    "next_by_subj": "string",
    "batch": "int",
    "max_bytes": "int",
    "start_time": "time.Time",
    "multi_last": "[]string",
    "up_to_seq": "uint64",
    "up_to_time": "time.Time",
    "no_hdr": "bool",
}
GET = Struct("server.JSApiMsgGetRequest", GET_FIELDS)
_DELETE = Struct("server.JSApiMsgDeleteRequest", {"seq": "uint64", "no_erase": "bool"})


def get(call: Call) -> Answer:
    if call.is_empty:
        raise BadRequest
    wanted = call.decode(GET)
    seq, last, after = wanted.get("seq", 0), wanted.get("last_by_subj", ""), wanted.get("next_by_subj", "")
    start = wanted.get("start_time")
    if wanted.get("batch", 0) > 0 or wanted.get("max_bytes", 0) > 0:
        raise BadRequest
    if (
        not (seq or last or after or start is not None)
        or (seq and (last or start is not None))
        or (last and (after or start is not None))
    ):
        raise BadRequest
    stream = call.account.stream(call.names[0]).stream
    if not stream.try_lock():
        return _get_later(stream, wanted)
    try:
        return _get(stream, wanted)
    finally:
        stream.unlock()


async def _get_later(stream: Stream, wanted: dict[str, Any]) -> Fields:
    """Get a message while another thread holds the stream's lock: a helper thread waits, not the loop."""

    def wait() -> Fields:
        with stream.locked():
            return _get(stream, wanted)

    return await asyncio.to_thread(wait)


def _get(stream: Stream, wanted: dict[str, Any]) -> Fields:
    try:
        message = stream.store.engine.load(find_seq(stream, wanted))
    except CorruptBlock:  # the store has logged it
        message = 0
    if type(message) is not Message:
        raise MsgNotFound
    fields: Fields = {"subject": message.subject, "seq": message.seq}
    headers = message.raw_headers
    if headers and not wanted.get("no_hdr"):
        fields["hdrs"] = base64.b64encode(headers).decode()
    if message.data:
        fields["data"] = base64.b64encode(message.data).decode()
    fields["time"] = time_text(message.time_ns)
    return {"message": fields}


def find_seq(stream: Stream, wanted: dict[str, Any]) -> int:
    """The sequence that a get asks for; 0: none. A message may be missing there. The caller holds the stream's lock."""
    engine = stream.store.engine
    start, after, seq = wanted.get("start_time"), wanted.get("next_by_subj", ""), wanted.get("seq", 0)
    if start is not None:
        seq = engine.seq_from_time(start)
    if after:
        return stream.store.query.next_seq([after], min(seq, SEQ_STOP - 1)) if is_valid_filter(after) else 0
    if not seq:
        seq = last_seq(stream, wanted.get("last_by_subj", ""))
    return int(seq)


def last_seq(stream: Stream, subject: str) -> int:
    """The last durable sequence of a subject or filter; 0 if there is none."""
    if not is_valid_filter(subject):
        return 0
    engine, query = stream.store.engine, stream.store.query
    seq = query.last_seq([subject])
    return seq if seq <= engine.committed_seq else query.prev_seq([subject], engine.committed_seq)


def delete(call: Call) -> Answer:
    if call.is_empty:
        raise BadRequest
    wanted = call.decode(_DELETE)
    endpoint = call.account.stream(call.names[0])
    config = endpoint.stream.config
    if config.sealed:
        raise StreamSealed
    if config.deny_delete:
        raise DeniedDelete
    return _delete(endpoint, wanted.get("seq", 0), wanted.get("no_erase", False))


async def _delete(endpoint: StreamEndpoint, seq: int, no_erase: bool) -> Fields:
    await endpoint.settled()
    stream = endpoint.stream
    index = stream.store.index
    if stream.config.storage == "file":
        if seq > index.last_seq:
            return {"error": DeleteFailed("stream store EOF").to_json()}
        if seq < index.first_seq:
            return {"error": DeleteFailed("no message found").to_json()}
    remove = stream.delete if no_erase else stream.erase
    try:
        is_gone = 0 < seq < SEQ_STOP and await asyncio.to_thread(remove, seq)
    except StoreError as error:
        return {"error": DeleteFailed(str(error)).to_json()}
    endpoint.dispatcher.committed()  # it may have been some consumer's next candidate
    return {"success": True} if is_gone else {"error": SequenceNotFound(seq).to_json()}


ENDPOINTS = (
    Endpoint("STREAM.MSG.GET", 1, "stream_msg_get_response", get, is_quiet=True),
    Endpoint("STREAM.MSG.DELETE", 1, "stream_msg_delete_response", delete),
)
