from typing import Final, final

from typing_extensions import Buffer

from penstock.base.seq_set import SeqSet
from penstock.base.subject import Filters

COLUMN_BITS: Final[dict[str, int]]
HEADERS_RAW: Final[int]
BATCH_BYTES_MAX: Final[int]

@final
class Spares:
    def __init__(self) -> None: ...

@final
class Memory(Buffer):
    def __len__(self) -> int: ...

@final
class Columns:
    @property
    def row_count(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def finished(self) -> bool: ...
    @property
    def damage(self) -> list[tuple[int, int]]: ...
    @property
    def gaps(self) -> list[tuple[int, int]]: ...
    @property
    def torn(self) -> int | None: ...
    @property
    def seq_next(self) -> int: ...
    @property
    def buffers(self) -> dict[str, tuple[Memory, ...]]: ...
    @property
    def headers_null_count(self) -> int: ...

def read_columns(
    block: Buffer,
    start: int,
    stop: int,
    *,
    base_seq: int = 0,
    base_time: int = 0,
    salt: int = 0,
    seq_next: int = 0,
    min_seq: int = 0,
    stop_seq: int | None = None,
    min_time: int | None = None,
    stop_time: int | None = None,
    filters: Filters | None = None,
    dead: SeqSet | None = None,
    columns: int = 127,
    stream: str | bytes = "",
    max_rows: int = 65536,
    max_bytes: int = ...,
    spares: Spares | None = None,
) -> Columns: ...
