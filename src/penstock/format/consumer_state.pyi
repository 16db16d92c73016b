from dataclasses import dataclass, field

from typing_extensions import Buffer

from penstock.errors import StoreError

MAGIC: bytes
MAGIC_2: bytes

class CorruptConsumerState(StoreError, ValueError):
    offset: int
    reason: str
    def __init__(self, offset: int, reason: str) -> None: ...

@dataclass(slots=True)
class ConsumerState:
    delivered_consumer_seq: int = 0
    delivered_stream_seq: int = 0
    ack_floor_consumer_seq: int = 0
    ack_floor_stream_seq: int = 0
    pending: dict[int, tuple[int, int]] = field(default_factory=dict)
    redelivered: dict[int, int] = field(default_factory=dict)
    deadlines: dict[int, int] | None = None

def encode(state: ConsumerState) -> bytes: ...
def decode(buffer: Buffer) -> ConsumerState: ...
