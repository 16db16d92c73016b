"""XXH64 in plain Python: the readable form of base/xxh64.pxd, and the tests' oracle."""

P1, P2, P3, P4, P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
MASK = 2**64 - 1


def _rotl(value: int, count: int) -> int:
    return ((value << count) | (value >> (64 - count))) & MASK


def _round(acc: int, lane: int) -> int:
    return _rotl((acc + lane * P2) & MASK, 31) * P1 & MASK


def xxh64_of(data: bytes, seed: int = 0) -> int:
    """The XXH64 of `data`."""
    data = bytes(data)
    at, stop = 0, len(data)

    def lane(size: int) -> int:
        return int.from_bytes(data[at : at + size], "little")

    if stop >= 32:
        accs = [seed + P1 + P2, seed + P2, seed, seed - P1]
        accs = [acc & MASK for acc in accs]
        while at + 32 <= stop:
            for n in range(4):
                accs[n] = _round(accs[n], lane(8))
                at += 8
        h = sum(_rotl(acc, count) for acc, count in zip(accs, (1, 7, 12, 18), strict=True)) & MASK
        for acc in accs:
            h = ((h ^ _round(0, acc)) * P1 + P4) & MASK
    else:
        h = (seed + P5) & MASK
    h = (h + stop) & MASK
    while at + 8 <= stop:
        h = (_rotl(h ^ _round(0, lane(8)), 27) * P1 + P4) & MASK
        at += 8
    if at + 4 <= stop:
        h = (_rotl(h ^ (lane(4) * P1 & MASK), 23) * P2 + P3) & MASK
        at += 4
    while at < stop:
        h = _rotl(h ^ (data[at] * P5 & MASK), 11) * P1 & MASK
        at += 1
    h = (h ^ (h >> 33)) * P2 & MASK
    h = (h ^ (h >> 29)) * P3 & MASK
    return h ^ (h >> 32)


def hash_id(msg_id: bytes) -> bytes:
    """The 16 bytes by which a message id is remembered."""
    return xxh64_of(msg_id).to_bytes(8, "little") + xxh64_of(msg_id, 1).to_bytes(8, "little")
