"""Where we differ from the real server on purpose: by group and case, with the reason (docs/parity.md lists them)."""

from __future__ import annotations

ONTO_ITSELF = "an update with `republish: {}` republishes nothing; there it becomes everything onto itself"
LINE_END = "a line end is no blank: there it passes into the subject that others hear"
INTO_STREAM = (
    "what is delivered into a stream is stored under the subject that the stream takes; there under its old one"
)
NO_COMMAND = "what the server publishes by itself is no command to it (docs/publishes.md); there it is obeyed"
NOWHERE = "a destination that no subject can be is refused; there it is taken, and nothing is sent to it"
COMMANDS = ("STREAM.DELETE.V", "STREAM.PURGE.V", "STREAM.MSG.DELETE.V", "STREAM.CREATE.NEW", "CONSUMER.DELETE.V.C")
# Who hears, of the listeners that obey there, what is published in each way.
OBEYED = {
    "a pulled message": ("pull requests",),
    "the message after `+NXT`": ("pull requests",),
    "a pushed message": ("pull requests",),
    "the status of a pull request": ("services", "flow control"),
    "a push consumer's heartbeat or flow control request": ("services", "acks", "flow control"),
    "the answer to an ack": ("services", "flow control"),
    "a PubAck": ("services", "flow control"),
    "the refusal of a publish": ("services", "flow control"),
    "an answer of `$JS.API`": ("flow control",),
    "an answer of `$SYS.REQ`": ("flow control",),
    "a message got directly": ("services", "flow control"),
    "the status of a direct get": ("services", "flow control"),
    "a republished message": ("services", "acks", "flow control"),
    "an advisory or a metric": (),
}
DIFFERENT: dict[str, dict[str, str]] = {
    "consumer_pull": {
        "a reply into a stream": INTO_STREAM,
    },
    "consumer_push": {
        "the deliver subject is one of another stream": INTO_STREAM,
    },
    "consumer_start": {
        "last_per_subject, its messages are deleted before it is read": (
            "the list of last messages goes on past one that was deleted; there a request ends at it"
        ),
    },
    "core_protocol": {
        "PUB whose arguments begin with a line end": LINE_END,
        "HPUB whose arguments begin with a line end": LINE_END,
    },
    "forged": {
        f"{what} in a destination": NOWHERE
        for what in ("a line", "a line feed", "a carriage return", "a blank", "a tab")
    },
    "lifecycle": {
        "a stream is there after a restart": "the last message's id is still known after a restart; there it is not",
    },
    "messages": {
        "get: a subject and a payload that are not UTF-8": r"bytes that are no text show as \xNN, as in tables",
    },
    "permissions": {
        "subscribe a wildcard": "s.> is let in where s.* is allowed, as there, but hears only what is allowed",
    },
    "publishes": {
        **{f"{way} → {listener}": NO_COMMAND for way, listeners in OBEYED.items() for listener in listeners},
        "a pulled message → streams": INTO_STREAM,
        "the message after `+NXT` → streams": INTO_STREAM,
        "a pushed message → streams": INTO_STREAM,
        **{f"a user who may get: {command}": NO_COMMAND for command in COMMANDS},
        "a user who may ack: STREAM.DELETE.V": NO_COMMAND,
        "a user who may ack: STREAM.PURGE.V": NO_COMMAND,
    },
    "random_requests": {
        "seed 5": ONTO_ITSELF,
    },
    "stream_create": {
        "a first sequence of 2^64 - 1": "a first sequence of 2^63 and above is refused: the next one would not fit",
    },
    "stream_update": {
        "an empty republish comes with a transform": ONTO_ITSELF,
        "an empty republish comes to a transform": ONTO_ITSELF,
        "an empty republish comes as a transform goes": ONTO_ITSELF,
        "an empty republish stays": ONTO_ITSELF,
        "an empty republish replaces another": ONTO_ITSELF,
    },
}
