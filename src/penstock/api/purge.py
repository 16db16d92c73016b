"""STREAM.PURGE: everything, a subject, below a sequence, all but the newest."""

from __future__ import annotations

import asyncio

from penstock.api.call import Answer, Call, Endpoint, Fields
from penstock.broker.intake import Intake
from penstock.db.stream import Stream
from penstock.errors import BadRequest, DeniedPurge, PurgeFailed, StoreError, StreamSealed
from penstock.kernel.subject import is_valid_filter
from penstock.store.base import PURGE
from penstock.wire.go_decode import Struct

SEQ_STOP = 2**63
SLICE = 8192  # messages that go under one hold of the stream's lock
_PURGE = Struct("server.JSApiStreamPurgeRequest", {"seq": "uint64", "filter": "string", "keep": "uint64"})


def purge(call: Call) -> Answer:
    wanted = call.decode(_PURGE) if call.is_json else {}
    seq, keep, subject = wanted.get("seq", 0), wanted.get("keep", 0), wanted.get("filter", "")
    if seq and keep:
        raise BadRequest
    intake = call.account.stream(call.names[0])
    config = intake.stream.config
    if config.sealed:
        raise StreamSealed
    if config.deny_purge:
        raise DeniedPurge
    if subject and not is_valid_filter(subject):
        return {"success": True, "purged": 0}
    if seq >= SEQ_STOP:
        raise PurgeFailed(f"sequence {seq}: sequences stay below 2^63")
    return _purge(intake, subject, seq, min(keep, SEQ_STOP - 1))


async def _purge(intake: Intake, subject: str, seq: int, keep: int) -> Fields:
    await intake.settled()
    try:
        purged = await asyncio.to_thread(purge_in_slices, intake.stream, subject, seq, keep)
    except StoreError as error:
        raise PurgeFailed(str(error)) from error
    intake.desk.committed()  # some may have had one of them in hand
    intake.was_purged = intake.was_purged or (subject in ("", ">") and not keep and not seq)
    return {"success": True, "purged": purged}


def purge_in_slices(stream: Stream, subject: str, seq: int, keep: int) -> int:
    """As `Stream.purge`, in one commit; where messages go one by one, others get the stream in between."""
    if subject in ("", ">") and not keep:
        return stream.purge(subject, seq=seq)
    store, purged, start = stream.store, 0, 1
    filters = [subject] if subject else []
    with stream._lock:
        store.expire_if_due()
        stop = seq or store.index.last_seq + 1
    while True:
        with stream._lock:
            start = store.query.next_seq(filters, start, stop)
            if not start:
                break
            found = store.core.delete_matching(filters, start, stop, keep, SLICE, PURGE, store.clock.now_ns())
        purged += found
        if found < SLICE:
            break
    with stream._lock:
        store.commit()
        store._sweep_expiries()
        stream.consumers.purged(subject)
        stream.consumers.flush()
    return purged


ENDPOINTS = (Endpoint("STREAM.PURGE", 1, "stream_purge_response", purge, {"purged": 0}),)
