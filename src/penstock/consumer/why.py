"""Explains why a consumer does not deliver, and what became of a message: turns facts into sentences.

`why_facts.py` gathers the facts, from a running server's consumers or from the files of a store.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.base.duration import NS_PER_SECOND, format_duration
from penstock.consumer.config import ConsumerConfig
from penstock.consumer.moment import Moment, format_moment


@dataclass(frozen=True, slots=True)
class Reason:
    """One explanation: a code for programs, a sentence for people."""

    code: str
    text: str
    is_blocking: bool = False  # while this holds, nothing is delivered, or nothing new
    until_ns: int = 0  # when it ends by itself; 0: never, or unknown
    consumer: str = ""  # about a message: the consumer concerned; "": the stream


@dataclass(frozen=True, slots=True)
class Listeners:
    """The clients that wait for a consumer's messages on a server."""

    num_waiting: int = 0  # pull requests
    is_push_bound: bool = False  # the deliver subject has a subscriber
    is_stalled: bool = False  # which has not answered a flow control request
    pin_id: str = ""  # the only client that is served
    pinned_ns: int = 0


@dataclass(frozen=True, slots=True)
class ConsumerFacts:
    """A consumer's progress, and what the stream holds for it."""

    stream: str
    name: str
    config: ConsumerConfig
    now_ns: int
    first_seq: int  # of the stream
    last_seq: int
    subjects_overlap: bool  # the stream captures something that the filters match
    matching: int  # messages in the stream that the filters match
    delivered_seq: int
    ack_floor_seq: int
    next_seq: int  # nothing below it is new
    num_pending: int  # not delivered yet
    num_ack_pending: int  # delivered, and not acknowledged
    next_due_ns: int | None = None  # when the first of those is due to be delivered again
    given_up: tuple[int, ...] = ()  # sequences that reached max_deliver
    listeners: Listeners | None = None  # None: there is no server


def explain_consumer(facts: ConsumerFacts) -> list[Reason]:
    """Everything that keeps a consumer from delivering, the most important reason first; never empty."""
    reasons = [*_held_back(facts), *_misplaced(facts), *_nothing_to_deliver(facts), *_no_receiver(facts)]
    if not any(reason.is_blocking for reason in reasons):
        reasons.insert(0, _delivers(facts))
    return [*reasons, *_notes(facts)]


# --------------------------------------------------------------------------------------------- what keeps it, in parts


def _held_back(facts: ConsumerFacts) -> Iterator[Reason]:
    config, now_ns = facts.config, facts.now_ns
    if config.pause_until is not None and config.pause_until.ns > now_ns:
        until_ns = config.pause_until.ns
        yield Reason("paused", f"it is paused until {_when(until_ns, now_ns)}", True, until_ns)
    if 0 < config.max_ack_pending <= facts.num_ack_pending:
        text = (
            f"{_messages(facts.num_ack_pending, 'is', 'are')} delivered and not acknowledged, and max_ack_pending is "
            f"{config.max_ack_pending}: nothing new comes before some are"
        )
        yield Reason("max_ack_pending", text + _redelivery(facts), True, facts.next_due_ns or 0)


def _misplaced(facts: ConsumerFacts) -> Iterator[Reason]:
    last = f"the stream's last is {facts.last_seq}"
    if facts.delivered_seq > facts.last_seq and facts.next_seq <= facts.delivered_seq + 1:
        text = f"it stands at sequence {facts.delivered_seq}, and {last}: it waits until the stream gets there"
        yield Reason("ahead_of_stream", f"{text}; `reset` takes it back", True)
    elif facts.next_seq > facts.last_seq + 1:
        yield Reason("starts_later", f"it begins at sequence {facts.next_seq}, and {last}", True)


def _nothing_to_deliver(facts: ConsumerFacts) -> Iterator[Reason]:
    filters = ", ".join(facts.config.filters)
    if facts.num_pending:
        return
    if filters and not facts.subjects_overlap:
        yield Reason("filter_outside", f"no subject that the stream captures can match its filter {filters}", True)
    elif not facts.matching:
        if facts.last_seq >= facts.first_seq > 0 and filters:
            yield Reason("filter_matches_nothing", f"no message in the stream matches its filter {filters}", True)
        else:
            yield Reason("empty", "the stream holds no message", True)
    elif not facts.num_ack_pending:
        text = f"it has caught up: everything up to sequence {facts.last_seq} was delivered and acknowledged"
        if facts.given_up:
            text = f"it has caught up: everything up to sequence {facts.last_seq} was acknowledged or given up"
        if facts.config.ack_policy == "none":
            text = f"it has caught up: everything up to sequence {facts.last_seq} was delivered"
        yield Reason("caught_up", text, True)
    else:
        waits = _messages(facts.num_ack_pending, "waits for its", "wait for their")
        text = f"everything was delivered; {waits} acknowledgement"
        code = "backoff" if facts.config.backoff else "ack_wait"
        is_due = facts.next_due_ns is not None and facts.next_due_ns <= facts.now_ns
        yield Reason(code, text + _redelivery(facts), not is_due, facts.next_due_ns or 0)


