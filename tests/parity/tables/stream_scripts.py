"""What stream.py lets a real nats-server do step by step: publishes, purges, deletes, updates, time.

A step is a publish (`pub`), or one of {"purge": request}, {"delete": seq}, {"update": fields}, {"wait": seconds},
{"state": True}, which writes down all that the stream holds.
"""

from __future__ import annotations

from typing import Any

from parity.tables.stream_questions import NS, on, pub, stream

STATE: dict[str, Any] = {"state": True}
KEYS = stream(max_msgs_per_subject=1, allow_rollup_hdrs=True)
MARKERS = stream(subject_delete_marker_ttl=2 * NS)
AGE_MARKERS = stream(subject_delete_marker_ttl=NS, max_age=NS)
TRANSFORM = stream(subject_transform={"src": "t.a.*", "dest": "outside.$1"})
SEQ = "Nats-Expected-Last-Subject-Sequence"


def purge(**request: Any) -> dict[str, Any]:
    return {"purge": request}


def delete(seq: int) -> dict[str, Any]:
    return {"delete": seq}


def update(**fields: Any) -> dict[str, Any]:
    return {"update": fields}


def wait(seconds: float) -> dict[str, Any]:
    return {"wait": seconds}


def pubs(*subjects: str, **more: Any) -> list[dict[str, Any]]:
    return [pub(subject=subject, **more) for subject in subjects]


