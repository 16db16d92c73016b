"""The questions that the configurations' own tests ask, too: tools/{stream,consumer}_parity_questions.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from consumer_parity_questions import CREATE as CONSUMER_CREATE
from consumer_parity_questions import Question as ConsumerQuestion
from stream_parity_questions import AGAIN, CHECK, CREATE, NS, PUBLISH, UPDATE, stream

__all__ = [
    "AGAIN",
    "CHECK",
    "CONSUMERS",
    "CREATE",
    "NS",
    "PUBLISH",
    "UPDATE",
    "ConsumerQuestion",
    "stream",
    "stream_of",
]
CONSUMERS = {question.case: question for question in CONSUMER_CREATE}


def stream_of(request: dict[str, Any] | str) -> str:
    """The name for the API's subject; requests that cannot say it use `T`."""
    name = request.get("name") if isinstance(request, dict) else None
    is_token = isinstance(name, str) and name and not set(name) & set(" \t\r\n\f.*>")
    return name if is_token and name else "T"
