"""The Bloom filter of subjects in plain Python: what base/bloom_filter.pyx builds and asks.

    filter := size_log bits          size_log u8, 6 to 12; bits: 2^size_log bytes, bit n is bit n & 7 of byte n >> 3

An item is the XXH64 of a whole subject (seed 11), or of a token prefix with its dot (seed 12): `a.b.c` gives `a.b.c`,
`a.` and `a.b.`; prefixes up to 8 tokens. Probe n of 0, 1, 2 is low + n * (high | 1) modulo the number of bits, where
low and high are the hash's two halves. The size is the smallest that gives an item 8 bits, as far as there is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from twins.xxh64 import xxh64_of

SIZE_LOG_MIN, SIZE_LOG_MAX, PROBES, LEVELS_MAX = 6, 12, 3, 8
SEED_SUBJECT, SEED_PREFIX = 11, 12


def _as_bytes(text: bytes | str) -> bytes:
    return text.encode() if isinstance(text, str) else text


def _prefixes(name: bytes) -> Iterator[bytes]:
    tokens = name.split(b".")
    for level in range(1, min(len(tokens) - 1, LEVELS_MAX) + 1):
        yield b".".join(tokens[:level]) + b"."


def _probes(hashed: int, bit_count: int) -> list[int]:
    return [((hashed & 0xFFFFFFFF) + n * (hashed >> 32 | 1)) % bit_count for n in range(PROBES)]


def build_filter(names: Iterable[bytes | str]) -> bytes:
    """The filter of the subjects in `names`."""
    items: set[int] = set()
    for name in map(_as_bytes, names):
        items.add(xxh64_of(name, SEED_SUBJECT))
        items.update(xxh64_of(prefix, SEED_PREFIX) for prefix in _prefixes(name))
    size_log = SIZE_LOG_MIN
    while size_log < SIZE_LOG_MAX and 1 << size_log < len(items):
        size_log += 1
    bits = bytearray(1 << size_log)
    for item in items:
        for probe in _probes(item, 8 << size_log):
            bits[probe >> 3] |= 1 << (probe & 7)
    return bytes([size_log]) + bytes(bits)


def may_match(filter_bytes: bytes, subject_filter: bytes | str) -> bool:
    """Whether a subject that was put into `filter_bytes` may match `subject_filter`; True where nothing is known."""
    if not filter_bytes or not SIZE_LOG_MIN <= filter_bytes[0] <= SIZE_LOG_MAX:
        return True
    if len(filter_bytes) != 1 + (1 << filter_bytes[0]):
        return True
    try:
        pattern = _as_bytes(subject_filter)
    except UnicodeEncodeError:
        return True
    tokens = pattern.split(b".")
    wild = next((index for index, token in enumerate(tokens) if token in (b"*", b">")), None)
    if wild is None:
        item = xxh64_of(pattern, SEED_SUBJECT)
    elif wild == 0:
        return True
    else:
        item = xxh64_of(b".".join(tokens[: min(wild, LEVELS_MAX)]) + b".", SEED_PREFIX)
    bits = filter_bytes[1:]
    return all(bits[probe >> 3] >> (probe & 7) & 1 for probe in _probes(item, len(bits) * 8))
