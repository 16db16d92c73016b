from penstock.broker.routing.router import Router
from penstock.broker.routing.sublist import Sublist
from penstock.store.read.reader import Reader
from penstock.store.write.engine import StreamEngine

class DirectSender:
    """Answers of one stream to direct gets."""

    def __init__(self, router: Router, sublist: Sublist, engine: StreamEngine, stream: bytes) -> None: ...
    def send(self, reply: bytes, seq: int, bare: bool = False) -> bool: ...
    def send_placed(self, reply: bytes, seq: int, pending: int, last: int) -> int: ...
    def send_next(
        self, reader: Reader, reply: bytes, most: int, byte_max: int, bare: bool, pending: int, last: int
    ) -> tuple[int, int, int, int]: ...
