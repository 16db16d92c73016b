"""STREAM.PURGE: delete all messages, those of a subject, those below a sequence, or all but the newest."""

from __future__ import annotations

import asyncio

from penstock.api.call import Answer, Call, Endpoint, Fields
from penstock.base.subject import is_valid_filter
from penstock.broker.streams.endpoint import StreamEndpoint
from penstock.db.stream import Stream
from penstock.errors import BadRequest, DeniedPurge, PurgeFailed, StoreError, StreamSealed
from penstock.store.base import PURGE
from penstock.wire.go_decode import Struct

SEQ_STOP = 2**63
SLICE = 2048  # messages deleted while the stream's lock is held once, …
SPAN = 65536  # … and sequences searched for them
_PURGE = Struct("server.JSApiStreamPurgeRequest", {"seq": "uint64", "filter": "string", "keep": "uint64"})


def purge(call: Call) -> Answer:
    wanted = call.decode(_PURGE) if call.is_json else {}
    seq, keep, subject = wanted.get("seq", 0), wanted.get("keep", 0), wanted.get("filter", "")
    if seq and keep:
        raise BadRequest
    endpoint = call.account.stream(call.names[0])
    config = endpoint.stream.config
    if config.sealed:
        raise StreamSealed
    if config.deny_purge:
        raise DeniedPurge
    if subject and not is_valid_filter(subject):
        return {"success": True, "purged": 0}
    if seq >= SEQ_STOP:
        raise PurgeFailed(f"sequence {seq}: sequences stay below 2^63")
    return _purge(endpoint, subject, seq, min(keep, SEQ_STOP - 1))


async def _purge(endpoint: StreamEndpoint, subject: str, seq: int, keep: int) -> Fields:
    await endpoint.settled()
    try:
        purged = await asyncio.to_thread(purge_in_slices, endpoint.stream, subject, seq, keep)
    except StoreError as error:
        raise PurgeFailed(str(error)) from error
    endpoint.dispatcher.committed()  # some may have had one of them as the next candidate
    endpoint.was_purged = endpoint.was_purged or (subject in ("", ">") and not keep and not seq)
    return {"success": True, "purged": purged}


def purge_in_slices(stream: Stream, subject: str, seq: int, keep: int) -> int:
    """As `Stream.purge`, in one commit. If messages are deleted one by one, the lock is released between slices."""
    if subject in ("", ">") and not keep:
        return stream.purge(subject, seq=seq)
    store, index, query = stream.store, stream.store.index, stream.store.query
    filters = [subject] if subject else []
    purged, most, others = 0, SEQ_STOP, None
    with stream.locked():
        store.expire_if_due()
        start, stop = 1, seq or index.last_seq + 1
    while purged < most:
        with stream.locked():
            start = query.next_seq((), start, stop)
            if not start:
                break
            if (
                keep and others != index.messages - index.last_seq
            ):  # the first time, and if messages were deleted meanwhile
                most = purged + max(query.pending(filters, start) - query.pending(filters, stop) - keep, 0)
            part, count = min(start + SPAN, stop), min(SLICE, most - purged)
            found = store.engine.delete_matching(filters, start, part, 0, count, PURGE, store.clock.now_ns())
            others = index.messages - index.last_seq
        purged += found
        if found < SLICE:
            start = part
    with stream.locked():
        store.commit()
        store.sweep_expiries()
        stream.consumers.purged(subject)
        stream.consumers.flush()
    return purged


ENDPOINTS = (Endpoint("STREAM.PURGE", 1, "stream_purge_response", purge, {"purged": 0}),)
