"""Sublist in plain Python: who hears a subject. The rules that broker/routing/sublist.pyx follows.

Every subscription whose filter matches hears the subject; those with a queue are grouped by its name, whichever of
their filters match, and one member of each group is to be told. A subject with an empty token is heard by nobody.
"""

from __future__ import annotations

from twins.subject import is_valid_filter, matches


class Sublist:
    """Subscriptions by subject, one after the other."""

    def __init__(self) -> None:
        self.subscriptions: dict[int, tuple[bytes, bytes, object]] = {}
        self._next = 0

    @property
    def count(self) -> int:
        return len(self.subscriptions)

    def add_service(self, service: object, subject: bytes, queue: bytes = b"") -> int:
        """Let `service` hear a subject or filter: a token for `remove_service`."""
        if not is_valid_filter(subject):
            raise ValueError(f"subject {subject!r} cannot be subscribed to")
        self._next += 1
        self.subscriptions[self._next] = subject, queue, service
        return self._next

    def remove_service(self, token: int) -> None:
        """Undo `add_service`; a second time is harmless."""
        self.subscriptions.pop(token, None)

    def subscribers(self, subject: bytes) -> tuple[list[object], list[list[object]]]:
        """(plain, groups): who hears a subject. Their order says nothing."""
        plain: list[object] = []
        groups: dict[bytes, list[object]] = {}
        if b"" in subject.split(b"."):
            return plain, []
        for pattern, queue, service in self.subscriptions.values():
            if matches(subject, pattern):
                (groups.setdefault(queue, []) if queue else plain).append(service)
        return plain, list(groups.values())

    def subscriber_count(self, subject: bytes) -> int:
        plain, groups = self.subscribers(subject)
        return len(plain) + sum(len(group) for group in groups)

    def listing(self) -> list[tuple[bytes, bytes, object]]:
        """(subject, queue, service) of every subscription."""
        return list(self.subscriptions.values())
