"""Penstock: durable, replayable message streams. `penstock.open("data")` gives them in this process.

with penstock.open("data") as db:
    orders = db.stream("ORDERS", subjects=["orders.>"], max_age="7d")
    ack = orders.publish("orders.eu.42", b"...", headers={"Nats-Msg-Id": "42"})
    for msg in orders.read("orders.eu.*"):
        print(msg.seq, msg.subject, msg.time, msg.data)
"""

import atexit as _atexit

from penstock.db.database import Database
from penstock.db.database import close_all as _close_all
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
from penstock.kernel.message import Message

__version__ = "0.1.0"
__all__ = [
    "Ack",
    "Acks",
    "ApiError",
    "Database",
    "EndOfStream",
    "Message",
    "MessageDeleted",
    "MessageNotFound",
    "PenstockError",
    "PublishRefused",
    "StoreError",
    "StoreLocked",
    "Stream",
    "StreamState",
    "open",
]

_atexit.register(_close_all)
