"""LogBridge: records of Python's logging become lines of the server's log.

The store logs warnings about damaged files there, and the event loop logs tasks that failed. Without the bridge Python
would write these to standard error itself, in another form, and block if nobody reads it.
"""

from __future__ import annotations

import logging
import traceback

from penstock.server.log.log import Log


class LogBridge(logging.Handler):
    """Writes records as lines. An exception takes one line; its traceback is written at debug level."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self.log = log

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
        except (TypeError, ValueError) as why:  # arguments that do not fit the text
            text = f"{record.msg} ({why})"
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            text = f"{text.splitlines()[0] if text else record.name}: {type(error).__name__}: {error}"
        if record.levelno >= logging.ERROR:
            self.log.error(text)
        elif record.levelno >= logging.WARNING:
            self.log.warn(text)
        elif record.levelno >= logging.INFO:
            self.log.notice(text)
        else:
            self.log.debug(text)
        if error is not None and self.log.is_debug:
            for line in "".join(traceback.format_exception(error)).splitlines():
                self.log.debug(line)


def bridge_logging(log: Log) -> LogBridge:
    """Make the root logger write to `log`, and nowhere else."""
    bridge = LogBridge(log)
    root = logging.getLogger()
    root.handlers[:] = [bridge]
    root.setLevel(logging.WARNING)
    logging.getLogger("penstock").setLevel(logging.INFO)
    return bridge


def unbridge_logging(bridge: LogBridge) -> None:
    logging.getLogger().removeHandler(bridge)
