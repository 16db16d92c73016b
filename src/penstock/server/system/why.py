"""Why: `$SYS.REQ.PENSTOCK.WHY` explains a consumer that does not deliver, and what became of a message. Ours alone."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.api.stream_lock import read_locked
from penstock.consumer.why import ConsumerFacts, Listeners, MessageFacts, explain_consumer, explain_message
from penstock.consumer.why_facts import consumer_facts, message_facts, removal_of
from penstock.consumer.why_json import consumer_json, message_json
from penstock.errors import quote
from penstock.server.monitor.page import RequestError
from penstock.store.file_store import FileStore

if TYPE_CHECKING:
    from penstock.broker.streams.endpoint import StreamEndpoint
    from penstock.consumer.consumer import Consumer
    from penstock.server.server import Server


@dataclass(slots=True)
class WhyOptions:
    """The subject of the question: a consumer by its name, or a message by its sequence."""

    account: str = "$G"
    stream: str = ""
    consumer: str = ""
    seq: int = 0


async def make_why(server: Server, options: WhyOptions) -> dict[str, Any]:
    """The explanation; RequestError says what is missing."""
    endpoint = _find(server, options)
    if bool(options.consumer) == bool(options.seq):
        raise RequestError('ask about a "consumer", or about a message by its "seq"')
    await endpoint.settled()
    if options.consumer:
        facts = await read_locked(endpoint, lambda: _consumer(endpoint, options.consumer))
        found = consumer_json(facts, explain_consumer(facts))
    else:
        message = await _message(endpoint, options.seq)
        found = message_json(message, explain_message(message))
    return {"account": options.account, **found}


def _find(server: Server, options: WhyOptions) -> StreamEndpoint:
    if server.jetstream is None:
        raise RequestError("jetstream not enabled")
    account = server.jetstream.accounts.get(options.account)
    if account is None:
        raise RequestError(f"account {quote(options.account)} not found, or without jetstream")
    endpoint = account.streams.get(options.stream)
    if endpoint is None:
        there = ", ".join(sorted(account.streams)) or "none"
        raise RequestError(f"stream {quote(options.stream)} not found on account {quote(options.account)}: {there}")
    return endpoint


def _consumer(endpoint: StreamEndpoint, name: str) -> ConsumerFacts:
    consumers = endpoint.stream.consumers
    consumer = consumers.by_name.get(name)
    if consumer is None:
        there = ", ".join(sorted(consumers.by_name)) or "none"
        raise RequestError(f"consumer {quote(name)} not found for stream {quote(endpoint.name)}: {there}")
    store = endpoint.stream.store
    return consumer_facts(
        endpoint.stream.config, store, consumer, store.clock.wall_ns(), _listeners(endpoint, consumer)
    )


def _listeners(endpoint: StreamEndpoint, consumer: Consumer) -> Listeners:
    delivery = endpoint.deliveries.get(consumer.name)
    if delivery is None:
        return Listeners()
    pin_id, since_ns = next(((pin, ns) for _, pin, ns in delivery.groups() if pin), ("", 0))
    return Listeners(
        num_waiting=delivery.num_waiting,
        is_push_bound=delivery.is_push_bound,
        is_stalled=delivery.is_stalled,
        pin_id=pin_id,
        pinned_ns=since_ns,
    )


async def _message(endpoint: StreamEndpoint, seq: int) -> MessageFacts:
    """The facts about a message. If it is gone, a helper thread reads the files for the reason."""
    stream, store = endpoint.stream, endpoint.stream.store

    def look(removal: str = "") -> MessageFacts:
        return message_facts(stream.config, store, stream.consumers, seq, store.clock.wall_ns(), removal)

    facts = await read_locked(endpoint, look)
    is_gone = not facts.is_stored and 0 < seq <= facts.last_seq
    if is_gone and not facts.removal and isinstance(store, FileStore):
        removal = await asyncio.to_thread(removal_of, store.paths, store.stream_id, seq)
        facts = await read_locked(endpoint, lambda: look(removal))
    return facts
