"""The questions that are asked without a server, too: tables/stream_questions.py and tables/consumer_questions.py."""

from __future__ import annotations

from typing import Any

from parity.tables.consumer_questions import CREATE as CONSUMER_CREATE
from parity.tables.consumer_questions import Question as ConsumerQuestion
from parity.tables.stream_questions import AGAIN, CHECK, CREATE, NS, PUBLISH, UPDATE, stream

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
