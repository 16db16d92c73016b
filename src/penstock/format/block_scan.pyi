from typing_extensions import Buffer

class BlockScan:
    count: int
    control_count: int
    damage_count: int
    stop: int
    torn: int
    is_newer: bool
    last_checksum: int

    def drop_rows(self) -> None: ...
    def damaged(self) -> list[tuple[int, int]]: ...
    def control_spans(self) -> list[tuple[int, int]]: ...
    def messages(self) -> list[tuple[int, int, int, int, int]]: ...

def scan_block(
    block: Buffer,
    start: int,
    stop: int,
    *,
    base_seq: int = 0,
    base_time: int = 0,
    salt: int = 0,
    seq_min: int = 0,
    seq_stop: int = ...,
) -> BlockScan: ...
