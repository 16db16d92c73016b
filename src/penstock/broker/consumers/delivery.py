"""Delivery: one consumer on the server, as far as it needs Python: configuration, odd acks and requests, pins, timers.

The compiled side hears clients, keeps the requests that wait and writes the frames. Rules: docs/consumers.md.
"""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING

from penstock.broker.consumers.inactivity import Inactivity
from penstock.broker.consumers.pinned_client import PinnedClient
from penstock.broker.consumers.session import Delivery as CompiledDelivery
from penstock.consumer.ack_payload import AckKind, parse_ack
from penstock.consumer.ack_subject import ack_filters, flow_control_filters, format_flow_control_subject
from penstock.consumer.blanks import trim
from penstock.consumer.names import random_token
from penstock.consumer.pull_request import read_pull
from penstock.errors import PullRefused
from penstock.wire.headers import find
from penstock.wire.level import asks_too_much

if TYPE_CHECKING:
    import asyncio

    from penstock.broker.consumers.dispatcher import ConsumerDispatcher
    from penstock.consumer.config import ConsumerConfig
    from penstock.consumer.consumer import Consumer

log = logging.getLogger("penstock")
HEARS_ACKS, HEARS_PULLS, HEARS_FLOW = 3, 4, 5  # the kinds of broker/routing/sublist.pxd
PAYLOAD_MAX = 1 << 20
TIMER_S_MAX = 86_400.0
NEVER_NS = 2**62 - 1  # a deadline that does not come: in a hundred years
API_LEVEL = b"NATS/1.0 412 Required Api Level\r\n\r\n"
UNACKED = "Unacknowledged message was deleted"


