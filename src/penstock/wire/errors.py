"""The texts that a client receives as -ERR, exactly as nats-server's. Which of them close the connection: docs/wire.md.

Clients compare these texts (most in lower case), so not a letter of them may change.
"""

from __future__ import annotations

from penstock.errors import quote

UNKNOWN_OPERATION = "Unknown Protocol Operation"
CONTROL_LINE_EXCEEDED = "maximum control line exceeded"
PAYLOAD_VIOLATION = "Maximum Payload Violation"
INVALID_PROTOCOL = "invalid client protocol"
NO_RESPONDERS_NEEDS_HEADERS = "no responders requires headers support"

AUTHORIZATION_VIOLATION = "Authorization Violation"
AUTHENTICATION_TIMEOUT = "Authentication Timeout"
USER_EXPIRED = "User Authentication Expired"
ACCOUNT_EXPIRED = "Account Authentication Expired"
USER_REVOKED = "User Authentication Revoked"
TLS_REQUIRED = "Secure Connection - TLS Required"

CONNECTIONS_EXCEEDED = "maximum connections exceeded"
ACCOUNT_CONNECTIONS_EXCEEDED = "maximum account active connections exceeded"
SUBSCRIPTIONS_EXCEEDED = "maximum subscriptions exceeded"
STALE_CONNECTION = "Stale Connection"
ACCOUNT_FAILED = "Failed Account Registration"
THROTTLED = "Connection throttling is active. Please try again later."

INVALID_SUBJECT = "Invalid Subject"
INVALID_PUBLISH_SUBJECT = "Invalid Publish Subject"

# The text of each fault of the parser, by its number (FAULT_… in wire/parser.pxd); None: closed without a word.
FAULT_TEXTS = (None, UNKNOWN_OPERATION, CONTROL_LINE_EXCEEDED, PAYLOAD_VIOLATION, None)


def line(text: str) -> bytes:
    """The -ERR line of a text."""
    return f"-ERR '{text}'\r\n".encode("utf-8", "surrogateescape")


def publish_violation(subject: str) -> str:
    return f"Permissions Violation for Publish to {quote(subject)}"


def reply_violation(reply: str) -> str:
    return f"Permissions Violation for Publish with Reply of {quote(reply)}"


def subscription_violation(subject: str, queue: str | None = None) -> str:
    if queue is None:
        return f"Permissions Violation for Subscription to {quote(subject)}"
    return f"Permissions Violation for Subscription to {quote(subject)} using queue {quote(queue)}"


def subscription_withdrawn(subject: str, queue: str | None, sid: str) -> str:
    """A subscription that new permissions no longer allow (a reload)."""
    return f"{subscription_violation(subject, queue)} (sid {quote(sid)})"


def tokens_violation(subject: str) -> str:
    return f"Permissions Violation for Subscription to {quote(subject)}, too many tokens"
