"""Metrics: the server's figures in Prometheus' text format, for a scrape of /metrics.

Names follow Prometheus' rules: the unit last, `_total` for counters. A family is one block, with its help and its type.
docs/monitoring.md lists them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from penstock import __version__
from penstock.api.stream_info import count_of
from penstock.api.stream_lock import read_locked
from penstock.errors import StreamNotFound
from penstock.server.monitor.page import yield_to_loop
from penstock.server.monitor.process import cpu_seconds, open_files, resident_bytes, virtual_bytes
from penstock.server.monitor.varz import subscription_count
from penstock.wire.info import VERSION

if TYPE_CHECKING:
    from penstock.broker.streams.endpoint import StreamEndpoint
    from penstock.consumer.consumer import Consumer
    from penstock.server.server import Server

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
STREAM_SLICE = 32  # streams read before the loop does other work

Labels = Mapping[str, str]
Sample = tuple[Labels, int | float]


class Families:
    """Builds the text, family by family."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, name: str, kind: str, about: str, samples: Iterable[Sample]) -> None:
        """Add a family; one without samples is left out."""
        lines = [f"{name}{_labels(labels)} {_number(value)}" for labels, value in samples]
        if lines:
            self._lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}", *lines]

    def gauge(self, name: str, about: str, value: int | float) -> None:
        self.add(name, "gauge", about, [({}, value)])

    def counter(self, name: str, about: str, value: int | float) -> None:
        self.add(name, "counter", about, [({}, value)])

    def text(self) -> bytes:
        return ("\n".join(self._lines) + "\n").encode()


async def text(server: Server) -> bytes:
    """The whole page."""
    families = Families()
    files = await asyncio.to_thread(open_files)  # one per connection: a long directory
    _add_process(families, server, files)
    _add_server(families, server)
    _add_accounts(families, server)
    await _add_jetstream(families, server)
    await _add_consumers(families, server)
    return families.text()


def _add_process(families: Families, server: Server, files: int) -> None:
    families.counter("process_cpu_seconds_total", "User and system processor time.", round(cpu_seconds(), 2))
    families.gauge("process_resident_memory_bytes", "Resident memory.", resident_bytes())
    families.gauge("process_virtual_memory_bytes", "Virtual memory.", virtual_bytes())
    families.gauge("process_open_fds", "Open file descriptors.", files)
    families.gauge("process_start_time_seconds", "When the server started, in Unix time.", server.start_ns / 1e9)


def _add_server(families: Families, server: Server) -> None:
    router = server.router
    info = {"server_id": server.id, "server_name": server.name, "version": __version__, "nats_version": VERSION}
    families.add("penstock_info", "gauge", "Which server this is; always 1.", [(info, 1)])
    families.gauge("penstock_connections", "Open client connections.", len(server.connections))
    families.counter("penstock_connections_opened_total", "Client connections ever.", server.total_connections)
    families.gauge("penstock_connections_max", "Client connections at most.", server.options.max_connections)
    families.gauge("penstock_subscriptions", "Subscriptions of all accounts.", subscription_count(server))
    families.counter("penstock_in_msgs_total", "Messages that clients published.", router.in_msgs)
    families.counter("penstock_in_bytes_total", "Bytes of the messages that clients published.", router.in_bytes)
    families.counter("penstock_out_msgs_total", "Messages delivered to clients.", router.out_msgs)
    families.counter("penstock_out_bytes_total", "Bytes of the messages delivered to clients.", router.out_bytes)
    families.counter("penstock_slow_consumers_total", "Clients cut off for reading too slowly.", server.slow_consumers)
    families.counter(
        "penstock_stale_connections_total", "Clients cut off for not answering pings.", server.stale_connections
    )
    families.counter("penstock_stalls_total", "Times that a fast publisher was slowed down.", server.stalls)


def _add_accounts(families: Families, server: Server) -> None:
    accounts = [({"account": account.name}, account) for account in server.accounts.values()]
    for name, kind, about, read in (
        ("connections", "gauge", "Open client connections", lambda account: len(account.clients)),
        ("subscriptions", "gauge", "Subscriptions", lambda account: account.sublist.count),
        ("in_msgs_total", "counter", "Messages published", lambda account: account.in_msgs),
        ("in_bytes_total", "counter", "Bytes published", lambda account: account.in_bytes),
        ("out_msgs_total", "counter", "Messages delivered", lambda account: account.out_msgs),
        ("out_bytes_total", "counter", "Bytes delivered", lambda account: account.out_bytes),
        ("slow_consumers_total", "counter", "Clients cut off", lambda account: account.slow_consumers),
    ):
        samples = [(labels, read(account)) for labels, account in accounts]
        families.add(f"penstock_account_{name}", kind, f"{about}, by account.", samples)


