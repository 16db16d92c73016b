"""Snapshots of streams are not there yet. Who asks for one, or brings one back, hears so at once and need not wait."""

from __future__ import annotations

from penstock.api.call import Call, Endpoint, Fields
from penstock.errors import RestoreMissing, SnapshotMissing


def snapshot(call: Call) -> Fields:
    call.account.stream(call.names[0])  # that it does not exist weighs more
    raise SnapshotMissing


def restore(call: Call) -> Fields:
    raise RestoreMissing


ENDPOINTS = (
    Endpoint("STREAM.SNAPSHOT", 1, "stream_snapshot_response", snapshot),
    Endpoint("STREAM.RESTORE", 1, "stream_restore_response", restore),
)
