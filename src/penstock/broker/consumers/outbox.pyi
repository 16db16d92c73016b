from typing import final

from penstock.broker.routing.router import Router
from penstock.broker.routing.sublist import Sublist
from penstock.consumer.engine import ConsumerEngine

@final
class Outbox:
    """Sends one consumer's messages and statuses to the subscribers of a subject."""

    @property
    def engine(self) -> ConsumerEngine: ...
    pin_id: bytes
    def __init__(self, router: Router, sublist: Sublist, engine: ConsumerEngine, ack_prefix: bytes) -> None: ...
    def send_status(self, subject: bytes, headers: bytes, reply: bytes | None = None) -> None: ...