SCRIPTS: list[tuple[str, dict[str, Any]]] = [
    ("discard old by messages", on(stream(max_msgs=2), *pubs("t.a", "t.b", "t.c", "t.a"), STATE)),
    ("discard old by bytes", on(stream(max_bytes=100), *pubs("t.a", "t.b", "t.c", "t.d"), STATE)),
    ("one message over the bytes of the stream", on(stream(max_bytes=100), *pubs("t.a"), pub(payload_size=200), STATE)),
    ("discard new by messages", on(stream(max_msgs=2, discard="new"), *pubs("t.a", "t.b", "t.c"), delete(1), pub(),
                                   pub(), STATE)),
    ("discard new by bytes", on(stream(max_bytes=100, discard="new"), *pubs("t.a", "t.b", "t.c"), STATE)),
    ("discard new, a message over the bytes of the stream",
     on(stream(max_bytes=100, discard="new"), pub(payload_size=200), pub(), STATE)),
    ("per subject, discard old", on(stream(max_msgs_per_subject=2), *pubs("t.a", "t.a", "t.b", "t.a"), STATE)),
    ("per subject, discard new replaces", on(stream(max_msgs_per_subject=1, discard="new", max_msgs=2),
                                             *pubs("t.a", "t.a", "t.b", "t.c", "t.a"), STATE)),
    ("per subject, discard new per subject",
     on(stream(max_msgs_per_subject=1, discard="new", discard_new_per_subject=True),
        *pubs("t.a", "t.a", "t.b", "t.b"), delete(1), pub(), STATE)),
    ("discard new per subject and a rollup",
     on(stream(max_msgs_per_subject=1, discard="new", discard_new_per_subject=True, allow_rollup_hdrs=True),
        pub(), pub(), pub("Nats-Rollup: sub"), STATE)),
    ("discard new, bytes and replacing", on(stream(max_msgs_per_subject=1, discard="new", max_bytes=100),
                                            *pubs("t.a", "t.b"), pub(payload_size=4), pub(payload_size=50), STATE)),
    ("max_msgs smaller by an update", on(stream(), *pubs("t.a", "t.b", "t.c"), update(max_msgs=1), STATE, pub(),
                                         STATE)),
    ("per subject smaller by an update", on(stream(), *pubs("t.a", "t.a", "t.b", "t.a"),
                                            update(max_msgs_per_subject=1), STATE)),
    ("max_bytes smaller by an update", on(stream(), *pubs("t.a", "t.a", "t.b"), update(max_bytes=80), STATE)),
    ("max_msg_size counts headers", on(stream(max_msg_size=30), pub(payload_size=30), pub(payload_size=31),
                                       pub("A: 1", payload_size=12), pub("A: 1", payload_size=13), STATE)),
    ("first_seq", on(stream(first_seq=10), STATE, pub(), STATE, purge(), STATE, pub(), STATE)),
    ("first_seq changed by an update", on(stream(first_seq=10), pub(), update(first_seq=50), pub(), STATE)),
    ("first_seq of a stream that is empty again", on(stream(), pub(), purge(), update(first_seq=50), pub(), STATE)),
    ("deletes", on(stream(), *pubs("t.a", "t.b", "t.c"), delete(2), STATE, delete(1), STATE, delete(3), STATE, pub(),
                   STATE)),
    ("purges", on(stream(), *pubs("t.a", "t.b", "t.a", "t.b", "t.a"), purge(filter="t.a", keep=1), STATE, purge(seq=4),
                  STATE, purge(keep=1), STATE, purge(), STATE, pub(), STATE)),
    ("a purge of one subject", on(stream(), *pubs("t.a", "t.b", "t.a"), purge(filter="t.a"), STATE, purge(filter="x"),
                                  purge(filter="t.*", seq=2), STATE)),
    ("deny_delete", on(stream(deny_delete=True), pub(), delete(1), purge(), STATE)),
    ("deny_purge", on(stream(deny_purge=True), pub(), purge(), delete(1), STATE)),
    ("sealed", on(stream(), pub(), update(sealed=True), pub(), delete(1), purge(), STATE)),
    ("rollups", on(KEYS, *pubs("t.a", "t.b"), pub("Nats-Rollup: sub"), STATE, pub("Nats-Rollup: all"), STATE)),
    ("rollup of one subject among many", on(stream(allow_rollup_hdrs=True), *pubs("t.a", "t.b", "t.a"),
                                            pub("Nats-Rollup: sub"), STATE)),
    ("max_age", on(stream(max_age=NS, duplicate_window=NS), *pubs("t.a", "t.b"), wait(1.6), STATE, pub(), STATE)),
    ("TTLs", on(stream(allow_msg_ttl=True), pub("Nats-TTL: 1"), pub(), pub("Nats-TTL: never"), wait(2.6), STATE)),
    ("never expires by age either", on(stream(allow_msg_ttl=True, max_age=NS), pub("Nats-TTL: never"), pub(), wait(1.6),
                                       STATE)),
    ("a TTL longer than max_age", on(stream(allow_msg_ttl=True, max_age=NS), pub("Nats-TTL: 5"), wait(1.6), STATE)),
    ("message ids and a rollup", on(stream(allow_rollup_hdrs=True), pub("Nats-Msg-Id: 1"),
                                    pub("Nats-Rollup: all", "Nats-Msg-Id: 2"), pub("Nats-Msg-Id: 1"), STATE)),
    ("a message id that was deleted", on(stream(), pub("Nats-Msg-Id: 1"), delete(1), pub("Nats-Msg-Id: 1"), STATE)),
    ("a message id that was purged", on(stream(), pub("Nats-Msg-Id: 1"), purge(), pub("Nats-Msg-Id: 1"), STATE)),
    ("the last message id after a delete", on(stream(), pub("Nats-Msg-Id: 1"), pub("Nats-Msg-Id: 2"), delete(2),
                                              pub("Nats-Expected-Last-Msg-Id: 2"), STATE)),
    ("a window that ends", on(stream(duplicate_window=NS), pub("Nats-Msg-Id: 1"), pub("Nats-Msg-Id: 1"), wait(1.5),
                              pub("Nats-Msg-Id: 1"), STATE)),
    ("expected sequences after deletes", on(stream(), *pubs("t.a", "t.a"), delete(2), pub(f"{SEQ}: 2"),
                                            pub(f"{SEQ}: 1"), purge(filter="t.a"), pub(f"{SEQ}: 0"), STATE)),
    ("transforms", on(TRANSFORM, *pubs("t.a.b", "t.b", "t.a.b.c"), pub(f"{SEQ}: 0", subject="t.a.c"),
                      pub(f"{SEQ}: 0", subject="t.a.c"), pub(f"{SEQ}: 4", subject="t.a.c"), STATE)),
    ("a transform and a limit per subject",
     on(stream(max_msgs_per_subject=1, subject_transform={"src": "t.*", "dest": "t.same"}), *pubs("t.a", "t.b"),
        STATE)),
    ("a transform and a rollup", on(stream(allow_rollup_hdrs=True, subject_transform={"src": "t.*", "dest": "u"}),
                                    *pubs("t.a", "t.b"), pub("Nats-Rollup: sub", subject="t.c"), STATE)),
    ("a transform and message ids", on(TRANSFORM, pub("Nats-Msg-Id: 1", subject="t.a.b"), pub("Nats-Msg-Id: 1"),
                                       STATE)),
    ("a transform that comes and goes",
     on(stream(), pub(), update(subject_transform={"src": "t.*", "dest": "u.$1"}), pub(), update(), pub(), STATE)),
    ("a transform of every subject", on(stream(subject_transform={"src": "", "dest": "all.>"}), pub(), STATE)),
    ("a transform without a destination", on(stream(subject_transform={"src": "t.>", "dest": ""}), pub(), STATE)),
    ("interest without consumers", on(stream(retention="interest"), pub(), STATE, pub("Nats-Msg-Id: a"),
                                      pub("Nats-Msg-Id: a"), pub("Nats-Expected-Last-Msg-Id: b"),
                                      pub("Nats-Expected-Last-Sequence: 1"), pub("Nats-Expected-Last-Sequence: 2"),
                                      pub(f"{SEQ}: 0"), pub(f"{SEQ}: 3"), STATE)),
    ("interest, full, with TTLs and sizes",
     on(stream(retention="interest", max_msgs=1, discard="new", allow_msg_ttl=True, max_msg_size=50), pub(), pub(),
        pub("Nats-TTL: bad"), pub("Nats-TTL: 5"), pub(payload_size=51), STATE)),
    ("interest and rollups", on(stream(retention="interest", allow_rollup_hdrs=True), pub(), pub("Nats-Rollup: sub"),
                                pub("Nats-Rollup: all"), pub("Nats-Rollup: x"), STATE)),
    ("limits to interest", on(stream(), *pubs("t.a", "t.b"), update(retention="interest"), STATE, pub(), STATE,
                              update(retention="limits"), pub(), STATE)),
    ("workqueue stores", on(stream(retention="workqueue", max_msgs=2), *pubs("t.a", "t.b", "t.c"), STATE)),
    ("a TTL is raised to that of the markers",
     on(MARKERS, pub("Nats-TTL: 1"), pub("Nats-TTL: 5", "X: y"), pub("Nats-TTL: 1s", "X: y"), pub("Nats-TTL: never"),
        pub("Nats-TTL: 1", "Nats-TTL: 9"), STATE)),
    ("a TTL is not raised with one message per subject",
     on(stream(subject_delete_marker_ttl=2 * NS, max_msgs_per_subject=1), pub("Nats-TTL: 1"), STATE)),
    ("markers for TTLs", on(MARKERS, pub("Nats-TTL: 2"), pub("Nats-TTL: 2", subject="t.b"), pub(subject="t.b"),
                            wait(2.7), STATE, wait(2.7), STATE)),
    ("markers for age", on(AGE_MARKERS, *pubs("t.a", "t.b", "t.a"), wait(1.45), STATE, wait(1.6), STATE)),
    ("markers do not follow markers", on(AGE_MARKERS, pub("KV-Operation: PURGE"),
                                         pub("KV-Operation: DEL", subject="t.d"),
                                         pub("Nats-Marker-Reason: x", subject="t.m"), wait(1.45), STATE)),
    ("no markers for purges and deletes", on(MARKERS, *pubs("t.a", "t.b"), purge(filter="t.a"), delete(2), STATE)),
    ("no markers for limits", on(stream(subject_delete_marker_ttl=2 * NS, max_msgs=1), *pubs("t.a", "t.b"), STATE)),
    ("markers of a second and a half", on(stream(subject_delete_marker_ttl=NS * 3 // 2, max_age=NS), pub(), wait(1.45),
                                          STATE)),
    ("a marker has no message id", on(AGE_MARKERS, pub("Nats-Msg-Id: 1"), wait(1.45),
                                      pub("Nats-Expected-Last-Msg-Id: 1"))),
]  # fmt: skip
