"""TimingWheel in plain Python: a sorted list of (expires_ns, seq).

Encoded, in order of expiry and then sequence: a varint count, then per entry its time and its sequence. The first time
is a zigzag, each later one a varint of how much it is after the one before. A sequence is the zigzag of its difference,
modulo 2^64 and as a signed number, to the one before (0 for the first).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort

from twins.varint import read_varint, unzigzag, write_varint, zigzag

SEQ_MAX = 2**64 - 1
TIME_MIN, TIME_MAX = -(2**63), 2**63 - 1


def _check(seq: int, expires_ns: int) -> None:
    if not 0 <= seq <= SEQ_MAX or not TIME_MIN <= expires_ns <= TIME_MAX:
        raise OverflowError(f"{seq} at {expires_ns} does not fit")


class TimingWheel:
    """Pairs of sequence and expiry; the same pair may be in it more than once."""

    def __init__(self, slot_count: int = 4096, slot_ns: int = 2**30) -> None:
        if not 1 <= slot_count <= 2**20 or slot_count & (slot_count - 1):
            raise ValueError(f"slot_count {slot_count}: a power of two up to 2^20 is needed")
        if not 1 <= slot_ns <= 2**62 or slot_ns & (slot_ns - 1):
            raise ValueError(f"slot_ns {slot_ns}: a power of two up to 2^62 is needed")
        self._entries: list[tuple[int, int]] = []

    @property
    def count(self) -> int:
        return len(self._entries)

    def add(self, seq: int, expires_ns: int) -> None:
        _check(seq, expires_ns)
        insort(self._entries, (expires_ns, seq))

    def remove(self, seq: int, expires_ns: int) -> bool:
        """Take one such pair out; whether it was there."""
        _check(seq, expires_ns)
        index = bisect_left(self._entries, (expires_ns, seq))
        if index == len(self._entries) or self._entries[index] != (expires_ns, seq):
            return False
        del self._entries[index]
        return True

    def expire(self, now_ns: int, limit: int) -> list[tuple[int, int]]:
        """Take out the entries that expire at or before `now_ns`, the first `limit` by expiry and then sequence."""
        _check(0, now_ns)
        stop = min(bisect_right(self._entries, (now_ns, SEQ_MAX)), max(limit, 0))
        due = [(seq, expires_ns) for expires_ns, seq in self._entries[:stop]]
        del self._entries[:stop]
        return due

    def next_expiry(self) -> int | None:
        """When the next entry expires, exactly; None where there is none."""
        return self._entries[0][0] if self._entries else None

    def clear(self) -> None:
        self._entries = []

    def memory(self) -> int:
        return 16 * len(self._entries)

    def entries(self) -> list[tuple[int, int]]:
        """(seq, expires_ns) of all, by expiry and then sequence."""
        return [(seq, expires_ns) for expires_ns, seq in self._entries]

    def encode(self) -> bytes:
        out, before, last = write_varint(len(self._entries)), 0, 0
        for index, (expires_ns, seq) in enumerate(self._entries):
            out += write_varint(zigzag(expires_ns) if index == 0 else expires_ns - before)
            difference = (seq - last) % 2**64
            out += write_varint(zigzag(difference - 2**64 if difference >= 2**63 else difference))
            before, last = expires_ns, seq
        return out

    @staticmethod
    def decode(buffer: bytes, slot_count: int = 4096, slot_ns: int = 2**30) -> TimingWheel:
        """The wheel that `encode` wrote; ValueError names the byte where it is malformed."""
        data, out = bytes(buffer), TimingWheel(slot_count, slot_ns)

        def bad(offset: int, reason: str) -> ValueError:
            return ValueError(f"timing wheel at byte {offset}: {reason}")

        def read(offset: int) -> tuple[int, int]:
            value, after = read_varint(data, offset)
            if after < 0:
                raise bad(offset, "no whole varint in its shortest form")
            return value, after

        count, at = read(0)
        if count > (len(data) - at) // 2:
            raise bad(0, "more entries than there are bytes")
        expires_ns = seq = 0
        for index in range(count):
            more, middle = read(at)
            if index > 0 and expires_ns + more > TIME_MAX:
                raise bad(at, "a time passes 2^63 - 1")
            expires_ns = unzigzag(more) if index == 0 else expires_ns + more
            difference, after = read(middle)
            before, seq = seq, (seq + unzigzag(difference)) % 2**64
            if index > 0 and more == 0 and seq < before:
                raise bad(middle, "entries out of order")
            out.add(seq, expires_ns)
            at = after
        if at != len(data):
            raise bad(at, "bytes after the last entry")
        return out

    def __len__(self) -> int:
        return len(self._entries)
