"""The duplicate window in plain Python: a dictionary and a queue. The compiled one is store/write/dedupe.pyx."""

from __future__ import annotations

from collections import deque

PRUNED_PER_ADD = 2


class DedupeWindow:
    """Maps the hash of a message id to the sequence it was stored at, for `window_ns`.

    Always true: `lookup` never answers from outside the window, whatever was pruned; sequences are added in rising
    order. Each `add` drops up to two entries that grew too old, so memory follows the rate without a long pause;
    a window of 0 remembers nothing.
    """

    __slots__ = ("_by_hash", "_in_order", "_window_ns")

    def __init__(self, window_ns: int) -> None:
        self._window_ns = window_ns
        self._by_hash: dict[bytes, tuple[int, int, bytes]] = {}
        self._in_order: deque[tuple[int, int, bytes]] = deque()  # (time, seq, hash), oldest first

    @property
    def window_ns(self) -> int:
        """How long an id is remembered. A longer window does not bring back what a shorter one forgot."""
        return self._window_ns

    @window_ns.setter
    def window_ns(self, window_ns: int) -> None:
        self._window_ns = window_ns
        if window_ns <= 0:
            self._by_hash.clear()
            self._in_order.clear()

    def lookup(self, id_hash: bytes, now_ns: int) -> int | None:
        """The sequence that this id was stored at within the window."""
        entry = self._by_hash.get(id_hash)
        if entry is None or now_ns - entry[0] >= self._window_ns:
            return None
        return entry[1]

    def add(self, id_hash: bytes, seq: int, time_ns: int) -> None:
        """Remember that the message at `seq` had this id."""
        window_ns = self._window_ns
        if window_ns <= 0:
            return
        entry = (time_ns, seq, id_hash)
        in_order = self._in_order
        if in_order and time_ns - in_order[0][0] >= window_ns:
            self.prune(time_ns, PRUNED_PER_ADD)
        self._by_hash[id_hash] = entry
        in_order.append(entry)

    def prune(self, now_ns: int, count_max: int | None = None) -> int:
        """Forget entries that grew too old, oldest first, at most `count_max`; gives how many."""
        in_order, by_hash, oldest_ns = self._in_order, self._by_hash, now_ns - self._window_ns
        count = 0
        while in_order and in_order[0][0] <= oldest_ns and count != count_max:
            entry = in_order.popleft()
            if by_hash.get(entry[2]) is entry:
                del by_hash[entry[2]]
            count += 1
        return count

    def forget_above(self, seq: int) -> None:
        """Roll back: the messages above `seq` were never committed."""
        in_order, by_hash = self._in_order, self._by_hash
        while in_order and in_order[-1][1] > seq:
            entry = in_order.pop()
            if by_hash.get(entry[2]) is entry:
                del by_hash[entry[2]]

    def clear(self) -> None:
        self._by_hash.clear()
        self._in_order.clear()

    def __len__(self) -> int:
        """How many ids are held, those included that are too old and not yet pruned."""
        return len(self._by_hash)
