"""Several accounts in one store: one lock, one control socket, isolated streams."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock
from penstock.db.control_socket import ask
from penstock.db.database import Database
from penstock.db.lock import holder_of
from penstock.errors import StoreError, StoreLocked, StreamNotFound


def test_two_accounts_write_under_one_lock_and_see_their_own_streams(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as one, Database(tmp_path, account="A", root=one.root) as two:
        one.stream("S", subjects="s.>").publish("s.1", b"of $G")
        two.stream("S", subjects="s.>").publish("s.1", b"of A")
        with pytest.raises(StoreLocked):
            Database(tmp_path, account="B")
    with Database(tmp_path, account="A") as again:
        assert again.get_stream("S").get(1).data == b"of A"


def test_the_lock_is_held_until_the_last_account_closes(tmp_path: Path) -> None:
    one = penstock.open(tmp_path)
    two = Database(tmp_path, account="A", root=one.root)
    one.close()
    assert holder_of(str(tmp_path)) is not None
    two.stream("S").publish("S", b"still")
    two.close()
    assert holder_of(str(tmp_path)) is None
    penstock.open(tmp_path).close()


def test_an_account_is_open_once(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as one:
        with pytest.raises(StoreError, match=r"account \$G is open in this process already"):
            Database(tmp_path, root=one.root)
        one.stream("S").publish("S", b"x")


def test_the_door_finds_each_account(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as one, Database(tmp_path, account="A", root=one.root) as two:
        assert ask(tmp_path, {"op": "create", "account": "A", "stream": "T", "config": {}}) == {"name": "T"}
        assert two.streams() == ["T"]
        assert one.streams() == []
        with pytest.raises(StoreError, match=r"writes to account \$G, A, not B"):
            ask(tmp_path, {"op": "create", "account": "B", "stream": "T", "config": {}})


def test_a_listener_hears_of_streams_that_come_change_and_go(tmp_path: Path) -> None:
    received: list[str] = []
    with penstock.open(tmp_path) as db:
        db.on_change.append(received.append)
        db.stream("S")
        db.stream("S", max_msgs=3)
        db.stream("S", max_msgs=3)  # nothing changes
        db.delete_stream("S")
    assert received == ["S", "S", "S"]


def test_a_stream_that_another_account_has_is_told_of(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as one, Database(tmp_path, account="A", root=one.root) as two:
        two.stream("S")
        assert one.accounts() == two.accounts() == ["A"]
        with pytest.raises(StreamNotFound, match=r"account \$G .* there are: none. Account A has one .* account="):
            one.get_stream("S")
        with pytest.raises(StreamNotFound, match=r"stream 'T' not found in /.*; there are: none$"):
            one.get_stream("T")
