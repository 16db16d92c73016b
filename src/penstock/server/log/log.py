"""Log: the server's log lines, in nats-server's form: `[pid] 2026/11/15 15:30:16.123456 [INF] text`.

Writing never blocks (sink.py). The number of dropped lines is logged as soon as lines can be written again.
"""

from __future__ import annotations

import os
import re
import time

from penstock.server.log.sink import FdSink, FileSink, LogError, Sink, SyslogSink
from penstock.server.options import Options

__all__ = ["Log", "LogError", "open_log"]

STDERR = 2
CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")
COLOURS = {"INF": "32", "DBG": "36", "WRN": "0;93", "ERR": "31", "FTL": "31", "TRC": "33"}


class Log:
    """Writes lines of six levels. Callers check `is_debug` and `is_trace` before they build a text for these levels."""

    def __init__(self, options: Options, sink: Sink | None) -> None:
        self.dropped = 0
        self.sink = sink
        self._pid = f"[{os.getpid()}] "
        self._second = -1
        self._stamp = ""
        self.configure(options)

    def configure(self, options: Options) -> None:
        """Set levels and form from `options`; the sink stays."""
        self.is_debug = options.debug
        self.is_trace = options.trace
        self.is_trace_verbose = options.trace_verbose
        self._has_time = options.logtime
        self._is_utc = options.logtime_utc
        self._second = -1
        is_coloured = isinstance(self.sink, FdSink) and self.sink.is_terminal
        self._labels = {
            level: f"[\x1b[{COLOURS[level]}m{level}\x1b[0m] " if is_coloured else f"[{level}] " for level in COLOURS
        }
        self._is_bare = isinstance(self.sink, SyslogSink)

    def notice(self, text: str) -> None:
        self._write("INF", text)

    def warn(self, text: str) -> None:
        self._write("WRN", text)

    def error(self, text: str) -> None:
        self._write("ERR", text)

    def fatal(self, text: str) -> None:
        """Log why the server ends; the caller ends it."""
        self._write("FTL", text)

    def debug(self, text: str) -> None:
        if self.is_debug:
            self._write("DBG", text)

    def trace(self, text: str) -> None:
        if self.is_trace:
            self._write("TRC", text)

    def _write(self, level: str, text: str) -> None:
        if self.sink is None:
            return
        if self.dropped:
            told = self._line("WRN", f"{self.dropped} log lines were dropped: there was no room for them")
            if self.sink.write("WRN", told):
                self.dropped = 0
        if self.dropped or not self.sink.write(level, self._line(level, text)):
            self.dropped += 1

    def _line(self, level: str, text: str) -> bytes:
        if not text.isprintable():
            text = CONTROL.sub(lambda match: repr(match[0])[1:-1], text)  # a client's bytes make no line and no colour
        if self._is_bare:
            return f"{text}\n".encode("utf-8", "replace")
        return f"{self._pid}{self._time()}{self._labels[level]}{text}\n".encode("utf-8", "replace")

    def _time(self) -> str:
        if not self._has_time:
            return ""
        now_us = time.time_ns() // 1000
        second = now_us // 1_000_000
        if second != self._second:
            at = time.gmtime(second) if self._is_utc else time.localtime(second)
            self._stamp = time.strftime("%Y/%m/%d %H:%M:%S", at)
            self._second = second
        return f"{self._stamp}.{now_us % 1_000_000:06d} "

    def reopen(self, options: Options) -> None:
        """Open the log file again, after another program has moved it away."""
        if not isinstance(self.sink, FileSink):
            self.notice("File log re-open ignored, not a file logger")
            return
        self.replace(options)
        self.notice("File log re-opened")

    def replace(self, options: Options) -> None:
        """Replace the sink according to `options`. On LogError the log stays as it is."""
        old, self.sink = self.sink, _open_sink(options)
        self.configure(options)
        if old is not None:
            old.close()

    def close(self) -> None:
        if self.sink is not None:
            self.sink.close()
            self.sink = None


def open_log(options: Options) -> Log:
    """The log that `options` configure: a file, a syslog, standard error, or none. LogError if it cannot be opened."""
    return Log(options, _open_sink(options))


def _open_sink(options: Options) -> Sink | None:
    if options.no_log:
        return None
    if options.log_file:
        return FileSink(options.log_file, options.log_size_limit, options.log_max_num)
    if options.remote_syslog or options.syslog:
        return SyslogSink(options.remote_syslog)
    return FdSink(STDERR)
