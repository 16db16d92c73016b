"""The async library: the same names as `penstock`, for an event loop.

    import penstock.aio
    async with penstock.aio.open("data") as db:
        orders = await db.stream("ORDERS", subjects=["orders.>"])
        ack = await orders.publish("orders.eu.42", b"...")
        async for msg in orders.follow("orders.>"): ...
        billing = await orders.consumer("billing", filter="orders.eu.>")
        for msg in await billing.fetch(100): await msg.ack()

A publish appends at once and waits for the commit threads without blocking the loop: all publishes of one loop
iteration, and all that arrive during a sync, share one sync. Long work (purges, listings, tables) runs in a thread.
"""

from penstock.aio.buckets import KeyValue, ObjectStore
from penstock.aio.consumer import Consumer, ConsumerMessage
from penstock.aio.database import Database, open
from penstock.aio.stream import Stream
from penstock.aio.watcher import Watcher

__all__ = ["Consumer", "ConsumerMessage", "Database", "KeyValue", "ObjectStore", "Stream", "Watcher", "open"]
