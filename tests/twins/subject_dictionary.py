"""SubjectDictionary in plain Python: a dictionary, a sorted list and a stack of freed numbers."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator

from twins.subject import SUBJECT_SIZE_MAX, Filters

NUMBER_STOP_MAX = 0x7FFFFFFF


def _as_bytes(name: bytes | str) -> bytes:
    return name.encode() if isinstance(name, str) else name


def _checked_name(name: bytes | str) -> bytes:
    text = _as_bytes(name)
    if not 0 < len(text) <= SUBJECT_SIZE_MAX:
        raise ValueError(f"a name has 1 to 65535 bytes, not {len(text)}")
    return text


class SubjectDictionary:
    """Names with their numbers, found by name and walked in byte order.

    Always true: a name has one number and keeps it until dropped; freed numbers are given out again, the last one
    first; every number is below `number_stop`.
    """

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._names: dict[int, bytes] = {}
        self._order: list[bytes] = []
        self._free: list[int] = []
        self.number_stop = 0

    @property
    def count(self) -> int:
        return len(self._numbers)

    def insert(self, name: bytes | str) -> int:
        """The number of `name`, a new one where it had none."""
        text = _checked_name(name)
        if text in self._numbers:
            return self._numbers[text]
        if self._free:
            number = self._free.pop()
        else:
            number = self.number_stop
            self.number_stop += 1
        self._link(number, text)
        return number

    def insert_at(self, number: int, name: bytes | str) -> None:
        """Give a free number a name; numbers passed over become free, the lowest to be given out first."""
        text = _checked_name(name)
        if not 0 <= number < NUMBER_STOP_MAX:
            raise ValueError(f"number {number} is out of range")
        if number in self._names or text in self._numbers:
            raise ValueError(f"number {number} or its name is taken")
        if number < self.number_stop:
            self._free.remove(number)
        else:
            self._free.extend(range(number - 1, self.number_stop - 1, -1))
            self.number_stop = number + 1
        self._link(number, text)

    def _link(self, number: int, text: bytes) -> None:
        self._numbers[text] = number
        self._names[number] = text
        insort(self._order, text)

    def lookup(self, name: bytes | str) -> int | None:
        return self._numbers.get(_as_bytes(name))

    def delete(self, name: bytes | str) -> bool:
        """Forget `name` and free its number; False where it was not there."""
        text = _as_bytes(name)
        number = self._numbers.pop(text, None)
        if number is None:
            return False
        del self._names[number]
        del self._order[bisect_left(self._order, text)]
        self._free.append(number)
        return True

    def name_of(self, number: int) -> bytes | None:
        return self._names.get(number)

    def matching(self, filters: Filters | Iterable[bytes | str]) -> list[bytes]:
        """The names that any filter matches, in byte order."""
        packed = filters if isinstance(filters, Filters) else Filters(filters)
        return [name for name in self._order if packed.match(name)]

    def matching_count(self, filters: Filters | Iterable[bytes | str]) -> int:
        return len(self.matching(filters))

    def following(self, name: bytes | str, limit: int) -> list[bytes]:
        """The first `limit` names at or after `name`."""
        start = bisect_left(self._order, _as_bytes(name))
        return self._order[start : start + max(limit, 0)]

    def memory(self) -> int:
        """Bytes of the names alone; the kernel says what it really holds."""
        return sum(map(len, self._order))

    def __iter__(self) -> Iterator[bytes]:
        return iter(list(self._order))

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, name: bytes | str) -> bool:
        return _as_bytes(name) in self._numbers