async def _add_jetstream(families: Families, server: Server) -> None:
    jetstream = server.jetstream
    if jetstream is None:
        return
    families.gauge("penstock_jetstream_memory_bytes", "Used by memory streams.", jetstream.memory_used)
    families.gauge("penstock_jetstream_storage_bytes", "Used by file streams.", jetstream.storage_used)
    families.gauge("penstock_jetstream_memory_max_bytes", "Memory streams at most.", jetstream.max_memory)
    families.gauge("penstock_jetstream_storage_max_bytes", "File streams at most.", jetstream.max_storage)
    families.counter("penstock_jetstream_api_requests_total", "API requests.", jetstream.api_total)
    families.counter("penstock_jetstream_api_errors_total", "API requests answered by an error.", jetstream.api_errors)
    streams = [
        ({"account": name, "stream": endpoint.name}, endpoint.stream)
        for name, account in jetstream.accounts.items()
        for endpoint in account.streams.values()
    ]
    families.gauge("penstock_jetstream_streams", "Streams of all accounts.", len(streams))
    rows: list[tuple[Labels, tuple[int | float, ...]]] = []
    for at, (labels, stream) in enumerate(streams, 1):
        index, log = stream.store.index, stream.store.engine.log
        counts = (index.messages, index.bytes, index.first_seq, index.last_seq, index.subject_count)
        rows.append((labels, (*counts, count_of(stream), int(log.has_uncommitted), log.fail_count)))
        if at % STREAM_SLICE == 0:
            await yield_to_loop()
    for column, (name, kind, about) in enumerate(
        (
            ("messages", "gauge", "Messages that the stream holds."),
            ("bytes", "gauge", "Their bytes, as limits count them."),
            ("first_seq", "gauge", "Sequence of the first message."),
            ("last_seq", "gauge", "Sequence of the last message."),
            ("subjects", "gauge", "Subjects with a message."),
            ("consumers", "gauge", "Consumers of the stream."),
            ("uncommitted", "gauge", "1 while something waits to be committed."),
            ("commit_failures_total", "counter", "Commits that failed."),
        )
    ):
        families.add(f"penstock_stream_{name}", kind, about, [(labels, values[column]) for labels, values in rows])


async def _add_consumers(families: Families, server: Server) -> None:
    jetstream = server.jetstream
    if jetstream is None:
        return
    rows: list[tuple[Labels, tuple[int, ...]]] = []
    for name, account in list(jetstream.accounts.items()):
        for endpoint in list(account.streams.values()):
            everyone = [one for one in endpoint.stream.consumers if not one.config.direct]
            for start in range(0, len(everyone), STREAM_SLICE):
                some = everyone[start : start + STREAM_SLICE]
                try:
                    found = await read_locked(endpoint, lambda: _consumer_rows(endpoint, some))  # noqa: B023
                except StreamNotFound:
                    break  # it was deleted just now
                labels = {"account": name, "stream": endpoint.name}
                rows += [(labels | {"consumer": consumer}, values) for consumer, values in found]
                await yield_to_loop()
    for column, (name, about) in enumerate(
        (
            ("pending", "Messages that were not delivered yet."),
            ("ack_pending", "Messages delivered and not acknowledged."),
            ("redelivered", "Messages delivered more than once, and those given up."),
            ("waiting", "Pull requests that wait."),
            ("delivered_seq", "Stream sequence of the last message delivered."),
            ("ack_floor_seq", "Stream sequence up to which everything is acknowledged."),
            ("paused", "1 while it is paused."),
        )
    ):
        families.add(f"penstock_consumer_{name}", "gauge", about, [(labels, values[column]) for labels, values in rows])


def _consumer_rows(endpoint: StreamEndpoint, consumers: list[Consumer]) -> list[tuple[str, tuple[int, ...]]]:
    """The figures of some consumers. The caller holds the stream's lock."""
    now_ns = endpoint.stream.store.clock.now_ns()
    rows: list[tuple[str, tuple[int, ...]]] = []
    for consumer in consumers:
        if consumer.is_deleted:
            continue
        engine, table = consumer.engine, consumer.table
        delivery = endpoint.deliveries.get(consumer.name)
        counts = (engine.num_pending, engine.num_ack_pending, engine.num_redelivered)
        places = (table.delivered_stream_seq, table.ack_floor_stream_seq, int(consumer.is_paused(now_ns)))
        rows.append((consumer.name, (*counts, delivery.num_waiting if delivery is not None else 0, *places)))
    return rows


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: int | float) -> str:
    return repr(value)
