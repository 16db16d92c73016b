from typing import final

from typing_extensions import Buffer

LOG_MAGIC: bytes
VERSION: int
PUT: int
NOTE: int
REMOVE: int
END: int
KINDS: dict[str, int]

@final
class ConsumerLogScan:
    @property
    def records(self) -> list[tuple[int, int, int, int, bytes]]: ...
    @property
    def damage(self) -> list[tuple[int, int]]: ...
    @property
    def stop(self) -> int: ...
    @property
    def torn(self) -> int: ...
    @property
    def is_newer(self) -> bool: ...

def scan_records(log: Buffer, start: int, stop: int, salt: int) -> ConsumerLogScan: ...
def encode_record(kind: int, number: int, count: int, body: bytes, salt: int) -> bytes: ...
def split_put(body: bytes) -> tuple[bytes, bytes]: ...
