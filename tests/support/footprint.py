"""What this process holds: objects of ours, memory, descriptors, threads; what a cycle of create, use, delete leaves.

The garbage collector is off while it is measured: what is deleted is gone at once, by its last reference, or leaks.
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
BYTES_EACH_MAX = 8192  # of the heap, for one cycle on average: caches fill, dictionaries grow
BLOCKS_MAX = 200  # of Python's own small blocks, in all, …
BLOCKS_EACH_MAX = 8  # … and for each cycle: its free lists fill
ANONYMOUS_MAX = 6 * MB  # for all cycles together: images of blocks are mapped, and no part of the heap


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
    """What malloc has given out, in all its arenas; 0 where the C library does not say."""
    if _mallinfo2 is None:
        return 0
    found = _mallinfo2()
    return int(found.uordblks + found.hblkhd)


def anonymous_bytes() -> int:
    """Memory of this process in use that is no file's."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("RssAnon:"))


def descriptors() -> Counter[str]:
    """What is open, by kind; a file by its name."""
    found: Counter[str] = Counter()
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:  # the listing's own
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
    """How much memory there is in use at one moment. To look takes none itself."""

    blocks: int
    heap: int
    anonymous: int

    @classmethod
    def now(cls) -> Footprint:
        return cls(sys.getallocatedblocks(), heap_bytes(), anonymous_bytes())


@contextmanager
def no_collector() -> Iterator[None]:
    """The garbage collector is off, and has nothing to do when this begins."""
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
    """Run `cycle` several times, without the garbage collector: everything ends where it began."""
    for _ in range(2):  # what is imported for it leaves garbage; the second one may find what the first has left
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
    """What only the collector would find now, by its type."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        return Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.collect()
