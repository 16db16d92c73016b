"""Pressure: whether a task on this machine waits for a processor, by the kernel's pressure stall information (PSI).

A loop that polls takes nothing from anybody while a processor is free. Where none is, its clients wait until it sleeps.
"""

from __future__ import annotations

import os

PATH = "/proc/pressure/cpu"
WINDOW_S = 0.004  # how long PSI is measured before it is judged: less says nothing
SHORT = 0.05  # some task waited for this part of the time; on a quiet machine it is a tenth of that at most
REST_S = 0.01  # how long the loop does not poll once processors were short, …
REST_S_MAX = 0.64  # … twice as long each time when they still are, up to this


class Pressure:
    """The processors' load, as far as polling has to know it."""

    def __init__(self, path: str = PATH) -> None:
        """OSError: this kernel has no PSI."""
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._waited_us = self._read()
        except BaseException:
            os.close(self._fd)
            raise
        self._since = 0.0
        self._until = 0.0  # the loop does not poll before that
        self._rest_s = REST_S

    def close(self) -> None:
        os.close(self._fd)

    def is_short(self, now: float) -> bool:
        """Whether polling would take a processor for which a task waits; `now` is monotonic, in seconds."""
        if now < self._until:
            return True
        elapsed = now - self._since
        if elapsed < WINDOW_S:
            return False
        waited_us = self._read()
        share = (waited_us - self._waited_us) / (elapsed * 1e6)
        self._waited_us, self._since = waited_us, now
        if share <= SHORT:
            self._rest_s = REST_S
            return False
        self._until = now + self._rest_s
        self._rest_s = min(2 * self._rest_s, REST_S_MAX)
        return True

    def _read(self) -> int:
        """Microseconds in which at least one task had no processor, since the machine started."""
        text = os.pread(self._fd, 256, 0)
        return int(text[text.index(b"total=") + 6 : text.index(b"\n")])
