"""All monitoring requests, played on one kind of server; the answers of the real nats-server can be recorded."""

from __future__ import annotations

import json
from typing import Any

from support.monitor_auth import play_logins, play_options
from support.monitor_consumers import play_consumers
from support.monitor_scenario import CONFIG, PLAIN, SHAPES, play, play_plain
from support.monitor_streams import play_streams
from support.servers import Kind, ServerProcess


def play_all(kind: Kind) -> dict[str, dict[str, Any]]:
    """The answers, by the file that they are stored in."""
    with ServerProcess(kind, CONFIG) as server:
        shapes = play(server)
    with ServerProcess(kind, PLAIN) as server:
        shapes["plain"] = play_plain(server)
    shapes["logins"] = play_logins(kind)
    shapes["options"] = play_options(kind)
    shapes["streams"] = play_streams(kind)
    shapes["consumers"] = play_consumers(kind)
    return shapes


def record() -> None:
    """Record the answers of the real nats-server."""
    SHAPES.mkdir(exist_ok=True)
    for name, found in play_all("real").items():
        (SHAPES / f"{name}.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
        print(f"{name}: {len(found)}")
