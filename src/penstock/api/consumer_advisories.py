"""ConsumerAdvisories: the events of one stream's consumers on $JS.EVENT. None is built if nobody subscribes to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.api.advisories import METRIC, PREFIX
from penstock.consumer.moment import ZERO_NS, Moment, format_moment

if TYPE_CHECKING:
    from penstock.api.advisories import Advisories
    from penstock.broker.account import Account
    from penstock.consumer.consumer import Consumer

ACTIONS = {"create": b"CREATED", "delete": b"DELETED"}
ACK_METRIC = b"$JS.EVENT.METRIC.CONSUMER.ACK."
NEVER = Moment(ZERO_NS)


class ConsumerAdvisories:
    """Publishes events of one stream's consumers in the stream's account (`broker.consumers.events`)."""

    def __init__(self, advisories: Advisories, account: Account, stream: str) -> None:
        self._advisories = advisories
        self._account = account
        self._stream = stream

    def changed(self, name: str, what: str) -> None:
        if what in ACTIONS:
            self._tell(b"CONSUMER." + ACTIONS[what], name, "consumer_action", {"action": what})

    def acked(self, consumer: Consumer, consumer_seq: int, stream_seq: int, delay_ns: int, deliveries: int) -> None:
        subject = ACK_METRIC + f"{self._stream}.{consumer.name}".encode()
        if self._account.has_interest(subject):
            fields = {
                "stream": self._stream,
                "consumer": consumer.name,
                "consumer_seq": consumer_seq,
                "stream_seq": stream_seq,
                "ack_time": delay_ns,
                "deliveries": deliveries,
            }
            self._advisories.send(self._account, subject, METRIC + "consumer_ack", fields)

    def naked(self, consumer: Consumer, consumer_seq: int, stream_seq: int, deliveries: int) -> None:
        fields = {"consumer_seq": consumer_seq, "stream_seq": stream_seq, "deliveries": deliveries}
        self._tell(b"CONSUMER.MSG_NAKED", consumer.name, "nak", fields)

    def terminated(
        self, consumer: Consumer, consumer_seq: int, stream_seq: int, deliveries: int, reason: str = ""
    ) -> None:
        fields: dict[str, Any] = {"consumer_seq": consumer_seq, "stream_seq": stream_seq, "deliveries": deliveries}
        why = {"reason": reason} if reason else {}
        self._tell(b"CONSUMER.MSG_TERMINATED", consumer.name, "terminated", fields | why)

    def given_up(self, consumer: Consumer, stream_seq: int, deliveries: int) -> None:
        fields = {"stream_seq": stream_seq, "deliveries": deliveries}
        self._tell(b"CONSUMER.MAX_DELIVERIES", consumer.name, "max_deliver", fields)

    def paused(self, consumer: Consumer) -> None:
        until = consumer.config.pause_until or NEVER
        fields = {"paused": self._advisories.now_ns() < until.ns, "pause_until": format_moment(until)}
        self._tell(b"CONSUMER.PAUSE", consumer.name, "consumer_pause", fields)

    def pinned(self, consumer: Consumer, group: str, pin_id: str) -> None:
        self._tell_of_group(consumer, b"CONSUMER.PINNED", "pinned", {"group": group, "pinned_id": pin_id})

    def unpinned(self, consumer: Consumer, group: str, reason: str) -> None:
        self._tell_of_group(consumer, b"CONSUMER.UNPINNED", "unpinned", {"group": group, "reason": reason})

    def _tell(self, event: bytes, consumer: str, kind: str, fields: Mapping[str, Any]) -> None:
        subject = PREFIX + event + f".{self._stream}.{consumer}".encode()
        if self._account.has_interest(subject):
            told = {"stream": self._stream, "consumer": consumer, **fields}
            self._advisories.advise(self._account, subject, kind, told)

    def _tell_of_group(self, consumer: Consumer, event: bytes, kind: str, last: dict[str, Any]) -> None:
        subject = PREFIX + event + f".{self._stream}.{consumer.name}".encode()
        if self._account.has_interest(subject):
            told = {"account": self._account.name, "stream": self._stream, "consumer": consumer.name}
            self._advisories.advise(self._account, subject, f"consumer_group_{kind}", told, last)
