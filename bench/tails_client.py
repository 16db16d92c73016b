"""One request at a time through nats-py, with the time that each took: the counterpart of `bench/load/go`.

python -m bench.tails_client core|publish|put PORT COUNT WARM
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.errors import NotFoundError

PAYLOAD = bytes(128)
Operation = Callable[[], Awaitable[object]]


async def main(kind: str, port: int, count: int, warm: int) -> None:
    client = await nats.connect(f"nats://127.0.0.1:{port}")
    server = await nats.connect(f"nats://127.0.0.1:{port}")
    do = await operation(kind, client, server)
    for _ in range(warm):
        await do()
    took: list[float] = []
    for _ in range(count):
        start = time.perf_counter()
        await do()
        took.append((time.perf_counter() - start) * 1e6)
    took.sort()
    parts = {"p50_us": 0.5, "p90_us": 0.9, "p99_us": 0.99, "p999_us": 0.999, "max_us": 1.0}
    print(json.dumps({"messages": count} | {name: took[int(part * (count - 1))] for name, part in parts.items()}))
    await client.close()
    await server.close()


async def operation(kind: str, client: Client, server: Client) -> Operation:
    """What is timed, once a call."""
    if kind == "core":

        async def answer(message: Msg) -> None:
            await message.respond(message.data)

        await server.subscribe("tails.echo", cb=answer)
        await server.request("tails.echo", b"", timeout=20)  # nats-py's flush may overtake the subscription
        return lambda: client.request("tails.echo", PAYLOAD, timeout=20)
    stream = client.jetstream(timeout=20)
    if kind == "publish":
        return lambda: stream.publish("bench.x", PAYLOAD)
    try:
        bucket = await stream.key_value("B")
    except NotFoundError:
        bucket = await stream.create_key_value(bucket="B")
    return lambda: bucket.put("k", PAYLOAD)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], *(int(word) for word in sys.argv[2:])))
