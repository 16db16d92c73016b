from typing import Protocol, final

from penstock.broker.consumers.outbox import Outbox

class PushSenderHost(Protocol):
    """What a push sender calls: the consumer that delivers through it."""

    def new_flow_subject(self) -> bytes:
        """A subject on which the client answers the next flow control request."""

    def activity_changed(self) -> None:
        """`is_active` has changed."""

@final
class PushSender:
    """Delivers a consumer's messages to its deliver subject."""

    heartbeat_ns: int
    rate: float
    burst: float
    def __init__(self, outbox: Outbox, host: PushSenderHost) -> None: ...
    @property
    def deliver_subject(self) -> bytes: ...
    @property
    def deliver_group(self) -> bytes: ...
    @property
    def is_active(self) -> bool: ...
    @property
    def is_stalled(self) -> bool: ...
    @property
    def flow_subject(self) -> bytes: ...
    def update_activity(self) -> None: ...
    def deliver_to(self, subject: bytes, group: bytes) -> None: ...
    def set_flow_control(self, is_on: bool, acks: bool) -> None: ...
    def request_flow_control(self) -> None: ...
