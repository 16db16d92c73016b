"""What monitoring reports about consumers: pull and push, paused, pinned, with acks outstanding, and the one of a
mirror.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any

from support.monitor_scenario import CONFIG, Player, answer_shape, monitor_port, page_shape
from support.servers import Kind, ServerProcess

NS = 1_000_000_000
CONSUMERS: tuple[dict[str, Any], ...] = (
    {"durable_name": "PULL", "ack_policy": "explicit", "description": "<d>"},
    {"durable_name": "PUSH", "ack_policy": "all", "deliver_subject": "foo.push", "deliver_group": "q"},
    {"durable_name": "FILTERED", "filter_subjects": ["foo.s.1", "foo.s.2"], "metadata": {"b": "c"}},
    {"durable_name": "PAUSED", "pause_until": "2090-01-01T00:00:00Z"},
    {
        "durable_name": "PINNED",
        "ack_policy": "explicit",
        "priority_policy": "pinned_client",
        "priority_groups": ["one", "two"],
    },
    {"name": "DIRECT", "direct": True, "deliver_subject": "foo.direct", "inactive_threshold": 600 * NS},
)
PAGES = (
    "/jsz?consumers=1",
    "/jsz?consumers=1&config=1",
    "/jsz?consumers=1&direct-consumers=1&acc=A",
    "/jsz?direct-consumers=1&acc=A",
    "/jsz?consumers=1&raft=1",
    "/jsz",
    "/healthz?account=A&stream=S&consumer=PULL",
    "/healthz?account=A&stream=S&consumer=none",
    "/healthz?account=A&stream=S&consumer=none&details=1",
)
REQUESTS = (
    ("$SYS.REQ.SERVER.PING.JSZ", '{"account":"A","consumer":true}'),
    ("$SYS.REQ.ACCOUNT.A.JSZ", '{"consumer":true}'),
    ("$SYS.REQ.ACCOUNT.A.JSZ", '{"streams":true,"consumer":true,"config":true}'),
    ("$SYS.REQ.SERVER.PING.HEALTHZ", '{"account":"A","stream":"S","consumer":"PUSH"}'),
    ("$SYS.REQ.SERVER.PING.HEALTHZ", '{"account":"A","stream":"S","consumer":"none"}'),
)


def play_consumers(kind: Kind) -> dict[str, Any]:
    with (
        ServerProcess(kind, CONFIG) as server,
        contextlib.closing(Player(server.port, "alice", "a", "alice")) as alice,
        contextlib.closing(Player(server.port, "sys", "s", "the system")) as system,
    ):
        port = monitor_port(server)
        _fill(alice)
        shapes: dict[str, Any] = {path: page_shape(port, path) for path in PAGES}
        for subject, body in REQUESTS:
            shapes[f"{subject} {body}"] = answer_shape(system.request(subject, body))
        return _sorted(shapes)


def _fill(alice: Player) -> None:
    api = "$JS.hub.API"
    alice.send(b"SUB foo.push q 1\r\nSUB foo.in 2\r\n")
    requests = [(f"{api}.STREAM.CREATE.S", '{"name":"S","subjects":["foo.s.*"]}')]
    requests += [(f"foo.s.{n % 3}", "x") for n in range(9)]
    for config in CONSUMERS:
        name = config.get("durable_name") or config["name"]
        requests.append((f"{api}.CONSUMER.CREATE.S.{name}", json.dumps({"stream_name": "S", "config": config})))
    for subject, body in requests:
        assert alice.request(subject, body, wait=3.0) is not None, subject
    for name, body in (("PULL", '{"batch":4}'), ("PULL", '{"batch":9,"expires":60000000000}')):
        _pull(alice, name, body)
    _pull(alice, "PINNED", '{"batch":2,"group":"one"}')
    assert any(_is_settled(alice) for _ in range(1000)), "not all that was asked for is delivered"


def _pull(alice: Player, name: str, body: str) -> None:
    alice.send(f"PUB $JS.hub.API.CONSUMER.MSG.NEXT.S.{name} foo.in {len(body)}\r\n{body}\r\n".encode())


def _is_settled(alice: Player) -> bool:
    """Whether everything that was requested is delivered."""
    delivered = []
    for name in ("PULL", "PUSH", "PINNED"):
        frame = alice.request(f"$JS.hub.API.CONSUMER.INFO.S.{name}", wait=3.0)
        assert frame is not None
        delivered.append(json.loads(frame.payload)["delivered"]["consumer_seq"])
    return delivered == [9, 9, 2]


def _sorted(value: Any) -> Any:
    """Sort the details and replace values that depend on the moment; API requests are not counted, because the number
    of polls varies.
    """
    if isinstance(value, dict):
        found = {key: _sorted(part) for key, part in value.items()}
        if "level" in found and "total" in found:
            found["total"] = "<number>"
        if "pause_remaining" in found:
            found["pause_remaining"] = "<number>"
        return found
    return [_sorted(part) for part in value] if isinstance(value, list) else value
