"""The library keeps streams as a real nats-server kept them while it carried out the same scripts.

Publishes, purges, deletes, updates and the passing of time, with all that the stream holds after them: on both kinds of
storage, and once more after a reopen. The scripts and what nats-server answered: `scripts` in
tests/parity/recorded/tables/stream.json, recorded by tests/parity/record.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parity.tables import recorded
from penstock.db.database import Database
from penstock.db.stream import Stream
from penstock.errors import ApiError
from penstock.stream.config_json import decode_config
from penstock.testing import FakeClock

CASES: list[dict[str, Any]] = recorded("stream")["scripts"]
NS = 1_000_000_000


def headers_of(step: dict[str, Any]) -> bytes | None:
    if "headers" not in step:
        return None
    return "".join(line + "\r\n" for line in ["NATS/1.0", *step["headers"], ""]).encode("latin-1")


def config_of(fields: dict[str, Any]) -> Any:
    return decode_config(json.dumps(fields).encode())


def state_of(stream: Stream) -> dict[str, Any]:
    state = stream.state()
    holds = [
        [message.seq, message.subject, (message.raw_headers or b"").decode("latin-1"), len(message.data)]
        for message in stream.read()
    ]
    names = ("messages", "bytes", "first_seq", "last_seq", "num_subjects", "num_deleted")
    return {name: getattr(state, name) for name in names} | {"holds": holds}


class Player:
    """Carries out the steps of a script, as the recorder does it."""

    def __init__(self, root: Path, fields: dict[str, Any]) -> None:
        self.clock = FakeClock()
        self.root = root
        self.fields = fields
        self.database = Database(root, clock=self.clock, durability="os")
        self.stream = self.database.create_stream(config_of(fields))

    def reopen(self) -> None:
        self.database.close()
        self.database = Database(self.root, clock=self.clock, durability="os")
        self.stream = self.database.get_stream("T")

    def carry_out(self, step: dict[str, Any]) -> Any:
        try:
            return self._carry_out(step)
        except ApiError as error:
            return {"error": error.to_json()}

    def _carry_out(self, step: dict[str, Any]) -> Any:
        self.clock.advance(1000)
        if "wait" in step:
            self.clock.advance(int(step["wait"] * NS))
            return None
        if "state" in step:
            return state_of(self.stream)
        if "update" in step:
            changed = {key: value for key, value in self.fields.items() if key != "subject_transform"} | step["update"]
            self.database.update_stream(config_of(changed))
            self.fields = changed
            return {}
        if "purge" in step:
            request = dict(step["purge"])
            purged = self.stream.purge(request.pop("filter", ""), **request)
            return {"success": True, "purged": purged}
        if "delete" in step:
            return {"success": self.stream.delete(step["delete"])}
        ack = self.stream.publish(step["subject"], b"x" * step.get("payload_size", 2), headers_of(step))
        return {"seq": ack.seq, "duplicate": True} if ack.duplicate else {"seq": ack.seq}


def without(step: dict[str, Any], reply: Any, storage: str) -> Any:
    """What we compare of a reply: an error's codes and text; of a state all, but bytes as files count them."""
    if reply is None:
        return None
    if "error" in reply:
        return {"error": reply["error"]}
    if "state" in step and storage == "memory":
        return {name: value for name, value in reply.items() if name != "bytes"}
    return reply


@pytest.mark.parametrize("storage", ["file", "memory"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_a_stream_lives_as_on_the_reference(case: dict[str, Any], storage: str, tmp_path: Path) -> None:
    if storage == "memory" and "max_bytes" in json.dumps(case):
        pytest.skip("the reference counts a record in memory and in a file differently: recorded is the file")
    player = Player(tmp_path, case["config"] | {"storage": storage})
    for step in case["steps"]:
        reply = player.carry_out(step)
        assert without(step, reply, storage) == without(step, step.get("reply"), storage), step
    if storage == "file":
        before = state_of(player.stream)
        player.reopen()
        assert state_of(player.stream) == before
    player.database.close()
