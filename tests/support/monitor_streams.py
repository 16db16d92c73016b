"""What monitoring reports about streams: in files and in memory, with limits, deletes, a purge, and the storage that
they use.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any

from support.monitor_scenario import CONFIG, Player, get, monitor_port, page_shape
from support.servers import Kind, ServerProcess

STREAMS = (
    {"name": "M", "subjects": ["foo.m.>"], "storage": "memory", "max_bytes": 1_000_000},
    {"name": "F", "subjects": ["foo.f.>"], "max_bytes": 2_000_000, "max_msgs_per_subject": 1, "metadata": {"a": "b"}},
    {"name": "E", "subjects": ["foo.e"], "allow_direct": True, "max_age": 3_600_000_000_000},
)
PAGES = (
    "/jsz?streams=1&config=1",
    "/jsz?consumers=1&raft=1",
    "/jsz",
    "/jsz?acc=A",
    "/varz",
    "/healthz",
    "/healthz?account=A&stream=F",
    "/healthz?account=A&stream=F&consumer=x",
)
TOTALS = ("memory", "storage", "reserved_memory", "reserved_storage", "bytes", "messages", "streams", "api")


def play_streams(kind: Kind) -> dict[str, Any]:
    with (
        ServerProcess(kind, CONFIG) as server,
        contextlib.closing(Player(server.port, "alice", "a", "alice")) as alice,
    ):
        port = monitor_port(server)
        _fill(alice)
        shapes: dict[str, Any] = {path: page_shape(port, path) for path in PAGES}
        for shape in shapes.values():
            for account in shape["body"].get("account_details", ()):
                account.get("stream_detail", []).sort(key=lambda stream: stream["name"])
        told = json.loads(get(port, "/jsz?streams=1")[2])
        shapes["sizes"] = {one["name"]: one["state"]["bytes"] for one in told["account_details"][0]["stream_detail"]}
        shapes["sizes"] = dict(sorted(shapes["sizes"].items()))
        shapes["totals"] = {name: told[name] for name in TOTALS}
        return shapes


def _fill(alice: Player) -> None:
    api = "$JS.hub.API.STREAM"
    requests = [(f"{api}.CREATE.{config['name']}", json.dumps(config)) for config in STREAMS]
    for n in range(10):
        requests += [(f"foo.m.{n % 3}", "x" * n), (f"foo.f.{n % 3}", "y" * n)]
    requests += [
        (f"{api}.MSG.DELETE.M", '{"seq":4}'),
        (f"{api}.INFO.NONE", ""),
        ("foo.e", "z"),
        (f"{api}.PURGE.E", ""),
    ]
    for subject, body in requests:
        assert alice.request(subject, body, wait=3.0) is not None, subject
