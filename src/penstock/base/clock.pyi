class Clock:
    """Tells both times: `now_ns` never jumps, `wall_ns` is what the machine's clock says."""

    offset_ns: int
    changes: int
    def now_ns(self) -> int: ...
    def wall_ns(self) -> int: ...

class SystemClock(Clock): ...

SYSTEM: SystemClock
