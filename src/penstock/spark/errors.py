"""PenstockSparkError: the one-line message that the driver shows when one of our Spark jobs fails."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.errors import PenstockError


class PenstockSparkError(PenstockError):
    """An option, a schema or a store that a Spark job cannot work with; the text says which, and what to do."""


@contextmanager
def as_one_line() -> Iterator[None]:
    """Turn store and disk errors raised in this block into one line that the driver shows."""
    try:
        yield
    except PenstockSparkError:
        _hide_traceback()
        raise
    except (PenstockError, OSError, ValueError, TypeError) as error:
        _hide_traceback()
        raise PenstockSparkError(f"{type(error).__name__}: {error}") from None


def _hide_traceback() -> None:
    """Suppress the traceback: Spark prefixes a worker's error with all its Python frames, and this one needs none.

    The worker ends with this error, so no other traceback is suppressed.
    """
    if any(name.startswith("PYTHON_WORKER_FACTORY") for name in os.environ):
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
