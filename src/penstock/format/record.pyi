from typing import Any

from typing_extensions import Buffer

class RecordError(ValueError): ...

def encode_message(
    seq: int,
    time: int,
    subject: bytes,
    headers: bytes | None,
    payload: bytes,
    *,
    base_seq: int = 0,
    base_time: int = 0,
    salt: int = 0,
    has_ttl: bool = False,
    has_msg_id: bool = False,
    erased: bool = False,
) -> bytes: ...
def encode_control(
    kind: int,
    reason: int,
    seq: int,
    time: int,
    value: int,
    ranges: list[tuple[int, int]] | tuple[()] = (),
    *,
    base_seq: int = 0,
    base_time: int = 0,
    salt: int = 0,
) -> bytes: ...
def measure(block: Buffer, start: int = 0) -> int: ...
def decode(
    block: Buffer, start: int = 0, *, base_seq: int = 0, base_time: int = 0, salt: int = 0
) -> dict[str, Any]: ...