def _no_receiver(facts: ConsumerFacts) -> Iterator[Reason]:
    listeners, config = facts.listeners, facts.config
    if listeners is None:
        return
    if config.is_push and not listeners.is_push_bound:
        group = f" in queue group {config.deliver_group}" if config.deliver_group else ""
        text = f"nobody subscribes to its deliver subject {config.deliver_subject}{group}"
        yield Reason("not_heard", f"{text}, exactly as it is written (a wildcard does not count)", True)
    elif config.is_push and listeners.is_stalled:
        text = "its client has not answered a flow control request: it is slow, or does not know of them"
        yield Reason("flow_control", text, True)
    elif not config.is_push and not listeners.num_waiting:
        yield Reason("no_requests", "no pull request waits: its clients do not fetch, or have all they asked for", True)
    elif not config.is_push and listeners.pin_id:
        since = _when(listeners.pinned_ns, facts.now_ns)
        text = f"only the client with pin id {listeners.pin_id} is served, since {since}"
        yield Reason("pinned", f"{text}; the others wait until it goes, or is unpinned")
    elif not config.is_push and config.priority_policy == "overflow":
        text = "requests are served when as much waits as they say (min_pending, min_ack_pending)"
        yield Reason("overflow", text)


def _delivers(facts: ConsumerFacts) -> Reason:
    waits = _messages(facts.num_pending)
    if facts.listeners is None:
        return Reason("ready", f"{waits} can be delivered, from sequence {facts.next_seq} on, to whoever asks")
    return Reason("delivers", f"it delivers: {waits} to go, from sequence {facts.next_seq} on")


def _notes(facts: ConsumerFacts) -> Iterator[Reason]:
    if facts.given_up:
        some = ", ".join(map(str, facts.given_up[:10])) + (", …" if len(facts.given_up) > 10 else "")
        times = f"{facts.config.max_deliver} times" if facts.config.max_deliver != 1 else "once"
        text = (
            f"{_messages(len(facts.given_up), 'was', 'were')} given up, delivered {times} and not acknowledged: {some}"
        )
        yield Reason("given_up", text)
    if facts.config.rate_limit_bps and facts.num_pending:
        yield Reason("rate_limit", f"it delivers no more than {facts.config.rate_limit_bps:,} bits in a second")
    if facts.config.replay_policy == "original" and facts.num_pending:
        yield Reason("replay", "it replays messages in the rhythm in which they were stored")


