"""penstock why: why a consumer does not deliver, and what became of a message. Works beside a running server."""

from __future__ import annotations

import time
from collections.abc import Iterable

from penstock.check.open_store import OpenStore
from penstock.cli.output import OK, console, escape, print_json
from penstock.consumer.config_json import to_dict
from penstock.consumer.consumer import Consumer
from penstock.consumer.overview import load_consumers
from penstock.consumer.why import Reason, explain_consumer, explain_message
from penstock.consumer.why_facts import consumer_facts, message_facts, removal_of
from penstock.consumer.why_json import consumer_json, message_json
from penstock.db.lock import holder_of
from penstock.db.stream import Stream
from penstock.errors import UsageError
from penstock.store.read.snapshot import Snapshot


def why(root: str, name: str, about: str, account: str | None, as_json: bool) -> int:
    """Explain a consumer, or a message by its sequence."""
    with OpenStore(root, account) as opened:
        stream = opened.stream(opened.one(name))
        store = stream.store
        assert isinstance(store, Snapshot)
        consumers = load_consumers(store)
        try:
            is_served = holder_of(opened.path) is not None
            if (consumer := _named(consumers, about)) is not None:
                _tell_consumer(stream, consumer, is_served, as_json)
            elif about.isdigit():
                _tell_message(stream, store, consumers, int(about), as_json)
            else:
                there = ", ".join(one.name for one in consumers) or "none"
                raise UsageError(f"stream {name} has no consumer {about!r}, and that is no sequence; it has: {there}")
        finally:
            for one in consumers:
                one.engine.close()
    return OK


def _named(consumers: Iterable[Consumer], name: str) -> Consumer | None:
    return next((one for one in consumers if one.name == name), None)


def _tell_consumer(stream: Stream, consumer: Consumer, is_served: bool, as_json: bool) -> None:
    facts = consumer_facts(stream.config, stream.store, consumer, time.time_ns())
    reasons = explain_consumer(facts)
    if as_json:
        print_json(consumer_json(facts, reasons) | {"config": to_dict(consumer.config)})
        return
    _print(f"consumer {consumer.name} of {stream.name}", reasons)
    if is_served:
        console().print("  [dim]who waits for its messages, the server knows: ask it on $SYS.REQ.PENSTOCK.WHY[/]")


def _tell_message(stream: Stream, store: Snapshot, consumers: list[Consumer], seq: int, as_json: bool) -> None:
    facts = message_facts(stream.config, store, consumers, seq, time.time_ns())
    if not facts.is_stored and 0 < seq <= facts.last_seq and not facts.removal:
        removal = removal_of(store.paths, store.stream_id, seq, store.disk)
        facts = message_facts(stream.config, store, consumers, seq, facts.now_ns, removal)
    reasons = explain_message(facts)
    if as_json:
        print_json(message_json(facts, reasons))
    else:
        _print(f"message {seq} of {stream.name}", reasons)


def _print(title: str, reasons: Iterable[Reason]) -> None:
    out = console()
    out.print(f"[bold]{escape(title)}[/]", soft_wrap=True)
    for reason in reasons:
        colour = "yellow" if reason.is_blocking else "cyan"
        who = f"[bold]{escape(reason.consumer)}[/]: " if reason.consumer else ""
        out.print(f"  [{colour}]{reason.code}[/]  {who}{escape(reason.text)}", soft_wrap=True)


__all__ = ["why"]
