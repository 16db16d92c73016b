from penstock.kernel.core import Core
from penstock.kernel.hub import Hub
from penstock.kernel.reader import Reader
from penstock.kernel.sublist import Sublist

class DirectSender:
    """Answers of one stream to direct gets."""

    def __init__(self, hub: Hub, sublist: Sublist, core: Core, stream: bytes) -> None: ...
    def send(self, reply: bytes, seq: int, bare: bool = False) -> bool: ...
    def send_placed(self, reply: bytes, seq: int, pending: int, last: int) -> int: ...
    def send_next(
        self, reader: Reader, reply: bytes, most: int, byte_max: int, bare: bool, pending: int, last: int
    ) -> tuple[int, int, int, int]: ...
