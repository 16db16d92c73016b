"""Clock: the two times that the layers live by. Why there are two: docs/decisions/0013-two-times.md.

`now_ns` is the time of waits, ages and deadlines: Unix nanoseconds when the process began, and from then on what has really passed, the
sleep of the machine included (CLOCK_BOOTTIME). Nobody can set it. `wall_ns` is what the machine's clock says: the time of messages, and of
all that is told to people or written to files. They differ by `offset_ns`, which changes only when the clock of the machine is set.
"""
import logging

from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec

from penstock.base.duration import format_duration

cdef extern from "time.h" nogil:
    int CLOCK_BOOTTIME

cdef enum:
    LOOK_NS = 10000000                     # the machine's clock is looked at so often, at most: a read of it, too
    STEP_NS = 1000000                      # what it may differ before we follow: two clocks are not read at once
    TELL_NS = 500000000                    # what is worth a line in the log
    TRIES = 3

log = logging.getLogger("penstock")


cdef inline int64_t _read(int clock) noexcept nogil:
    cdef timespec at
    clock_gettime(clock, &at)
    return <int64_t>at.tv_sec * 1000000000 + at.tv_nsec


cdef int64_t _ahead(int64_t* boot_ns) noexcept nogil:
    """CLOCK_REALTIME less CLOCK_BOOTTIME, from the try that was interrupted least; `boot_ns` gets the time of the look."""
    cdef int64_t before, wall, after, found = 0, least = 0
    cdef int n
    for n in range(TRIES):
        before = _read(CLOCK_BOOTTIME)
        wall = _read(CLOCK_REALTIME)
        after = _read(CLOCK_BOOTTIME)
        if n == 0 or after - before < least:
            least = after - before
            found = wall - before
        if least < 1000:
            break
    boot_ns[0] = after
    return found


cdef class Clock:
    """Tells both times. What is handed around is one of its subclasses."""

    def now_ns(self):
        """The time of waits and ages: it never jumps."""
        raise NotImplementedError

    def wall_ns(self):
        """What the machine's clock says, in Unix nanoseconds: it may jump in either direction."""
        return self.now_ns() + self.offset_ns


cdef class SystemClock(Clock):
    """The machine's clocks. There is one for the process, SYSTEM: so that a jump is told once."""

    def __cinit__(self):
        cdef int64_t boot
        self.anchor_ns = _ahead(&boot)
        self.looked_ns = boot
        self.slept_ns = boot - _read(CLOCK_MONOTONIC)

    def now_ns(self):
        cdef int64_t boot = _read(CLOCK_BOOTTIME)
        if boot - self.looked_ns >= LOOK_NS:
            self.look()
        return boot + self.anchor_ns

    def wall_ns(self):
        self.look()
        return self.looked_ns + self.anchor_ns + self.offset_ns

    cdef int look(self) except -1:
        """Compare with the machine's clock; what has changed is followed, and told where it is worth it."""
        cdef int64_t boot, ahead = _ahead(&boot), change, slept
        slept = boot - _read(CLOCK_MONOTONIC)
        self.looked_ns = boot
        change = ahead - self.anchor_ns - self.offset_ns
        if change > STEP_NS or change < -STEP_NS:
            self.offset_ns += change
            self.changes += 1
        if slept - self.slept_ns > TELL_NS:
            change = slept - self.slept_ns
            self.slept_ns = slept
            self.changes += 1
            log.info("the machine slept for %s: waits, max_age and TTLs went on meanwhile", _text(change))
        change = self.offset_ns - self.told_ns
        if change >= TELL_NS or change <= -TELL_NS:
            self.told_ns = self.offset_ns
            self.tell(change)
        return 0

    def tell(self, int64_t change):
        """The clock of the machine was set, by so much."""
        if change > 0:
            log.warning("the clock of the machine went forward by %s: waits, max_age and TTLs go on as if it had not", _text(change))
        else:
            log.warning(
                "the clock of the machine went back by %s: waits, max_age and TTLs go on as if it had not; each stream gives new "
                "messages the time of its last one until the clock is past that", _text(-change),
            )


def _text(int64_t ns):
    """A duration to the millisecond."""
    return format_duration((ns + 500000) // 1000000 * 1000000)


STILL = Clock()
SYSTEM = SystemClock()
