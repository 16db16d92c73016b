"""Streams that chance configures, fills, reads, cuts and changes; the same for both servers by their seed."""

from __future__ import annotations

import random
from typing import Any

from parity.catalog import add
from parity.questions import NS
from parity.script import Connection, Script

GROUP = "random_streams"
SEEDS = 40
TOKENS = ["a", "b", "c", "d.x", "d.y", "e.f.g"]
FILTERS = [">", "t.>", "t.*", "t.a", "t.d.*", "t.d.>", "t.*.x", "t.none", "*.a", "t.e.f.g", "u.>", "t.*.*.*"]


def config(r: random.Random) -> dict[str, Any]:
    """A stream T on t.>; mostly one that is taken."""
    chosen: dict[str, Any] = {"name": "T", "subjects": ["t.>"]}
    choices: dict[str, list[Any]] = {
        "storage": ["file", "memory"],
        "max_msgs": [-1, 3, 7, 20],
        "max_bytes": [-1, 120, 400],
        "max_msgs_per_subject": [-1, 1, 2, 4],
        "max_msg_size": [-1, 12],
        "discard": ["old", "new"],
        "discard_new_per_subject": [False, True],
        "retention": ["limits", "limits", "limits", "interest", "workqueue"],
        "allow_direct": [True],
        "allow_rollup_hdrs": [True, False],
        "allow_msg_ttl": [True, False],
        "deny_delete": [False, False, True],
        "deny_purge": [False, False, True],
        "first_seq": [0, 10],
        "duplicate_window": [0, 60 * NS],
        "subject_transform": [{"src": "t.a", "dest": "t.b"}, {"src": "t.d.*", "dest": "t.{{wildcard(1)}}.z"}],
        "compression": ["none", "none"],  # s2 is refused here: it comes later
    }
    for field, values in choices.items():
        if r.random() < (1 if field == "allow_direct" else 0.3):
            chosen[field] = r.choice(values)
    return chosen


def header_lines(r: random.Random) -> list[str] | None:
    if r.random() < 0.5:
        return None
    n = r.randrange(12)
    lines = [
        f"Nats-Msg-Id: {r.randrange(5)}",
        f"Nats-Expected-Last-Sequence: {n}",
        f"Nats-Expected-Last-Subject-Sequence: {n}",
        f"Nats-Expected-Last-Subject-Sequence-Subject: {r.choice(FILTERS)}",
        f"Nats-Expected-Last-Msg-Id: {r.randrange(5)}",
        f"Nats-Expected-Stream: {r.choice(['T', 'T', 'X'])}",
        f"Nats-Rollup: {r.choice(['sub', 'all', 'x'])}",
        f"Nats-TTL: {r.choice(['1h', 'never', '3600', '0', 'x'])}",
        "A: 1",
        "B: 2",
    ]
    return r.sample(lines, r.choice([1, 1, 1, 2, 3]))


def request_of_get(r: random.Random) -> dict[str, Any]:
    request: dict[str, Any] = {}
    if r.random() < 0.6:
        request["seq"] = r.randrange(25)
    if r.random() < 0.4:
        request[r.choice(["next_by_subj", "next_by_subj", "last_by_subj"])] = r.choice(FILTERS)
    if r.random() < 0.1:
        request["no_hdr"] = True
    if r.random() < 0.1:
        request["start_time"] = r.choice(["2020-01-01T00:00:00Z", "2100-01-01T00:00:00Z"])
    return request


def request_of_batch(r: random.Random) -> dict[str, Any]:
    request = request_of_get(r)
    request.pop("no_hdr", None)
    if r.random() < 0.5:
        request["multi_last"] = r.sample(FILTERS, r.randrange(1, 3))
        request.pop("last_by_subj", None)
        request.pop("next_by_subj", None)
        if r.random() < 0.4:
            request["up_to_seq"] = r.randrange(1, 30)
    if r.random() < 0.7:
        request["batch"] = r.randrange(1, 8)
    if r.random() < 0.2:
        request["max_bytes"] = r.randrange(1, 60)
    return request


def step(c: Connection, r: random.Random, changes: dict[str, Any]) -> None:
    """One thing that a client may do."""
    kind = r.randrange(20)
    if kind < 9:
        body = "x" * r.choice([0, 1, 2, 5, 10, 11, 30])
        c.request(f"t.{r.choice(TOKENS)}", body, header_lines(r))
    elif kind < 11:
        c.api("STREAM.MSG.GET.T", request_of_get(r))
    elif kind < 13:
        request = request_of_batch(r)
        ask = c.many if "batch" in request or "multi_last" in request else c.request
        ask("$JS.API.DIRECT.GET.T", request)
    elif kind < 14:
        c.request(f"$JS.API.DIRECT.GET.T.t.{r.choice(TOKENS)}")
    elif kind < 16:
        c.api("STREAM.MSG.DELETE.T", {"seq": r.randrange(22)})
    elif kind < 17:
        purge: dict[str, Any] = {}
        if r.random() < 0.7:
            purge["filter"] = r.choice(FILTERS)
        if r.random() < 0.7:
            purge[r.choice(["seq", "keep"])] = r.randrange(1, 20)
        c.api("STREAM.PURGE.T", purge)
    elif kind < 18:
        field, values = r.choice(
            [
                ("max_msgs", [2, 5, -1]),
                ("max_msgs_per_subject", [1, 3, -1]),
                ("max_bytes", [100, 300, -1]),
                ("discard", ["old", "new"]),
            ]
        )
        changes[field] = r.choice(values)
        c.api("STREAM.UPDATE.T", changes)
    else:
        c.api("STREAM.INFO.T", {"deleted_details": r.random() < 0.7, "subjects_filter": r.choice(FILTERS)})


def conversation(seed: int) -> object:
    def run(s: Script) -> None:
        r = random.Random(seed)
        c = s.connect()
        changes = config(r)
        if "error" in c.api("STREAM.CREATE.T", changes):
            changes = {"name": "T", "subjects": ["t.>"], "allow_direct": True}
            c.api("STREAM.CREATE.T", changes)
        for _ in range(40):
            step(c, r, changes)
        c.api("STREAM.INFO.T", {"deleted_details": True, "subjects_filter": ">"})

    return run


for seed in range(SEEDS):
    add(GROUP, f"seed {seed}", conversation(seed))
