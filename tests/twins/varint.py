"""Unsigned LEB128 in its shortest form, and zigzag, in plain Python."""


def read_varint(data: bytes, start: int, stop: int | None = None) -> tuple[int, int]:
    """(value, offset past it); (0, -1) when it is cut, too long, too large or not in shortest form."""
    stop = len(data) if stop is None else stop
    value = 0
    for index in range(10):
        if start + index >= stop:
            return 0, -1
        byte = data[start + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if (byte == 0 and index > 0) or value >= 2**64:
                return 0, -1
            return value, start + index + 1
    return 0, -1


def write_varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def zigzag(value: int) -> int:
    return (value << 1) ^ (value >> 63) if value >= 0 else ((-value) << 1) - 1


def unzigzag(value: int) -> int:
    return (value >> 1) ^ -(value & 1)
