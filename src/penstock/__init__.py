"""Penstock: durable, replayable message streams. `penstock.open("data")` gives them in this process.

with penstock.open("data") as db:
    orders = db.stream("ORDERS", subjects=["orders.>"], max_age="7d")
    ack = orders.publish("orders.eu.42", b"...", headers={"Nats-Msg-Id": "42"})
    for msg in orders.read("orders.eu.*"):
        print(msg.seq, msg.subject, msg.time, msg.data)
    for msg in orders.consumer("billing", filter="orders.eu.>").fetch(100):
        msg.ack()
    db.key_value("settings").put("colour", b"green")
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from penstock.version import VERSION as __version__

if _TYPE_CHECKING:
    from penstock.db.buckets.kv import KeyValue
    from penstock.db.buckets.kv_entry import KeyValueEntry
    from penstock.db.buckets.object_info import ObjectInfo
    from penstock.db.buckets.object_result import ObjectResult
    from penstock.db.buckets.objects import ObjectStore
    from penstock.db.consumer import Consumer
    from penstock.db.consumer_info import ConsumerInfo
    from penstock.db.consumer_message import ConsumerMessage
    from penstock.db.database import Database
    from penstock.db.database import open_database as open
    from penstock.db.stream import Ack, Acks, Stream, StreamState
    from penstock.errors import (
        ApiError,
        EndOfStream,
        MessageDeleted,
        MessageNotFound,
        PenstockError,
        PublishRefused,
        StoreError,
        StoreLocked,
    )
    from penstock.server.embedded import EmbeddedServer as Server
    from penstock.store.read.message import Message

__all__ = [
    "Ack",
    "Acks",
    "ApiError",
    "Consumer",
    "ConsumerInfo",
    "ConsumerMessage",
    "Database",
    "EndOfStream",
    "KeyValue",
    "KeyValueEntry",
    "Message",
    "MessageDeleted",
    "MessageNotFound",
    "ObjectInfo",
    "ObjectResult",
    "ObjectStore",
    "PenstockError",
    "PublishRefused",
    "Server",
    "StoreError",
    "StoreLocked",
    "Stream",
    "StreamState",
    "__version__",
    "open",
]

_PLACES = {
    "penstock.db.consumer": ("Consumer",),
    "penstock.db.consumer_info": ("ConsumerInfo",),
    "penstock.db.consumer_message": ("ConsumerMessage",),
    "penstock.db.database": ("Database", "open"),
    "penstock.db.buckets.kv": ("KeyValue",),
    "penstock.db.buckets.kv_entry": ("KeyValueEntry",),
    "penstock.db.buckets.object_info": ("ObjectInfo",),
    "penstock.db.buckets.object_result": ("ObjectResult",),
    "penstock.db.buckets.objects": ("ObjectStore",),
    "penstock.db.stream": ("Ack", "Acks", "Stream", "StreamState"),
    "penstock.errors": (
        "ApiError", "EndOfStream", "MessageDeleted", "MessageNotFound", "PenstockError", "PublishRefused", "StoreError",
        "StoreLocked",
    ),
    "penstock.store.read.message": ("Message",),
    "penstock.server.embedded": ("Server",),
}  # fmt: skip


_OTHERWISE = {"open": "open_database", "Server": "EmbeddedServer"}  # what they are called where they live


def __getattr__(name: str) -> _Any:
    """Import public names on first use: a Spark task that only scans files does not load the database."""
    from importlib import import_module

    for module, names in _PLACES.items():
        if name in names:
            found = getattr(import_module(module), _OTHERWISE.get(name, name))
            globals()[name] = found
            return found
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")
