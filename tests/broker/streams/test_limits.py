"""An account at its limit: how messages were batched does not show."""

from __future__ import annotations

import json
from pathlib import Path

import penstock
from support.attack import Client

CONF = """
accounts {
  A { users: [{user: a, password: a}], jetstream { max_file: 1000 } }
}
jetstream { store_dir: "%s" }
no_auth_user: a
"""
SIZE = 22 + len("s.x") + 100 + 8  # of one message, as the reference counts it


def test_of_a_batch_that_does_not_fit_the_first_messages_are_taken(tmp_path: Path) -> None:
    (tmp_path / "conf").write_text(CONF % (tmp_path / "data"))
    with penstock.Server(config=tmp_path / "conf", port=-1) as server:
        client = Client(server.port, "_INBOX.a")
        client.publish("$JS.API.STREAM.CREATE.S", b'{"name":"S","subjects":["s.x"]}', "_INBOX.a.0")
        assert b'"error"' not in client.message().payload
        for n in range(1, 21):  # one read, one batch
            client.publish("s.x", b"x" * 100, f"_INBOX.a.{n}")
        answers = [json.loads(client.message().payload) for _ in range(20)]
    taken = 1000 // SIZE
    assert [answer["seq"] for answer in answers[:taken]] == list(range(1, taken + 1))
    assert {answer["error"]["err_code"] for answer in answers[taken:]} == {10002}
