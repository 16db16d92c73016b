"""STREAM.SNAPSHOT and STREAM.RESTORE: this version has no snapshots, so both requests are refused."""

from __future__ import annotations

from penstock.api.call import Call, Endpoint, Fields
from penstock.errors import RestoreMissing, SnapshotMissing


def snapshot(call: Call) -> Fields:
    call.account.stream(call.names[0])  # StreamNotFound comes first
    raise SnapshotMissing


def restore(call: Call) -> Fields:
    raise RestoreMissing


ENDPOINTS = (
    Endpoint("STREAM.SNAPSHOT", 1, "stream_snapshot_response", snapshot),
    Endpoint("STREAM.RESTORE", 1, "stream_restore_response", restore),
)
