"""SeqSet in plain Python: a sorted list of inclusive ranges that never touch.

Encoded: a varint count, then per range a gap and a length as varints. The gap counts from the end of the range before
(from 0 for the first), the length is at least 1. A set of all numbers is written as two ranges that touch, because
its length has no varint of 64 bits.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from twins.varint import read_varint, write_varint

SEQ_MAX = 2**64 - 1


def _checked(seq: int) -> int:
    if not 0 <= seq <= SEQ_MAX:
        raise OverflowError(f"{seq} is not a sequence")
    return seq


class SeqSet:
    """A set of numbers from 0 to 2^64 - 1.

    Always true: `_ranges` is in order, and between two ranges at least one number is missing.
    """

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []

    def add(self, seq: int) -> bool:
        """Add `seq`; whether it is new."""
        return self.add_range(seq, seq) == 1

    def add_range(self, first: int, last: int) -> int:
        """Add `first` to `last`, both included; how many of them are new."""
        _checked(first), _checked(last)
        if first > last:
            raise ValueError(f"the range from {first} to {last} is empty")
        before = self.count()
        kept = [(a, b) for a, b in self._ranges if b + 1 < first or a > last + 1]
        touched = [(a, b) for a, b in self._ranges if not (b + 1 < first or a > last + 1)]
        merged = (min([first, *(a for a, _ in touched)]), max([last, *(b for _, b in touched)]))
        self._ranges = sorted([*kept, merged])
        return self.count() - before

    def add_many(self, seqs: Iterable[int]) -> None:
        """Add numbers that do not fall."""
        items = list(seqs)
        for index in range(1, len(items)):
            if items[index] < items[index - 1]:
                raise ValueError(f"item {index} is below the one before it")
        for seq in items:
            self.add(seq)

    def remove(self, seq: int) -> bool:
        """Take `seq` out; whether it was there."""
        if seq not in self:
            return False
        ranges = []
        for first, last in self._ranges:
            if first <= seq <= last:
                ranges += [(a, b) for a, b in ((first, seq - 1), (seq + 1, last)) if a <= b]
            else:
                ranges.append((first, last))
        self._ranges = ranges
        return True

    def clear(self) -> None:
        self._ranges = []

    def count(self) -> int:
        """How many members; `len` cannot say it past 2^63 - 1."""
        return sum(last - first + 1 for first, last in self._ranges)

    def ranges(self) -> list[tuple[int, int]]:
        """The inclusive ranges, in order."""
        return list(self._ranges)

    @property
    def range_count(self) -> int:
        return len(self._ranges)

    @property
    def first(self) -> int | None:
        return self._ranges[0][0] if self._ranges else None

    @property
    def last(self) -> int | None:
        return self._ranges[-1][1] if self._ranges else None

    def iterate_from(self, seq: int) -> Iterator[int]:
        """Members at or after `seq`, ascending; a change meanwhile is seen from the next range on."""
        at: int | None = _checked(seq)
        while at is not None:
            found = next(((a, b) for a, b in self._ranges if b >= at), None)
            if found is None:
                return
            yield from range(max(at, found[0]), found[1] + 1)
            at = found[1] + 1 if found[1] < SEQ_MAX else None

    def absent_from(self, seq: int) -> int | None:
        """The lowest number at or after `seq` that is no member."""
        _checked(seq)
        for first, last in self._ranges:
            if first <= seq <= last:
                return last + 1 if last < SEQ_MAX else None
        return seq

    def present_from(self, seq: int) -> int | None:
        """The lowest member at or after `seq`."""
        return next(self.iterate_from(seq), None)

    def update(self, other: SeqSet) -> None:
        for first, last in other.ranges():
            self.add_range(first, last)

    def copy(self) -> SeqSet:
        other = SeqSet()
        other.update(self)
        return other

    def memory(self) -> int:
        return 16 * len(self._ranges)

    def encode(self) -> bytes:
        ranges = self._ranges
        if ranges == [(0, SEQ_MAX)]:
            ranges = [(0, SEQ_MAX - 1), (SEQ_MAX, SEQ_MAX)]
        out, position = write_varint(len(ranges)), 0
        for first, last in ranges:
            out += write_varint(first - position) + write_varint(last - first + 1)
            position = last + 1
        return out

    @staticmethod
    def decode(buffer: bytes) -> SeqSet:
        """The set that `encode` wrote; ValueError names the byte where it is malformed."""
        data, out = bytes(buffer), SeqSet()

        def bad(offset: int, reason: str) -> ValueError:
            return ValueError(f"sequence set at byte {offset}: {reason}")

        def read(offset: int) -> tuple[int, int]:
            value, after = read_varint(data, offset)
            if after < 0:
                raise bad(offset, "no whole varint in its shortest form")
            return value, after

        count, at = read(0)
        if count > (len(data) - at) // 2:
            raise bad(0, "more ranges than there are bytes")
        position = 0
        for _ in range(count):
            gap, middle = read(at)
            if position + gap > SEQ_MAX:
                raise bad(at, "a range passes 2^64 - 1")
            length, after = read(middle)
            if length == 0:
                raise bad(middle, "a range of length 0")
            if position + gap + length - 1 > SEQ_MAX:
                raise bad(middle, "a range passes 2^64 - 1")
            out.add_range(position + gap, position + gap + length - 1)
            position += gap + length
            at = after
        if at != len(data):
            raise bad(at, "bytes after the last range")
        return out

    def __contains__(self, seq: int) -> bool:
        _checked(seq)
        index = bisect_left(self._ranges, (seq + 1,)) - 1
        return index >= 0 and self._ranges[index][0] <= seq <= self._ranges[index][1]

    def __len__(self) -> int:
        return self.count()

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def __iter__(self) -> Iterator[int]:
        return self.iterate_from(0)

    def __eq__(self, other: object) -> bool:
        return self._ranges == other._ranges if isinstance(other, SeqSet) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"SeqSet({self._ranges!r})"
