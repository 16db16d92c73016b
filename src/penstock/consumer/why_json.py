"""The explanations of `why.py` as JSON: for the command line's --json and the system account's request."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.consumer.moment import Moment, format_moment
from penstock.consumer.why import ConsumerFacts, MessageFacts, Reason

Fields = dict[str, Any]


def consumer_json(facts: ConsumerFacts, reasons: Iterable[Reason]) -> Fields:
    told = [_reason(one) for one in reasons]
    fields: Fields = {
        "stream": facts.stream,
        "consumer": facts.name,
        "delivers": not any(one.get("blocking") for one in told),
        "reasons": told,
        "first_seq": facts.first_seq,
        "last_seq": facts.last_seq,
        "delivered_seq": facts.delivered_seq,
        "ack_floor_seq": facts.ack_floor_seq,
        "next_seq": facts.next_seq,
        "matching": facts.matching,
        "num_pending": facts.num_pending,
        "num_ack_pending": facts.num_ack_pending,
        "given_up": list(facts.given_up),
    }
    if facts.next_due_ns is not None:
        fields["next_due"] = _time(facts.next_due_ns)
    if facts.listeners is not None:
        fields["num_waiting"] = facts.listeners.num_waiting
        fields["push_bound"] = facts.listeners.is_push_bound
    return fields


def message_json(facts: MessageFacts, reasons: Iterable[Reason]) -> Fields:
    place, *consumers = reasons
    fields: Fields = {"stream": facts.stream, "seq": facts.seq, "is_stored": facts.is_stored, **_reason(place)}
    if facts.is_stored:
        fields |= {"subject": facts.subject, "time": _time(facts.time_ns), "size": facts.size}
    deliveries = {one.name: one.deliveries for one in facts.deliveries}
    fields["consumers"] = [
        {"consumer": one.consumer, **_reason(one), "deliveries": deliveries[one.consumer]} for one in consumers
    ]
    return fields


def _reason(reason: Reason) -> Fields:
    fields: Fields = {"code": reason.code, "text": reason.text}
    if reason.is_blocking:
        fields["blocking"] = True
    if reason.until_ns:
        fields["until"] = _time(reason.until_ns)
    return fields


def _time(ns: int) -> str:
    return format_moment(Moment(ns))