class Delivery(CompiledDelivery):
    """One consumer on the server. Belongs to the loop's thread."""

    def __init__(self, dispatcher: ConsumerDispatcher, consumer: Consumer) -> None:
        stream, config = dispatcher.stream.name, consumer.config
        prefix = f"$JS.ACK.{stream}.{consumer.name}.".encode()
        super().__init__(dispatcher.compiled, consumer.engine, prefix, config.deliver_subject.encode())
        consumer.engine.tells = True
        self.owner = dispatcher
        self.consumer = consumer
        self.news = dispatcher.intake.news
        self.pinned = PinnedClient(self)
        self._tokens: list[int] = []
        self._config: ConsumerConfig | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._inactivity = Inactivity(self)
        account, domain = dispatcher.account.name, dispatcher.intake.domain
        if config.ack_policy in ("explicit", "all"):
            for subject in ack_filters(stream, consumer.name, account, domain):
                self._tokens.append(self.listen(HEARS_ACKS, subject.encode()))
        self._tokens.append(self.listen(HEARS_PULLS, f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer.name}".encode()))
        for subject in flow_control_filters(stream, consumer.name, account, domain):
            self._tokens.append(self.listen(HEARS_FLOW, subject.encode()))
        self.configured()

    @property
    def config(self) -> ConsumerConfig:
        return self.consumer.config

    def configured(self) -> None:
        """The configuration is new, or has changed; or the stream's has."""
        old, config = self._config, self.consumer.config
        self._config = config
        stream = self.owner.stream.config
        self.answers_nothing = stream.retention == "limits"
        self.is_sampled = config.sample_percent > 0 and config.ack_policy == "explicit"
        self.is_flow_controlled = config.flow_control
        policy = config.priority_policy
        self.is_prioritized, self.is_pinned = policy == "prioritized", policy == "pinned_client"
        self.is_overflow = policy == "overflow"
        self.max_waiting, self.max_batch = config.max_waiting, config.max_batch
        self.max_expires_ns, self.max_bytes = config.max_expires, config.max_bytes
        self.heartbeat_ns = config.idle_heartbeat
        self.rate = float(config.rate_limit_bps // 8)
        self.burst = float(stream.max_msg_size if stream.max_msg_size > 0 else PAYLOAD_MAX)
        self.control_flow(config.flow_control, config.ack_policy == "flow_control")
        if old is None or old.deliver_subject != config.deliver_subject or old.deliver_group != config.deliver_group:
            self._watch(old, config)
        if old is None or old.pause_until != config.pause_until:
            self._wait_for_pause()
        if not self.is_pinned:
            self.pinned.clear()
        self._inactivity.configured()
        self.touch()

    def reset(self) -> None:
        """It begins at another place."""
        self.touch()

    # What clients say.

    def said(self, seq: int, dseq: int, deliveries: int, payload: bytes, now_ns: int) -> bool:
        """An ack of a rarer kind: whether who sent it is told."""
        ack = parse_ack(payload)
        if ack.kind is AckKind.TERM:
            is_told: bool = self.acknowledge(seq, dseq, now_ns)
            self.news.terminated(self.consumer, dseq, seq, deliveries, ack.reason)
            return is_told
        if ack.kind is AckKind.NAK:
            if ack.bad_delay:
                where = f"{self.owner.account.name} > {self.owner.stream.name} > {self.consumer.name}"
                text = ack.bad_delay.decode("utf-8", "replace")
                log.warning("JetStream consumer '%s' bad NAK delay value: %r", where, text)
            due_ns = now_ns if ack.delay_ns is None else self._due_ns(seq, now_ns, ack.delay_ns)
            if self.put_off(seq, dseq, due_ns):
                self.news.naked(self.consumer, dseq, seq, deliveries)
        return seq != 0

    def _due_ns(self, seq: int, now_ns: int, delay_ns: int) -> int:
        """When a nak with a delay is due: the reference counts from the wait that the message would have had."""
        backoff = self.config.backoff
        if backoff:
            delay_ns += backoff[min(max(self.deliveries_of(seq), 1), len(backoff)) - 1] - backoff[0]
        return min(now_ns + delay_ns, NEVER_NS)

    def asked(self, reply: bytes, headers: bytes | None, text: bytes, now_ns: int, mono_ns: int) -> None:
        """A pull request of a rarer kind."""
        if asks_too_much(headers):
            self.send_status(reply, API_LEVEL)
            return
        try:
            request = read_pull(text, self.config, self.pin_id.decode())
        except PullRefused as refusal:
            self.send_status(reply, f"NATS/1.0 {refusal}\r\n\r\n".encode("utf-8", "surrogateescape"))
            return
        body = trim(text)
        if self.pin_id and request.id.encode() == self.pin_id:
            self.pinned.hold()
        self.add(reply, request, now_ns, mono_ns, body.startswith(b"{"))

    def flowed(self, headers: bytes, now_ns: int) -> None:
        """An answer to flow control that acknowledges."""
        stream_seq = _number(find(headers, b"Nats-Last-Stream"))
        if stream_seq > 0:
            self.acknowledge(stream_seq, max(_number(find(headers, b"Nats-Last-Consumer")), 0), now_ns)

    # What is told.

    def sampled(self, seq: int, dseq: int, deliveries: int, delay_ns: int) -> None:
        """A message is acknowledged: tell of some of them."""
        percent = self.config.sample_percent
        if percent >= 100 or random.randrange(100) <= percent:  # the reference's dice
            self.news.acked(self.consumer, dseq, seq, delay_ns, deliveries)

    def lost(self, now_ns: int) -> None:
        """Messages were delivered as often as may be, or left the stream while they were pending."""
        for seq, deliveries in self.engine.take_given_up():
            self.news.given_up(self.consumer, seq, deliveries)
        for seq, dseq, deliveries in self.engine.take_dropped():
            self.engine.last_acked_ns = now_ns
            self.news.terminated(self.consumer, dseq, seq, max(deliveries - 1, 1), UNACKED)

    # Push.

    @property
    def is_push_bound(self) -> bool:
        return self.is_active

    def deliver_group(self) -> bytes:
        return self.config.deliver_group.encode()

    def new_flow_subject(self) -> bytes:
        return format_flow_control_subject(self.owner.stream.name, self.consumer.name, random_token()).encode()

    def _watch(self, old: ConsumerConfig | None, config: ConsumerConfig) -> None:
        """Know of those who listen where messages are delivered to."""
        sublist = self.owner.account.sublist
        if old is not None and old.deliver_subject:
            sublist.unwatch(old.deliver_subject.encode(), self.notice)
        if config.deliver_subject:
            subject = config.deliver_subject.encode()
            self.deliver_to(subject)
            if old is not None and old.deliver_subject != config.deliver_subject:
                self.deliver_again(self.owner.stream.store.clock.now_ns())
            sublist.watch(subject, self.notice)
            self.notice()

    def interest_changed(self) -> None:
        self._inactivity.interest_changed()

    # Pins.

    def pin(self) -> None:
        """A request is the first of its group: its client alone is served from now on."""
        self.pinned.assign()

    def unpin(self, group: str = "") -> None:
        """Nobody is pinned any more."""
        self.pinned.clear()
        self.touch()

    def groups(self) -> list[tuple[str, str, int]]:
        """(group, pin id, since when) of the group that is served: the first."""
        names = self.config.priority_groups
        return [(names[0], self.pin_id.decode(), self.pinned.since_ns)] if names else []

    # Time.

    def arm(self, seconds: float) -> None:
        """Have a look in so many seconds."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.owner.loop.call_later(min(max(seconds, 0.0), TIMER_S_MAX), self._due)

    def _due(self) -> None:
        self._timer = None
        self.disarm()

    def _wait_for_pause(self) -> None:
        """Tell those who listen when a pause ends by itself."""
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        left_ns = self._pause_left_ns()
        if left_ns > 0:
            self._arm_pause(left_ns)

    def _pause_left_ns(self) -> int:
        return self.engine.paused_until_ns - self.owner.stream.store.clock.wall_ns()

    def clock_changed(self) -> None:
        """The machine's clock was set, by which a pause ends; or the machine has slept, and our timers with it."""
        self._wait_for_pause()
        self.touch()

    def _arm_pause(self, left_ns: int) -> None:
        self._pause = self.owner.loop.call_later(min(left_ns / 1e9, TIMER_S_MAX), self._pause_ended)

    def _pause_ended(self) -> None:
        self._pause = None
        left_ns = self._pause_left_ns()  # looked at once: it may be over a moment later
        if left_ns > 0:
            self._arm_pause(left_ns)
        else:
            self.news.paused(self.consumer)
            self.touch()

    # The end.

    def close(self, status: bytes | None) -> None:
        """Hear and deliver nothing any more; who waits is told `status`."""
        if self.is_closed:
            return
        self.release(status, False)
        self.end()
        self.engine.tells = False
        for token in self._tokens:
            self.stop_listening(token)
        if self.deliver_subject:
            self.owner.account.sublist.unwatch(self.deliver_subject, self.notice)
        for timer in (self._timer, self._pause):
            if timer is not None:
                timer.cancel()
        self.pinned.clear()
        self._inactivity.close()

    def __repr__(self) -> str:
        return f"<Delivery {self.owner.stream.name} > {self.consumer.name}>"


def _number(text: bytes | None) -> int:
    return int(text) if text is not None and text.isdigit() and len(text) < 20 else -1
