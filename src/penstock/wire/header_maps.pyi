from typing_extensions import Buffer

def encode_maps(
    count: int,
    bits: Buffer | None,
    bit: int,
    rows: Buffer,
    key_at: Buffer,
    keys: Buffer,
    list_at: Buffer,
    value_at: Buffer,
    values: Buffer,
) -> tuple[bytes, bytes]: ...
