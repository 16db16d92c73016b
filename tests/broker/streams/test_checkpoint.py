"""A checkpoint's waiting for the disk does not stop the stream."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

import penstock
from penstock.store.file_store import FileStore
from penstock.store.index import checkpoint_writer
from support.attack import Client


def test_a_server_takes_messages_while_summaries_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_writer, "CHECKPOINT_AFTER", 1)
    begun, go_on = threading.Event(), threading.Event()
    with penstock.open(tmp_path / "data") as db, penstock.Server(database=db) as server:
        store = db.stream("S", subjects=["s.>"]).store
        assert isinstance(store, FileStore)
        sync = store.files.summaries.sync

        def slow() -> None:
            begun.set()
            assert go_on.wait(30)
            sync()

        monkeypatch.setattr(store.files.summaries, "sync", slow)
        client = Client(server.port, "_INBOX.0")
        size = 500_000
        while not begun.is_set():  # until a block is full and its summary is a checkpoint's worth
            client.send(client.pub("s.a", bytes(size), "_INBOX.0.x"))
            assert "error" not in json.loads(client.message().payload)
        client.send(client.pub("s.a", b"x", "_INBOX.0.x"))
        assert "error" not in json.loads(client.message().payload)
        assert not go_on.is_set()
        go_on.set()
        client.close()
    with penstock.open(tmp_path / "data") as db:
        assert db.stream("S").state().messages > 1
