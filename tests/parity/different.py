"""Where we differ from the real server on purpose: by group and case, with the reason (docs/parity.md lists them)."""

from __future__ import annotations

WILD = "a subject with a wildcard for a token is not stored: no filter could mean it alone"
ONTO_ITSELF = "an update with `republish: {}` republishes nothing; there it becomes everything onto itself"
LINE_END = "a line end is no blank: there it passes into the subject that others hear"
DIFFERENT: dict[str, dict[str, str]] = {
    "core_protocol": {
        "PUB whose arguments begin with a line end": LINE_END,
        "HPUB whose arguments begin with a line end": LINE_END,
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
    "publish_headers": {
        "publishing to a subject that is not valid": WILD,
    },
    "key_value": {
        "keys of odd forms": WILD,
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
