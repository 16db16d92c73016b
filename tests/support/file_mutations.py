"""Mutations of files: one field, section, record or JSON value is changed, then every checksum over it is corrected.

The layouts are those of docs/format.md, written down here a second time on purpose: the code under test must not be the
one that says where the fields of its files are.
"""

from __future__ import annotations

import base64
import json
import random
import struct
from collections.abc import Callable
from typing import Any

from penstock.base.xxh64 import xxh64_of

RECORDS_START = 8192
U64 = (0, 1, 2**31, 2**32, 2**40 + 7, 2**62, 2**63 - 2, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1)
U32 = (0, 1, 255, 2**16, 2**31 - 2, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1)
U16 = (0, 1, 255, 2**15, 2**16 - 1)
WILD_JSON = (
    None, True, False, -1, 0, 1, 2**31, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**30, 1.5, 1e308, "",
    "x", "\0",
    "../../../outside/precious.txt", "/etc/passwd", "staging/..", "staging/../x/blocks/000001.blk", "a" * 5000,
    "\ud800",
    "staging/q-2/task-2/blocks/../../../../blocks/000001.blk", ".", "..", [], {}, [[]], [{}], {"a": 1}, [1, 2, 3],
)  # fmt: skip
Random = random.Random


def hashed(data: bytes, seed: int = 0) -> bytes:
    return struct.pack("<Q", xxh64_of(data, seed))


# -------------------------------------------------------------------------------------------------------------- values


def wild(rng: Random, value: int, choices: tuple[int, ...]) -> int:
    """Another number in place of `value`: a boundary, a nearby number, one flipped bit, or a random number."""
    top = (2 ** (16 if choices is U16 else 32 if choices is U32 else 64)) - 1
    match rng.randrange(5):
        case 0 | 1:
            return rng.choice(choices)
        case 2:
            return (value + rng.choice((-1, 1, 2, -2, 8, 100))) & top
        case 3:
            return (value ^ 1 << rng.randrange(top.bit_length())) & top
        case _:
            return rng.randrange(top + 1)


def poke(rng: Random, data: bytearray, at: int, size: int) -> None:
    """Change the number of 1, 2, 4 or 8 bytes at `at`."""
    choices = {1: U16, 2: U16, 4: U32, 8: U64}[size]
    value = int.from_bytes(data[at : at + size], "little")
    new = wild(rng, value, choices) & (2 ** (8 * size) - 1)
    data[at : at + size] = new.to_bytes(size, "little")


