"""The header of a block file, and the id of the boot that wrote HEAD. Layout: docs/format.md, "Block"."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from penstock.base.xxh64 import xxh64_of
from penstock.errors import NewerFormat
from penstock.format.bounds import ID_MAX, SEQ_MAX
from penstock.format.constants import BLOCK_MAGIC, FORMAT_VERSION, HEADER_SIZE, HEADER_STRIDE, RECORDS_START

_HEADER = struct.Struct("<8sHBBI16sQQQQqQ80s88s")


@dataclass(frozen=True, slots=True)
class BlockHeader:
    """The fixed facts of a block: docs/format.md, "Block"."""

    stream_id: bytes
    block_id: int
    epoch: int
    base_seq: int
    first_seq: int
    base_time: int
    salt: int
    generation: int = 1
    cipher: int = 0
    compression: int = 0

    def encode(self) -> bytes:
        """The 256 bytes of one copy."""
        body = _HEADER.pack(
            BLOCK_MAGIC,
            FORMAT_VERSION,
            self.cipher,
            self.compression,
            self.generation,
            self.stream_id,
            self.block_id,
            self.epoch,
            self.base_seq,
            self.first_seq,
            self.base_time,
            self.salt,
            b"",
            b"",
        )
        return body + struct.pack("<Q", xxh64_of(body))

    def encode_front(self) -> bytes:
        """Both copies, as they stand before the records."""
        copy = self.encode().ljust(HEADER_STRIDE, b"\0")
        return (copy + copy).ljust(RECORDS_START, b"\0")


def decode_header(data: bytes, path: str) -> BlockHeader | None:
    """The header in one copy's 256 bytes; None when they do not hold. A newer format is an error."""
    if len(data) < HEADER_SIZE or data[:8] != BLOCK_MAGIC:
        return None
    (checksum,) = struct.unpack_from("<Q", data, HEADER_SIZE - 8)
    if xxh64_of(data[: HEADER_SIZE - 8]) != checksum:
        return None
    fields = _HEADER.unpack_from(data)
    if fields[1] > FORMAT_VERSION or fields[2] or fields[3]:
        raise NewerFormat(path, fields[1])
    generation, block_id, epoch, base_seq, first_seq, salt = (fields[n] for n in (4, 6, 7, 8, 9, 11))
    if not (generation and 0 < block_id <= ID_MAX and epoch <= ID_MAX and salt and base_seq <= first_seq <= SEQ_MAX):
        return None
    return BlockHeader(
        stream_id=fields[5],
        block_id=fields[6],
        epoch=fields[7],
        base_seq=fields[8],
        first_seq=fields[9],
        base_time=fields[10],
        salt=fields[11],
        generation=fields[4],
    )


def decode_front(front: bytes, path: str) -> BlockHeader | None:
    """The header from the first copy that holds."""
    return decode_header(front[:HEADER_SIZE], path) or decode_header(
        front[HEADER_STRIDE : HEADER_STRIDE + HEADER_SIZE], path
    )


def boot_id() -> bytes:
    """16 bytes that name this boot of the machine; zeros where the system does not say."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return bytes.fromhex(file.read().strip().replace("-", ""))
    except OSError:
        return bytes(16)
