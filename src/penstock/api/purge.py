"""STREAM.PURGE: everything, a subject, below a sequence, all but the newest."""

from __future__ import annotations

import asyncio

from penstock.api.call import Answer, Call, Endpoint, Fields
from penstock.broker.intake import Intake
from penstock.errors import BadRequest, DeniedPurge, PurgeFailed, StoreError, StreamSealed
from penstock.kernel.subject import is_valid_filter
from penstock.wire.go_decode import Struct

SEQ_STOP = 2**63
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
    await intake.committed()
    try:
        purged = await asyncio.to_thread(intake.stream.purge, subject, seq=seq, keep=keep)
    except StoreError as error:
        raise PurgeFailed(str(error)) from error
    intake.was_purged = True
    return {"success": True, "purged": purged}


ENDPOINTS = (Endpoint("STREAM.PURGE", 1, "stream_purge_response", purge, {"purged": 0}),)
