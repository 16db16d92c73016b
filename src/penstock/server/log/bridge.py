"""Bridge: what other parts tell Python's logging becomes lines of the server's log.

The store warns there of a damaged file, the event loop of a task that failed. Without the bridge Python would write
these to standard error itself, in another form and waiting for whoever reads it.
"""

from __future__ import annotations

import logging
import traceback

from penstock.server.log.log import Log


class LogBridge(logging.Handler):
    """Hands records on as lines. An exception is told in one; where it came from is for those who debug."""

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
    """From now on the root logger writes there, and nowhere else."""
    bridge = LogBridge(log)
    root = logging.getLogger()
    root.handlers[:] = [bridge]
    root.setLevel(logging.WARNING)
    logging.getLogger("penstock").setLevel(logging.INFO)
    return bridge


def unbridge_logging(bridge: LogBridge) -> None:
    logging.getLogger().removeHandler(bridge)
