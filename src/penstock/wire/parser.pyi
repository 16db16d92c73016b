from typing import Any

OPS: tuple[str, ...]
FAULTS: tuple[str | None, ...]

def parse(
    data: bytes, max_control_line: int = 4096, max_payload: int = 1048576, headers_ok: bool = True
) -> tuple[int, dict[str, Any]]: ...
def format_msg_line(subject: bytes, sid: bytes, reply: bytes, headers_size: int, total: int) -> bytes: ...
