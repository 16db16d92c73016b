"""What this process holds: objects of our classes, memory, descriptors and threads; and what a cycle of create, use and
delete leaves behind.

The garbage collector is off during the measurement: a deleted object is freed at once, by its last reference, or it
leaks.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

MB = 1 << 20
BYTES_EACH_MAX = 8192  # heap per cycle, on average: caches fill, dictionaries grow
BLOCKS_MAX = 200  # Python's own small blocks, in total …
BLOCKS_EACH_MAX = 8  # … and per cycle: its free lists fill
ANONYMOUS_MAX = 6 * MB  # for all cycles together: block images are mapped, and not part of the heap


class _Mallinfo(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"
        )
    ]  # fmt: skip


_mallinfo2 = getattr(ctypes.CDLL(None), "mallinfo2", None)
if _mallinfo2 is not None:
    _mallinfo2.restype = _Mallinfo


def heap_bytes() -> int:
    """The bytes that malloc has handed out, in all its arenas; 0 where the C library does not tell."""
    if _mallinfo2 is None:
        return 0
    found = _mallinfo2()
    return int(found.uordblks + found.hblkhd)


def anonymous_bytes() -> int:
    """The memory of this process that is in use and backed by no file."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("RssAnon:"))


def descriptors() -> Counter[str]:
    """The open descriptors, by kind; files by their names."""
    found: Counter[str] = Counter()
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:  # the descriptor of this listing
            continue
        found[target.partition(":[")[0]] += 1
    return found


def our_objects() -> Counter[str]:
    """How many objects of each of our classes there are."""
    kinds = Counter(type(one) for one in gc.get_objects())
    return Counter({f"{kind.__module__}.{kind.__qualname__}": n for kind, n in kinds.items() if _is_ours(kind)})


def _is_ours(kind: type) -> bool:
    return str(kind.__module__).partition(".")[0] == "penstock"


@dataclass(frozen=True)
class Footprint:
    """The memory in use at one moment. Measuring allocates nothing itself."""

    blocks: int
    heap: int
    anonymous: int

    @classmethod
    def now(cls) -> Footprint:
        return cls(sys.getallocatedblocks(), heap_bytes(), anonymous_bytes())


@contextmanager
def no_collector() -> Iterator[None]:
    """Turn the garbage collector off, after a full collection."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def assert_leaves_nothing(
    cycle: Callable[[], object],
    times: int = 8,
    *,
    warm_up: int = 6,
    bytes_each: int = BYTES_EACH_MAX,
    anonymous: int = ANONYMOUS_MAX,
) -> None:
    """Run `cycle` several times without the garbage collector, and check that everything returns to where it began."""
    for _ in range(2):  # imports leave garbage; the second run may still find what the first one left
        cycle()
    with no_collector():
        for _ in range(warm_up):  # the collector has emptied Python's free lists: they fill again, ever more slowly
            cycle()
        objects, opened, threads = our_objects(), descriptors(), threading.active_count()
        before = Footprint.now()
        for _ in range(times):
            cycle()
        after = Footprint.now()
        left = our_objects() - objects
        garbage = _garbage()
    assert not garbage, f"left to the garbage collector: {garbage}"
    assert not left, f"still there: {left}"
    assert not descriptors() - opened, f"still open: {descriptors() - opened}"
    assert threading.active_count() <= threads
    grown = f"before {before}, after {times} cycles {after}"
    assert (after.heap - before.heap) / times <= bytes_each, grown
    assert after.blocks - before.blocks <= BLOCKS_MAX + BLOCKS_EACH_MAX * times, grown
    assert after.anonymous - before.anonymous <= anonymous, grown


def _garbage() -> Counter[str]:
    """Objects that only the garbage collector would free now, counted by type."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        return Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.collect()