# -------------------------------------------------------------------------------------------------------- a message


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a consumer knows about one message."""

    name: str
    config: ConsumerConfig
    created_ns: int
    delivered_seq: int
    delivered_count: int  # how many deliveries it has made in total
    ack_floor_seq: int
    deliveries: int = 0  # of this message, as far as known
    is_pending: bool = False
    is_given_up: bool = False
    delivered_ns: int = 0  # the last time
    due_ns: int = 0  # when it is due to be delivered again


@dataclass(frozen=True, slots=True)
class MessageFacts:
    """What a stream knows about one sequence."""

    stream: str
    seq: int
    now_ns: int
    first_seq: int
    last_seq: int
    is_stored: bool
    subject: str = ""
    time_ns: int = 0
    size: int = 0
    expires_ns: int = 0  # 0: never
    removal: str = ""  # why it is gone, as the log names it; "": unknown
    keeps_reasons: bool = True  # a memory stream does not
    deliveries: tuple[Delivery, ...] = ()
    matching: frozenset[str] = frozenset()  # consumers whose filters match its subject, if it is stored


_GONE = {
    "user": ("deleted", "it was deleted by a request"),
    "purge": ("purged", "it was purged"),
    "rollup": ("rolled_up", "a later message with a Nats-Rollup header took its place"),
    "erase": ("erased", "it was erased: deleted, and overwritten on the disk"),
    "max_msgs": ("max_msgs", "it was dropped when the stream reached max_msgs"),
    "max_bytes": ("max_bytes", "it was dropped when the stream reached max_bytes"),
    "max_msgs_per_subject": ("max_msgs_per_subject", "it was dropped when its subject reached max_msgs_per_subject"),
    "max_age": ("expired", "it became older than max_age"),
    "ttl": ("expired", "its Nats-TTL ran out"),
    "ack": ("acknowledged", "it was acknowledged, and left the work queue"),
    "interest": ("no_interest", "every consumer that was interested has it, or none was"),
    "lost": ("lost", "it was lost: the disk no longer has it (`penstock verify` says more)"),
    "compact": ("deleted", "it is gone; the record that said why is gone as well"),
    "skipped": ("skipped", "no message was ever stored under it: an interest stream passes by what nobody wants"),
}


def explain_message(facts: MessageFacts) -> list[Reason]:
    """Where a message is, and what each consumer did with it. The first reason tells whether it is stored."""
    return [_place(facts), *(_at_consumer(facts, one) for one in facts.deliveries if facts.seq <= facts.last_seq)]


def _place(facts: MessageFacts) -> Reason:
    now_ns = facts.now_ns
    if facts.is_stored:
        text = f"it is stored since {_when(facts.time_ns, now_ns)}: {facts.subject}, {facts.size:,} bytes"
        if facts.expires_ns:
            ends = "expires" if facts.expires_ns > now_ns else "should have expired"
            text += f"; it {ends} {_when(facts.expires_ns, now_ns)}"
        return Reason("stored", text, until_ns=facts.expires_ns)
    if facts.seq > facts.last_seq:
        return Reason("never", f"it was never there: the stream's last sequence is {facts.last_seq}")
    if facts.seq < 1:
        return Reason("never", "it was never there: sequences begin at 1")
    if facts.removal in _GONE:
        return Reason(*_GONE[facts.removal])
    if not facts.keeps_reasons:
        return Reason("gone", "it is gone; a stream in memory keeps no record of why")
    return Reason("gone", "it is gone; no record says why: it went with the block that held it")


def _at_consumer(facts: MessageFacts, one: Delivery) -> Reason:
    code, text = _state_at(facts, one)
    return Reason(code, text, until_ns=one.due_ns if one.is_pending else 0, consumer=one.name)


def _state_at(facts: MessageFacts, one: Delivery) -> tuple[str, str]:
    seq, now_ns = facts.seq, facts.now_ns
    if one.is_pending:
        text = f"delivered {_times(one.deliveries)}, last {_when(one.delivered_ns, now_ns)}, not acknowledged"
        if one.due_ns > now_ns:
            return "pending", f"{text}; it comes again {_when(one.due_ns, now_ns)}"
        return "pending", f"{text}; it is due to come again" if one.due_ns else text
    if facts.is_stored and one.name not in facts.matching:
        return "not_matched", f"its filter {', '.join(one.config.filters)} does not match {facts.subject}"
    if one.is_given_up:
        return "given_up", f"given up: delivered {_times(one.deliveries)} and never acknowledged"
    if _is_before(facts, one):
        return "before_start", "stored before its start, and not for it"
    if seq > one.delivered_seq:
        gone = "" if facts.is_stored else ", and will not be"
        return "not_delivered", f"not delivered yet{gone}: it stands at sequence {one.delivered_seq}"
    if one.config.ack_policy == "none":
        return "delivered", "delivered; it asks for no acknowledgement"
    if not one.delivered_count:
        return "before_start", "below its start, and not for it"
    if not facts.is_stored and one.config.filters:
        return "settled", "behind it: acknowledged, gone before it was, or on a subject that its filter does not match"
    if not facts.is_stored and seq > one.ack_floor_seq:
        return "settled", "acknowledged, or gone before it was"
    if one.config.deliver_policy in ("last", "last_per_subject", "new") and facts.time_ns < one.created_ns:
        return "settled", "acknowledged, or passed over when the consumer was made"
    return "acknowledged", "acknowledged, or terminated by its receiver"


def _is_before(facts: MessageFacts, one: Delivery) -> bool:
    """Whether a message lies before the consumer's start, as far as that can be told."""
    config = one.config
    if config.deliver_policy == "by_start_sequence":
        return facts.seq < config.opt_start_seq
    if not facts.is_stored:
        return False
    if config.deliver_policy == "by_start_time":
        return facts.time_ns < (config.opt_start_ns or 0)
    return config.deliver_policy == "new" and facts.time_ns < one.created_ns


# ------------------------------------------------------------------------------------------------------------- words


def _redelivery(facts: ConsumerFacts) -> str:
    due_ns = facts.next_due_ns
    if due_ns is None:
        return ""
    return f"; the next comes again {_when(due_ns, facts.now_ns)}" if due_ns > facts.now_ns else "; some are due again"


def _messages(number: int, one: str = "", many: str = "") -> str:
    """Text like "1 message" or "1,200 messages", with the verb that fits the number."""
    text, verb = ("1 message", one) if number == 1 else (f"{number:,} messages", many)
    return f"{text} {verb}" if verb else text


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number:,} times")


def _when(ns: int, now_ns: int) -> str:
    """A time, and its distance from now: "2026-11-15T19:00:00Z (in 3m20s)"."""
    away = abs(ns - now_ns)
    rounded = away // NS_PER_SECOND * NS_PER_SECOND if away >= 10 * NS_PER_SECOND else away // 1_000_000 * 1_000_000
    far = format_duration(rounded)
    return f"{format_moment(Moment(ns // 1_000_000 * 1_000_000))} ({f'in {far}' if ns > now_ns else f'{far} ago'})"
