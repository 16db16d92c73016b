"""Delivery: one consumer on the server: its configuration, rare acks and requests, timers and advisories.

Its compiled session receives from clients, keeps the requests that wait and writes the frames. For what needs Python
the session calls back here, through `SessionHost` (session.pyi). Rules: docs/consumers.md.
"""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING

from penstock.broker.consumers.inactivity import Inactivity
from penstock.broker.consumers.pinned_client import PinnedClient
from penstock.broker.consumers.session import ConsumerSession
from penstock.broker.routing.origin import Listener
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
    from penstock.broker.consumers.push_sender import PushSender
    from penstock.consumer.config import ConsumerConfig
    from penstock.consumer.consumer import Consumer

log = logging.getLogger("penstock")
PAYLOAD_MAX = 1 << 20
TIMER_S_MAX = 86_400.0
NEVER_NS = 2**62 - 1  # a deadline that does not come: in a hundred years
API_LEVEL = b"NATS/1.0 412 Required Api Level\r\n\r\n"
UNACKED = "Unacknowledged message was deleted"


class Delivery:
    """One consumer on the server. Belongs to the loop's thread.

    Always true: until `close`, the session calls this object back; after it, neither refers to the other's work.
    """

    def __init__(self, dispatcher: ConsumerDispatcher, consumer: Consumer) -> None:
        stream, config = dispatcher.stream.name, consumer.config
        prefix = f"$JS.ACK.{stream}.{consumer.name}.".encode()
        self.session = ConsumerSession(dispatcher.scheduler, consumer.engine, prefix, config.is_push, self)
        consumer.engine.tells = True
        self.owner = dispatcher
        self.consumer = consumer
        self.engine = consumer.engine
        self.events = dispatcher.endpoint.events
        self.pinned = PinnedClient(self)
        self._tokens: list[int] = []
        self._config: ConsumerConfig | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._inactivity = Inactivity(self)
        account, domain = dispatcher.account.name, dispatcher.endpoint.domain
        if config.ack_policy in ("explicit", "all"):
            for subject in ack_filters(stream, consumer.name, account, domain):
                self._tokens.append(self.session.listen(Listener.ACK, subject.encode()))
        request_subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer.name}"
        self._tokens.append(self.session.listen(Listener.PULL, request_subject.encode()))
        for subject in flow_control_filters(stream, consumer.name, account, domain):
            self._tokens.append(self.session.listen(Listener.FLOW, subject.encode()))
        self.configured()

    @property
    def config(self) -> ConsumerConfig:
        return self.consumer.config

    @property
    def is_closed(self) -> bool:
        return self.session.is_closed

    def configured(self) -> None:
        """Take over the consumer's configuration: it is new, or it or the stream's has changed."""
        old, config = self._config, self.consumer.config
        self._config = config
        stream = self.owner.stream.config
        session = self.session
        session.confirms_empty_acks = stream.retention == "limits"
        session.is_sampled = config.sample_percent > 0 and config.ack_policy == "explicit"
        session.is_flow_controlled = config.flow_control
        policy = config.priority_policy
        if (queue := session.pull_queue) is not None:
            queue.is_prioritized, queue.is_pinned = policy == "prioritized", policy == "pinned_client"
            queue.is_overflow = policy == "overflow"
            queue.max_waiting, queue.max_batch = config.max_waiting, config.max_batch
            queue.max_expires_ns, queue.max_bytes = config.max_expires, config.max_bytes
        if (sender := session.push_sender) is not None:
            sender.heartbeat_ns = config.idle_heartbeat
            sender.rate = float(config.rate_limit_bps // 8)
            sender.burst = float(stream.max_msg_size if stream.max_msg_size > 0 else PAYLOAD_MAX)
            sender.set_flow_control(config.flow_control, config.ack_policy == "flow_control")
            if (
                old is None
                or old.deliver_subject != config.deliver_subject
                or old.deliver_group != config.deliver_group
            ):
                self._watch(sender, old, config)
        if old is None or old.pause_until != config.pause_until:
            self._wait_for_pause()
        if policy != "pinned_client":
            self.pinned.clear()
        self._inactivity.configured()
        session.schedule()

    def reset(self) -> None:
        """The consumer begins at another place."""
        self.session.schedule()

    # Rare acks and requests.

    def rare_ack(self, seq: int, dseq: int, deliveries: int, payload: bytes, now_ns: int) -> bool:
        """Handle an ack other than +ACK, +WPI and +NXT: whether its sender gets an answer."""
        ack = parse_ack(payload)
        if ack.kind is AckKind.TERM:
            is_answered = self.session.acknowledge(seq, dseq, now_ns)
            self.events.terminated(self.consumer, dseq, seq, deliveries, ack.reason)
            return is_answered
        if ack.kind is AckKind.NAK:
            if ack.bad_delay:
                where = f"{self.owner.account.name} > {self.owner.stream.name} > {self.consumer.name}"
                text = ack.bad_delay.decode("utf-8", "replace")
                log.warning("JetStream consumer '%s' bad NAK delay value: %r", where, text)
            due_ns = now_ns if ack.delay_ns is None else self._due_ns(seq, now_ns, ack.delay_ns)
            if self.session.redeliver_at(seq, dseq, due_ns):
                self.events.naked(self.consumer, dseq, seq, deliveries)
        return seq != 0

    def _due_ns(self, seq: int, now_ns: int, delay_ns: int) -> int:
        """When a nak with a delay is due: nats-server counts from the wait that the message would have had."""
        backoff = self.config.backoff
        if backoff:
            delay_ns += backoff[min(max(self.session.deliveries_of(seq), 1), len(backoff)) - 1] - backoff[0]
        return min(now_ns + delay_ns, NEVER_NS)

    def rare_pull(self, reply: bytes, headers: bytes | None, text: bytes, now_ns: int, mono_ns: int) -> None:
        """Handle a pull request that compiled code does not parse."""
        outbox, queue = self.session.outbox, self.session.pull_queue
        assert queue is not None, "a push consumer refuses pull requests itself"
        if asks_too_much(headers):
            outbox.send_status(reply, API_LEVEL)
            return
        try:
            request = read_pull(text, self.config, outbox.pin_id.decode())
        except PullRefused as refusal:
            outbox.send_status(reply, f"NATS/1.0 {refusal}\r\n\r\n".encode("utf-8", "surrogateescape"))
            return
        body = trim(text)
        if outbox.pin_id and request.id.encode() == outbox.pin_id:
            self.pinned.hold()
        queue.add(reply, request, now_ns, mono_ns, body.startswith(b"{"))

    def flow_acked(self, headers: bytes, now_ns: int) -> None:
        """Handle a flow control answer that acknowledges messages."""
        stream_seq = _number(find(headers, b"Nats-Last-Stream"))
        if stream_seq > 0:
            self.session.acknowledge(stream_seq, max(_number(find(headers, b"Nats-Last-Consumer")), 0), now_ns)

    # Advisories.

    def ack_sampled(self, seq: int, dseq: int, deliveries: int, delay_ns: int) -> None:
        """Publish an advisory for the sampled part of the acks."""
        percent = self.config.sample_percent
        if percent >= 100 or random.randrange(100) <= percent:  # the same odds as in nats-server
            self.events.acked(self.consumer, dseq, seq, delay_ns, deliveries)

    def messages_lost(self, now_ns: int) -> None:
        """Publish advisories for messages that are not delivered again though they were never acknowledged."""
        for seq, deliveries in self.engine.take_given_up():
            self.events.given_up(self.consumer, seq, deliveries)
        for seq, dseq, deliveries in self.engine.take_dropped():
            self.engine.last_acked_ns = now_ns
            self.events.terminated(self.consumer, dseq, seq, max(deliveries - 1, 1), UNACKED)

    # Push.

    @property
    def is_push_bound(self) -> bool:
        """Whether the deliver subject of a push consumer has a subscriber."""
        sender = self.session.push_sender
        return sender is not None and sender.is_active

    @property
    def is_stalled(self) -> bool:
        """Whether flow control holds messages back."""
        sender = self.session.push_sender
        return sender is not None and sender.is_stalled

    def new_flow_subject(self) -> bytes:
        return format_flow_control_subject(self.owner.stream.name, self.consumer.name, random_token()).encode()

    def _watch(self, sender: PushSender, old: ConsumerConfig | None, config: ConsumerConfig) -> None:
        """Deliver to the configured subject, and follow the subscriptions to it."""
        sublist = self.owner.account.sublist
        if old is not None:
            sublist.unwatch(old.deliver_subject.encode(), sender.update_activity)
        subject = config.deliver_subject.encode()
        sender.deliver_to(subject, config.deliver_group.encode())
        if old is not None and old.deliver_subject != config.deliver_subject:
            self.session.redeliver_all(self.owner.stream.store.clock.now_ns())
        sublist.watch(subject, sender.update_activity)
        sender.update_activity()

    def activity_changed(self) -> None:
        """The deliver subject has its first subscriber, or has lost its last one."""
        self._inactivity.interest_changed()

    # Pull.

    @property
    def num_waiting(self) -> int:
        """How many pull requests wait."""
        queue = self.session.pull_queue
        return queue.num_waiting if queue is not None else 0

    @property
    def pin_id(self) -> str:
        """The pin of the one client that gets messages; empty: no client is pinned."""
        return self.session.outbox.pin_id.decode()

    def pin(self) -> None:
        """Pin the client of a request that is first of its group."""
        self.pinned.assign()

    def unpin(self, group: str = "") -> None:
        """Pin no client any more."""
        self.pinned.clear()
        self.session.schedule()

    def groups(self) -> list[tuple[str, str, int]]:
        """(group, pin id, since when) of the first group, which is the one that is served."""
        names = self.config.priority_groups
        return [(names[0], self.pin_id, self.pinned.since_ns)] if names else []

    def release(self, status: bytes | None, tells_rest: bool) -> None:
        """End the pull requests that wait with a status, or silently with None."""
        if (queue := self.session.pull_queue) is not None:
            queue.release(status, tells_rest)

    # Time.

    def arm(self, seconds: float) -> None:
        """Have the session served in so many seconds."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.owner.loop.call_later(min(max(seconds, 0.0), TIMER_S_MAX), self._due)

    def _due(self) -> None:
        self._timer = None
        self.session.timer_fired()

    def _wait_for_pause(self) -> None:
        """Publish an advisory when the pause ends by itself."""
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
        self.session.schedule()

    def _arm_pause(self, left_ns: int) -> None:
        self._pause = self.owner.loop.call_later(min(left_ns / 1e9, TIMER_S_MAX), self._pause_ended)

    def _pause_ended(self) -> None:
        self._pause = None
        left_ns = self._pause_left_ns()  # read once: it may be over a moment later
        if left_ns > 0:
            self._arm_pause(left_ns)
        else:
            self.events.paused(self.consumer)
            self.session.schedule()

    # The end.

    def close(self, status: bytes | None) -> None:
        """Receive and deliver nothing any more; clients whose requests wait get `status`."""
        if self.is_closed:
            return
        self.release(status, False)
        self.session.close()
        self.engine.tells = False
        for token in self._tokens:
            self.session.stop_listening(token)
        if (sender := self.session.push_sender) is not None:
            self.owner.account.sublist.unwatch(sender.deliver_subject, sender.update_activity)
        for timer in (self._timer, self._pause):
            if timer is not None:
                timer.cancel()
        self.pinned.clear()
        self._inactivity.close()

    def __repr__(self) -> str:
        return f"<Delivery {self.owner.stream.name} > {self.consumer.name}>"


def _number(text: bytes | None) -> int:
    return int(text) if text is not None and text.isdigit() and len(text) < 20 else -1
