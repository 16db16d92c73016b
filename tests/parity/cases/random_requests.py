"""Requests to the API in which chance has changed something; the same for both servers by their seed."""

from __future__ import annotations

import json
import random
from typing import Any

from parity.cases.random_streams import config
from parity.catalog import add
from parity.questions import NS
from parity.script import Script

GROUP = "random_requests"
SEEDS = 80
FIELDS: dict[str, list[Any]] = {
    "name": ["T", "", "a b", "x.y", 5, None],
    "description": ["d", 5, "<&>"],
    "subjects": [
        ["t.>"],
        [],
        ["t.a", "t.a"],
        ["t.*", "t.b"],
        ["a b"],
        "t.>",
        [">"],
        ["*"],
        ["$JS.x"],
        ["t..a"],
        None,
        [1],
    ],
    "retention": ["limits", "interest", "workqueue", "x", 1, None, "INTEREST"],
    "max_consumers": [-1, 0, 5, -7, "1"],
    "max_msgs": [-1, 0, 5, -7, 1.5, 2**63],
    "max_bytes": [-1, 0, 500, -7, 2**50],
    "max_age": [0, NS, 1, -1, "1s", 120 * NS],
    "max_msgs_per_subject": [-1, 0, 5, -7],
    "max_msg_size": [-1, 0, 5, -7, 2**31],
    "discard": ["old", "new", "x", 0],
    "discard_new_per_subject": [True, False],
    "storage": ["file", "memory", "x"],
    "num_replicas": [0, 1, 2, 3, 6, -1],
    "no_ack": [True, False, "x"],
    "duplicate_window": [0, NS, 1, -1, 121 * NS],
    "placement": [{}, {"cluster": "c"}, {"tags": ["a"]}, {"preferred": "x"}, {"x": 1}, []],
    "compression": ["none", "none", "x"],  # s2 is refused here: it comes later
    "first_seq": [0, 1, 99, -1],
    "subject_transform": [
        {"src": "t.*", "dest": "u.$1"},
        {"src": "t.*", "dest": "u.$2"},
        {},
        {"dest": "x"},
        {"src": "a..b"},
    ],
    "republish": [{"src": "t.*", "dest": "u.$1"}, {"dest": "t.x"}, {"src": "q.>", "dest": "r.>"}, {}, {"dest": "v.>"}],
    "allow_direct": [True, False],
    "mirror_direct": [True, False],
    "sealed": [True, False],
    "deny_delete": [True, False],
    "deny_purge": [True, False],
    "allow_rollup_hdrs": [True, False],
    "consumer_limits": [{}, {"max_ack_pending": 5}, {"inactive_threshold": NS}, {"inactive_threshold": -1}, {"x": 1}],
    "allow_msg_ttl": [True, False],
    "subject_delete_marker_ttl": [0, NS, 1, -NS, 5 * NS],
    "metadata": [{}, {"a": "b"}, {"_nats.ver": "x"}, {"a": 1}, []],
    "pedantic": [True, False],
    "foo": [1],
}
REQUESTS: dict[str, list[str]] = {
    "STREAM.INFO.T": ['{"deleted_details":true,"subjects_filter":"t.*","offset":0}'],
    "STREAM.NAMES": ['{"offset":0,"subject":"t.a"}'],
    "STREAM.LIST": ['{"offset":0,"subject":"t.a"}'],
    "STREAM.PURGE.T": ['{"seq":2,"filter":"t.a"}', '{"keep":1}'],
    "STREAM.MSG.GET.T": [
        '{"seq":1,"next_by_subj":"t.a"}',
        '{"last_by_subj":"t.a"}',
        '{"start_time":"2020-01-01T00:00:00Z"}',
    ],
    "STREAM.MSG.DELETE.T": ['{"seq":1,"no_erase":true}'],
    "DIRECT.GET.T": ['{"seq":1,"no_hdr":true}', '{"last_by_subj":"t.a"}'],
}


def changed(r: random.Random, text: str) -> str:
    """The request with a character or a word of it changed."""
    at = r.randrange(len(text))
    what = r.randrange(6)
    if what == 0:
        return text[:at]
    if what == 1:
        return text[:at] + text[at + 1 :]
    if what == 2:
        return text[:at] + r.choice('{}[],:"0 x-.\\') + text[at:]
    if what == 3:
        return text.replace(
            r.choice(["true", "1", "2", "0", '"t.a"', '"t.*"']),
            r.choice(["null", "-1", '"x"', "[]", "{}", "1.5", "false"]),
            1,
        )
    if what == 4:
        return text + r.choice([" ", "x", "{}", "\n", ","])
    return text.replace('"seq"', r.choice(['"Seq"', '"SEQ"', '"sequence"', '"seq","x"'])).replace("offset", "ofset")


def conversation(seed: int) -> object:
    def run(s: Script) -> None:
        r = random.Random(seed)
        c = s.connect()
        c.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]}, is_kept=False)
        for n in range(6):
            request: dict[str, Any] = config(r) if r.random() < 0.3 else {"name": "T", "subjects": ["t.>"]}
            for field in r.sample(list(FIELDS), r.choice([1, 1, 2, 3])):
                request[field] = r.choice(FIELDS[field])
            verb = r.choice(["CREATE", "UPDATE"]) if n else "CREATE"
            c.api(f"STREAM.{verb}.T", request)
        c.api("STREAM.DELETE.T", is_kept=False)
        c.api("STREAM.CREATE.U", {"name": "U", "subjects": ["t.>"], "allow_direct": True}, is_kept=False)
        for n in range(3):
            c.request("t.a", f"m{n}", is_kept=False)
        for _ in range(6):
            endpoint = r.choice(list(REQUESTS))
            c.request(f"$JS.API.{endpoint.replace('.T', '.U')}", changed(r, r.choice(REQUESTS[endpoint])))
        text = json.dumps({"name": "V", "subjects": ["v.>"], "max_msgs": 1, "metadata": {"a": "1"}})
        c.api("STREAM.CREATE.V", changed(r, text))

    return run


for seed in range(SEEDS):
    add(GROUP, f"seed {seed}", conversation(seed))