def scratch(rng: Random, data: bytes) -> bytes:
    """Bytes changed at random places: flipped, set, cut, doubled, zeroed."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        at = rng.randrange(len(out) + 1)
        size = rng.choice((1, 1, 4, 8, 30))
        match rng.randrange(7):
            case 0 | 1 if at < len(out):
                out[at] ^= 1 << rng.randrange(8)
            case 2 if at < len(out):
                out[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            case 3:
                del out[at : at + size]
            case 4:
                out[at:at] = out[max(0, at - size) : at]
            case 5:
                out[at : at + size] = bytes(len(out[at : at + size]))
            case _:
                out[at : at + size] = rng.randbytes(len(out[at : at + size]))
    return bytes(out)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def mutate_varints(rng: Random, data: bytes) -> bytes:
    """A run of varints with one of them changed, left out, doubled, or encoded longer than needed."""
    found, at = [], 0
    try:
        while at < len(data):
            value, at = read_varint(data, at)
            found.append(value)
    except IndexError:
        return scratch(rng, data)
    if not found:
        return varint(rng.choice(U64))
    at = rng.randrange(len(found))
    parts = [varint(value) for value in found]
    match rng.randrange(8):
        case 0:
            del parts[at]
        case 1:
            parts.insert(at, parts[at])
        case 2:
            parts[at] = parts[at][:-1] + bytes([parts[at][-1] | 128, 0])
        case 3:
            parts[at] = b"\xff" * rng.choice((9, 10, 11))
        case _:
            parts[at] = varint(wild(rng, found[at], U64))
    return b"".join(parts)


# ---------------------------------------------------------------------------------------------------------------- JSON


def mutate_json(rng: Random, value: Any) -> Any:
    """A JSON value with one place changed."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(sorted(value))
        match rng.randrange(8):
            case 0:
                return {name: one for name, one in value.items() if name != key}
            case 1:
                return value | {rng.choice(("x", "", key + "x", "block_id")): rng.choice(WILD_JSON)}
            case _:
                return value | {key: mutate_json(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = rng.randrange(len(value))
        match rng.randrange(5):
            case 0:
                return value[:at] + value[at + 1 :]
            case 1:
                return [*value, value[at]]
            case _:
                return [*value[:at], mutate_json(rng, value[at]), *value[at + 1 :]]
    if isinstance(value, bool):
        return rng.choice((not value, *WILD_JSON))
    if isinstance(value, int) and rng.random() < 0.6:
        return wild(rng, value % 2**64, U64) * rng.choice((1, 1, 1, -1))
    if isinstance(value, str) and value and rng.random() < 0.4:
        at = rng.randrange(len(value))
        return value[:at] + rng.choice(("", "/", "..", "\0", "é", "*", ">", " ", value)) + value[at + 1 :]
    return rng.choice(WILD_JSON)


def json_body(rng: Random, body: bytes) -> bytes:
    """A changed JSON text, which mostly is still JSON."""
    match rng.randrange(12):
        case 0:
            return scratch(rng, body)
        case 1:
            deep = rng.choice((b"[", b'{"a":'))
            return deep * rng.choice((900, 5000, 200_000))
        case 2:
            return rng.choice((b"", b"null", b"[]", b"{}", b"0", b'"x"', b"9" * 5000, b"\xff\xfe", b"NaN", b"{}{}"))
        case _:
            value = json.loads(body)
            for _ in range(rng.choice((1, 1, 1, 2, 3))):
                value = mutate_json(rng, value)
            return json.dumps(value).encode()


# -------------------------------------------------------------------------------------------------------------- blocks

# Header fields of a block and of a consumer log: offset, size.
BLOCK_HEADER = (
    (8, 2),
    (10, 1),
    (11, 1),
    (12, 4),
    (32, 8),
    (40, 8),
    (48, 8),
    (56, 8),
    (64, 8),
    (72, 8),
    (80, 8),
    (160, 8),
)
LOG_HEADER = ((8, 2), (10, 2), (32, 8), (40, 8), (48, 8))


def header_of(data: bytes) -> bytes:
    return bytes(data[:256])


def mutate_front(rng: Random, data: bytes, fields: tuple[tuple[int, int], ...]) -> bytes:
    """Change one field of a header, in one copy or in both."""
    copy = bytearray(data[:248])
    at, size = rng.choice(fields)
    if rng.random() < 0.1:
        copy[16:32] = rng.randbytes(16)
    else:
        poke(rng, copy, at, size)
    new = bytes(copy) + hashed(bytes(copy))
    out = bytearray(data)
    which = rng.choice(((0,), (4096,), (0, 4096), (0, 4096), (0, 4096)))
    for start in which:
        out[start : start + 256] = new
    return bytes(out)


def records_of(data: bytes, start: int) -> list[tuple[int, int]]:
    """(offset, stop) of the records from `start` on, according to their sizes."""
    found, at = [], start
    while at < len(data):
        try:
            size, body = read_varint(data, at)
        except IndexError:
            break
        if size < 9 or body + size > len(data):
            break
        found.append((at, body + size))
        at = body + size
    return found


def sealed(body: bytes, salt: int) -> bytes:
    """A whole record with this body: size before it, checksum behind it."""
    whole = varint(len(body) + 8) + body
    return whole + hashed(whole, salt)


def mutate_record(rng: Random, record: bytes) -> bytes:
    """The body of a block's record with one field changed; the caller appends the checksum."""
    _, at = read_varint(record, 0)
    body = record[at:-8]
    flags = body[0]
    try:
        seq, at = read_varint(body, 1)
        time, at = read_varint(body, at)
    except IndexError:
        return scratch(rng, body)
    rest = body[at:]
    match rng.randrange(9):
        case 0:
            flags = rng.choice((flags ^ 1 << rng.randrange(8), rng.randrange(256), rng.randrange(5)))
        case 1 | 2:
            seq = wild(rng, seq, U64)
        case 3:
            time = wild(rng, time, U64)
        case 4:
            return scratch(rng, body)
        case 5 if flags & 7:
            return (
                bytes([flags]) + varint(seq) + varint(time) + bytes([rng.choice((rest[0], *range(16), 255))]) + rest[1:]
            )
        case _ if flags & 7:
            rest = rest[:1] + mutate_varints(rng, rest[1:])
        case _:
            rest = mutate_message(rng, rest, bool(flags & 8))
    return bytes([flags]) + varint(seq) + varint(time) + rest


def mutate_message(rng: Random, body: bytes, has_headers: bool) -> bytes:
    """Subject, headers and payload of a message record."""
    size, at = read_varint(body, 0)
    subject, rest = body[at : at + size], body[at + size :]
    match rng.randrange(5):
        case 0:
            subject = rng.choice(
                (b"", b">", b"s.*", b"s..x", b" ", b"\0", b"\xff\xfe", b"x" * 300, b"s." + b"a." * 100 + b"b")
            )
        case 1:
            return varint(wild(rng, size, U64)) + subject + rest
        case 2 if has_headers:
            headers_size, at = read_varint(rest, 0)
            rest = varint(wild(rng, headers_size, U64)) + rest[at:]
        case 3 if has_headers:
            headers_size, at = read_varint(rest, 0)
            headers = rest[at : at + headers_size]
            new = rng.choice((
                scratch(rng, headers), b"NATS/1.0\r\nNats-TTL: 99999999999999999999\r\n\r\n",
                b"NATS/1.0\r\nNats-Msg-Id: \r\n\r\n",
                b"NATS/1.0\r\nNats-TTL: x\r\n\r\n", b"", b"NATS/1.0\r\nNats-Msg-Id:", b"\r\nNats-TTL: 2562047h",
            ))  # fmt: skip
            rest = varint(len(new)) + new + rest[at + headers_size :]
        case _:
            rest = scratch(rng, rest)
    return varint(len(subject)) + subject + rest


def mutate_records(rng: Random, data: bytes, start: int, salt: int, change: Callable[[Random, bytes], bytes]) -> bytes:
    """One of several records changed, left out, doubled or moved; or the bytes cut off."""
    spans = records_of(data, start)
    if not spans:
        return data
    parts = [data[at:stop] for at, stop in spans]
    tail = data[spans[-1][1] :]
    at = rng.randrange(len(parts))
    match rng.randrange(12):
        case 0:
            del parts[at]
        case 1:
            parts.insert(rng.randrange(len(parts) + 1), parts[at])
        case 2:
            other = rng.randrange(len(parts))
            parts[at], parts[other] = parts[other], parts[at]
        case 3:
            return data[: rng.randrange(start, len(data) + 1)]
        case _:
            for victim in dict.fromkeys((at, rng.choice((at, at, rng.randrange(len(parts)))))):
                parts[victim] = sealed(change(rng, parts[victim]), salt)
    return data[:start] + b"".join(parts) + tail


def mutate_block(rng: Random, data: bytes) -> bytes:
    if len(data) < RECORDS_START:
        return scratch(rng, data)
    if rng.random() < 0.3:
        return mutate_front(rng, data, BLOCK_HEADER)
    (salt,) = struct.unpack_from("<Q", data, 72)
    return mutate_records(rng, data, RECORDS_START, salt, mutate_record)


# ----------------------------------------------------------------------------------------------- summary and checkpoint


class Sections:
    """A file of fixed fields, a table of spans, and sections: taken apart, so that it can be put together again with
    correct checksums.
    """

    def __init__(self, data: bytes, table: int, count: int, fixed: int, salt: int, has_sums: bool) -> None:
        self.fixed = bytearray(data[:fixed])
        self.table, self.salt, self.has_sums = table, salt, has_sums
        spans = struct.unpack_from(f"<{2 * count}Q", data, table)
        self.parts = [data[at : at + size] for at, size in zip(spans[::2], spans[1::2], strict=True)]
        self.wild_spans: list[tuple[int, int]] = []  # index into the table, number

    def encode(self) -> bytes:
        spans, body, at = [], bytearray(), len(self.fixed)
        for part in self.parts:
            spans += [at + len(body), len(part)]
            body += part + (hashed(part, self.salt) if self.has_sums else b"")
            body += bytes(-len(body) % 8)
        for index, number in self.wild_spans:
            spans[index] = number
        struct.pack_into(f"<{len(spans)}Q", self.fixed, self.table, *spans)
        whole = bytes(self.fixed) + bytes(body)
        return whole + hashed(whole, self.salt)

    def shuffle(self, rng: Random) -> None:
        """Sections swapped, removed, duplicated or cut; or a table with wrong spans."""
        at, other = rng.randrange(len(self.parts)), rng.randrange(len(self.parts))
        match rng.randrange(5):
            case 0:
                self.parts[at], self.parts[other] = self.parts[other], self.parts[at]
            case 1:
                self.parts[at] = self.parts[other]
            case 2:
                self.parts[at] = self.parts[at][: rng.randrange(len(self.parts[at]) + 1)]
            case 3:
                self.parts[at] = self.parts[at] * 2
            case _:
                self.wild_spans.append((rng.randrange(2 * len(self.parts)), wild(rng, 600, U64)))


def poked(rng: Random, part: bytes, entry: int, fields: tuple[tuple[int, int], ...]) -> bytes:
    """A table of entries with one field of one entry changed."""
    if len(part) < entry:
        return scratch(rng, part) if part else rng.randbytes(entry)
    out = bytearray(part)
    at, size = rng.choice(fields)
    poke(rng, out, rng.randrange(len(part) // entry) * entry + at, size)
    return bytes(out)


def named(rng: Random, part: bytes, head: int, size_at: int, fields: tuple[tuple[int, int], ...]) -> bytes:
    """Entries that end with a name and its size: one of them changed, left out or duplicated."""
    parts, at = [], 0
    while at + head <= len(part):
        stop = at + head + int.from_bytes(part[at + size_at : at + size_at + 2], "little")
        parts.append(part[at:stop])
        at = stop
    if not parts:
        return scratch(rng, part)
    at = rng.randrange(len(parts))
    match rng.randrange(8):
        case 0:
            del parts[at]
        case 1:
            parts.append(parts[at])
        case 2:
            other = rng.randrange(len(parts))
            parts[at], parts[other] = parts[other], parts[at]
        case 3:
            entry, name = bytearray(parts[at][:head]), rng.choice((b"", b"x" * 300, b"s.>", b"\xff", b"s.1.c", b"a b"))
            entry[size_at : size_at + 2] = len(name).to_bytes(2, "little")
            parts[at] = bytes(entry) + name
        case _:
            entry = bytearray(parts[at])
            poke(rng, entry, *rng.choice(fields))
            parts[at] = bytes(entry)
    return b"".join(parts)


SUMMARY_FIXED = (
    (8 + 12, 4), (8 + 32, 8), (8 + 40, 8), (8 + 48, 8), (8 + 56, 8), (8 + 64, 8), (8 + 72, 8), (264, 8), (272, 8),
    (280, 8), (288, 8), (296, 8), (304, 4), (308, 4), (312, 8), (320, 8), (328, 8), (336, 8), (344, 8),
)  # fmt: skip


def mutate_summary(rng: Random, data: bytes) -> bytes:
    (salt,) = struct.unpack_from("<Q", data, 80)
    found = Sections(data, 352, 10, 512, salt, True)
    for _ in range(rng.choice((1, 1, 1, 2))):
        which = rng.choice((-2, -1, -1, -1, 0, 1, 2, 3, 4, 4, 5, 6, 7, 8, 9))
        part = found.parts[which] if which >= 0 else b""
        if which == -2:
            found.shuffle(rng)
        elif which == -1:
            at, size = rng.choice(SUMMARY_FIXED)
            poke(rng, found.fixed, at, size)
            if at < 264:
                found.fixed[256:264] = hashed(bytes(found.fixed[8:256]))
        elif rng.random() < 0.15:
            found.parts[which] = scratch(rng, part)
        elif which < 4:
            found.parts[which] = poked(rng, part, 4, ((0, 4),))
        elif which == 4:
            found.parts[which] = named(rng, part, 10, 8, ((0, 4), (0, 4), (4, 4), (8, 2)))
        elif which == 5:
            found.parts[which] = mutate_records(rng, part, 0, salt, mutate_record)
        elif which == 6:
            found.parts[which] = poked(rng, part, 28, ((0, 4), (4, 8), (12, 8)))
        elif which == 7:
            found.parts[which] = poked(rng, part, 12, ((0, 4), (4, 8)))
        elif which == 8:
            found.parts[which] = rng.choice((b"", part + struct.pack("<QQ", rng.choice(U64), rng.choice(U64))))
        else:
            found.parts[which] = bytes([rng.choice((0, 5, 6, 7, 12, 13, 31, 255))]) + part[1:]
    found.salt = struct.unpack_from("<Q", found.fixed, 80)[0]
    return found.encode()


BLOCK_ROW = tuple((8 * n, 8) for n in range(16)) + tuple((128 + 4 * n, 4) for n in range(4))


def mutate_checkpoint(rng: Random, data: bytes) -> bytes:
    found = Sections(data, 112, 6, 208, 0, False)
    for _ in range(rng.choice((1, 1, 1, 2))):
        which = rng.choice((-2, -1, -1, -1, 0, 0, 0, 0, 1, 2, 2, 2, 3, 4, 5))
        part = found.parts[which] if which >= 0 else b""
        if which == -2:
            found.shuffle(rng)
        elif which == -1:
            poke(rng, found.fixed, 24 + 8 * rng.randrange(11), 8)
        elif rng.random() < 0.15:
            found.parts[which] = scratch(rng, part)
        elif which == 0:
            found.parts[which] = poked(rng, part, 144, BLOCK_ROW)
        elif which == 2:
            found.parts[which] = named(rng, part, 30, 4, ((0, 4), (0, 4), (4, 2), (6, 8), (14, 8), (22, 8)))
        elif which == 3:
            found.parts[which] = poked(rng, part, 16, ((0, 8), (8, 8)))
        elif which == 5:
            found.parts[which] = poked(rng, part, 8, ((0, 8),))
        else:
            found.parts[which] = scratch(rng, part) if part else rng.randbytes(8)
    return found.encode()


def mutate_head(rng: Random, data: bytes) -> bytes:
    out = bytearray(data)
    for start in rng.choice(((0,), (2048,), (0, 2048), (0, 2048))):
        for _ in range(rng.choice((1, 1, 2))):
            poke(rng, out, start + 8 * rng.choice((1, 6, 7, 8, 9, 10, 11, 12, 13)), 8)
        out[start + 120 : start + 128] = hashed(bytes(out[start : start + 120]))
    return bytes(out)


# ---------------------------------------------------------------------------------------------- small files, the log


def mutate_checked(rng: Random, data: bytes) -> bytes:
    """Change ADOPT, BATCHES, DELETES or TRUNCATE: a line of JSON and a line with its checksum."""
    body = data.split(b"\n")[0]
    value = json.loads(body)
    sets = value.get("sets") if isinstance(value, dict) else None
    if sets and rng.random() < 0.4:
        name = rng.choice(sorted(sets))
        sets[name] = base64.b64encode(mutate_varints(rng, base64.b64decode(sets[name]))).decode()
        body = json.dumps(value).encode()
    elif isinstance(value, dict) and "dead" in value and rng.random() < 0.3:
        value["dead"] = mutate_varints(rng, bytes.fromhex(value["dead"])).hex()
        body = json.dumps(value).encode()
    else:
        body = json_body(rng, body)
    return body + b"\n%016x\n" % xxh64_of(body)


def mutate_identity(rng: Random, data: bytes) -> bytes:
    body = json_body(rng, data.rpartition(b"\nxxh64 ")[0])
    return body + b"\nxxh64 %016x\n" % xxh64_of(body)


def mutate_log_record(rng: Random, record: bytes) -> bytes:
    """The body of a consumer log's record with one field changed."""
    _, at = read_varint(record, 0)
    body = record[at:-8]
    try:
        kind = body[0]
        number, at = read_varint(body, 1)
        count, at = read_varint(body, at)
    except IndexError:  # a record that was changed before
        return scratch(rng, body)
    rest = body[at:]
    match rng.randrange(8):
        case 0:
            kind = rng.choice((0, 1, 2, 3, 4, 5, 255))
        case 1:
            number = wild(rng, number, U64)
        case 2:
            count = wild(rng, count, U64)
        case 3:
            return scratch(rng, body)
        case _ if kind == 1:
            rest = mutate_put(rng, rest)
        case _ if kind == 2:
            rest = mutate_varints(rng, rest)
        case _:
            count = wild(rng, count, U64)
    return bytes([kind]) + varint(number) + varint(count) + rest


def mutate_put(rng: Random, body: bytes) -> bytes:
    """Change a consumer's record: its meta as JSON, its state with a checksum of its own."""
    size, at = read_varint(body, 0)
    meta, state = body[at : at + size], body[at + size :]
    if rng.random() < 0.1:
        return varint(wild(rng, size, U64)) + meta + state
    if rng.random() < 0.5:
        meta = json_body(rng, meta)
    else:
        inner = mutate_varints(rng, state[8:-8]) if rng.random() < 0.8 else scratch(rng, state[8:-8])
        state = state[:8] + inner
        state += hashed(state)
    return varint(len(meta)) + meta + state


def mutate_log(rng: Random, data: bytes) -> bytes:
    if len(data) < RECORDS_START:
        return scratch(rng, data)
    if rng.random() < 0.2:
        return mutate_front(rng, data, LOG_HEADER)
    (salt,) = struct.unpack_from("<Q", data, 40)
    return mutate_records(rng, data, RECORDS_START, salt, mutate_log_record)


def mutate_lines(rng: Random, data: bytes) -> bytes:
    """Change messages.jsonl of the first generation, which has no checksums."""
    lines = data.split(b"\n")
    at = rng.randrange(len(lines) - 1)
    lines[at] = json_body(rng, lines[at])
    return b"\n".join(lines)


MUTATORS: dict[str, Callable[[Random, bytes], bytes]] = {
    "block": mutate_block,
    "summary": mutate_summary,
    "checkpoint": mutate_checkpoint,
    "head": mutate_head,
    "checked": mutate_checked,
    "identity": mutate_identity,
    "log": mutate_log,
    "lines": mutate_lines,
}


def kind_of(name: str) -> str:
    """The mutator for a file of the stream; "" for none."""
    last = name.rpartition("/")[2]
    if last.endswith(".blk"):
        return "block"
    if last.endswith(".sum"):
        return "summary"
    if last.endswith(".log"):
        return "log"
    return {
        "CHECKPOINT": "checkpoint", "HEAD": "head", "ADOPT": "checked", "BATCHES": "checked", "BATCHES.copy": "checked",
        "DELETES": "checked", "TRUNCATE": "checked", "config.json": "identity", "config.copy.json": "identity",
        "messages.jsonl": "lines",
    }.get(last, "")  # fmt: skip


def mutate(rng: Random, name: str, data: bytes) -> bytes:
    """The file's bytes with one mutation; now and then the file is simply cut."""
    if rng.random() < 0.03:
        return data[: rng.randrange(len(data) + 1)]
    return MUTATORS[kind_of(name)](rng, data)
