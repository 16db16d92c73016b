"""PenstockSparkError: what the driver is told, in one line, when something fails in a Spark job of ours."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.errors import PenstockError


class PenstockSparkError(PenstockError):
    """An option, a schema or a store that a Spark job cannot work with; the text says which, and what to do."""


@contextmanager
def as_one_line() -> Iterator[None]:
    """Errors of the store and the disk that leave this block become one line that the driver shows."""
    try:
        yield
    except PenstockSparkError:
        _hide_traceback()
        raise
    except (PenstockError, OSError, ValueError, TypeError) as error:
        _hide_traceback()
        raise PenstockSparkError(f"{type(error).__name__}: {error}") from None


def _hide_traceback() -> None:
    """Spark sends a worker's error with all its Python frames in front; an error that is meant needs none.

    The worker ends with this error, so nothing else is hidden by it.
    """
    if any(name.startswith("PYTHON_WORKER_FACTORY") for name in os.environ):
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
