"""What `record_consumer_parity.py` asks a real server about pull requests, ack payloads and ack subjects."""

from __future__ import annotations

import itertools
from typing import Any

Config = dict[str, Any]
NS = 1_000_000_000

# Pull requests: the consumer, the payload, how many messages there are. Answers that come at once are recorded.
OVERFLOW = {"priority_policy": "overflow", "priority_groups": ["A"]}
PINNED = {"priority_policy": "pinned_client", "priority_groups": ["A"]}
PRIORITIZED = {"priority_policy": "prioritized", "priority_groups": ["A"]}
CAPPED = {"max_batch": 5, "max_expires": 2 * NS, "max_bytes": 1000}
PLAIN_PAYLOADS = [
    "", " ", "1", "3", " 2 \n", "0", "-1", "+2", "x", "1.5", "99999999999999999999", "1_0", "[1]", "null", '"3"',
    "{}", "{", "{]", '{"batch"}', '{"batch":}', '{"batch": 1,}', '{"batch": 1} x', '{"batch": 1}{}', '{"batch": "1"}',
    '{"batch": 1.5}', '{"batch": 1e2}', '{"batch": null}', '{"batch": true}', '{"BATCH": 2}', '{"batch": 0}',
    '{"batch": -1}', '{"batch": 2}', '{"batch": 2, "no_wait": true}', '{"no_wait": true}', '{"no_wait": "true"}',
    '{"no_wait": 1}', '{"expires": "1s"}', '{"expires": 100000000}', '{"expires": -1}', '{"expires": 1}',
    '{"expires": 1.5}', '{"batch": 5, "expires": 100000000}', '{"batch": 5, "expires": 100000000, "no_wait": true}',
    '{"expires": 99999999999999999999}', '{"max_bytes": 10}', '{"max_bytes": 10000, "batch": 2}', '{"max_bytes": -1}',
    '{"max_bytes": "1"}', '{"batch": 1, "max_bytes": 1001}', '{"batch": 6}', '{"batch": 5}', "6", "5",
    '{"batch": 6, "expires": 3000000000, "max_bytes": 2000}', '{"expires": 3000000000, "max_bytes": 2000}',
    '{"expires": 3000000000}', '{"expires": 2000000000, "no_wait": true}', '{"max_bytes": 2000}',
    '{"idle_heartbeat": 1}', '{"idle_heartbeat": 1000000000, "expires": 1000000000}',
    '{"idle_heartbeat": 50000000, "expires": 100000000}', '{"idle_heartbeat": 50000001, "expires": 100000000}',
    '{"idle_heartbeat": -1, "expires": 100000000}', '{"idle_heartbeat": "1s"}',
    '{"idle_heartbeat": 5000000000000000000, "expires": 100000000}', '{"foo": 1}', '{"group": "A"}', '{"group": "B"}',
    '{"group": ""}', '{"group": 1}', '{"id": 1}', '{"priority": "1"}', '{"min_pending": "1"}',
    '{"min_ack_pending": 1.5}', '{"id": "x"}', '{"group": "A", "id": "x"}', '{"group": "B", "id": "x"}',
    '{"min_pending": 1}', '{"min_ack_pending": 1}', '{"group": "A", "min_pending": 5}',
    '{"group": "A", "min_ack_pending": 5}', '{"group": "A", "min_pending": -5}', '{"group": "B", "min_pending": 5}',
    '{"group": "A", "min_pending": 5, "id": "x", "priority": 77}', '{"priority": 1}', '{"priority": 9, "group": "A"}',
    '{"priority": 10, "group": "A"}', '{"priority": -1, "group": "A"}', '{"priority": 10}',
    '{"PriorityGroup": {"group": "A"}}', '{"batch": 99, "group": "B", "min_pending": 1, "idle_heartbeat": 5}',
    '{"batch": 99, "group": "B", "min_pending": 1}', '{"batch": 1, "batch": 2}',
]  # fmt: skip
PULL_CONSUMERS: dict[str, Config] = {
    "plain": {},
    "capped": CAPPED,
    "overflow": OVERFLOW,
    "pinned": PINNED,
    "prioritized": PRIORITIZED,
    "overflow and capped": {**OVERFLOW, **CAPPED},
}
PULLS: list[tuple[str, Config, str, str]] = [
    (f"{kind}: {payload!r}", config, payload, "")
    for (kind, config), payload in itertools.product(PULL_CONSUMERS.items(), PLAIN_PAYLOADS)
]
PULLS += [
    (f"level {level!r}", {}, payload, level)
    for level, payload in itertools.product(("0", "4", "5", "6", "x", "-1", "+3", " 3", "1.0"), ("", "{"))
]

ACK_PAYLOADS = [
    "", "+ACK", "+OK", "+ACK ", " +ACK", "+ack", "+ACKx", "ACK", "x", "+", "-", "\n", "-NAK", "-NAK ", "-NAKx",
    "-NAK x", "-nak", "-NAK 1", "-NAK 0", "-NAK 10s", "-NAK10s", "-NAK  10s  ", "-NAK -10s", "-NAK 1.5h", "-NAK 1d",
    '-NAK {"delay": 10000000000}', '-NAK{"delay":10000000000}', '-NAK {"Delay": 10000000000}',
    '-NAK {"delay": "10s"}', '-NAK {"delay": 0}', "-NAK {}", "-NAK {", '-NAK {"delay": 1e10}', '-NAK {"delay": 1.5}',
    '-NAK {"foo": 1, "delay": 10000000000}', '-NAK {"delay": null}', '-NAK {"delay": -5}',
    '-NAK {"delay": 10000000000} x', "-NAK [10]", "-NAK null", "-NAK\t10s", "-NAK\xa010s", "-NAK 99999999h", "+WPI",
    "+WPI ", "+WPIx", "+wpi", "+TERM", "+TERM ", "+TERM no good", "+TERMbad", "+TERM  two  blanks ",
    "+TERM \xa0\xe9\u2028", "+term", "+TER", '+TERM "quoted" <b>', "+NXT", "+NXT 2", "+NXT2", '+NXT {"batch": 2}',
    '+NXT {"no_wait": true}', "+NXT {", "+NXT x", "+nxt", '+NXT {"idle_heartbeat": 5}',
    '+NXT {"batch": 2, "no_wait": true}',
]  # fmt: skip

# Subjects that an ack of the first message is sent to, with {c} the consumer, {ts} {p} as they were delivered, {hash}
# that of the account.
ACK_SUBJECTS = [
    "$JS.ACK.T.{c}.1.1.1.{ts}.{p}", "$JS.ACK.T.{c}.1.1.1.{ts}", "$JS.ACK.T.{c}.1.1.1.{ts}.{p}.x",
    "$JS.ACK._.{hash}.T.{c}.1.1.1.{ts}.{p}", "$JS.ACK._.{hash}.T.{c}.1.1.1.{ts}.{p}.x",
    "$JS.ACK._.{hash}.T.{c}.1.1.1.{ts}.{p}.x.y.z", "$JS.ACK.D.{hash}.T.{c}.1.1.1.{ts}.{p}",
    "$JS.ACK._.XXXXXXXX.T.{c}.1.1.1.{ts}.{p}", "$JS.ACK._.{hash}.T.{c}.1.1.1.{ts}", "$JS.ACK.T.{c}.x.1.1.{ts}.{p}",
    "$JS.ACK.T.{c}.1.x.1.{ts}.{p}", "$JS.ACK.T.{c}.1.1.x.{ts}.{p}", "$JS.ACK.T.{c}.1.1.1.x.{p}",
    "$JS.ACK.T.{c}.1.1.1.{ts}.x", "$JS.ACK.T.{c}.1.+1.1.{ts}.{p}", "$JS.ACK.T.{c}.1.01.1.{ts}.{p}",
    "$JS.ACK.T.{c}.99.1.1.{ts}.{p}", "$JS.ACK.T.{c}.0.1.1.{ts}.{p}", "$JS.ACK.T.{c}.1.2.2.{ts}.{p}",
    "$JS.ACK.T.{c}.1.2.1.{ts}.{p}", "$JS.ACK.T.{c}.1.1.2.{ts}.{p}", "$JS.ACK.T.{c}.1.0.1.{ts}.{p}",
    "$JS.ACK.T.{c}.1.1.0.{ts}.{p}", "$JS.ACK.T.{c}.1.18446744073709551617.1.{ts}.{p}",
    "$JS.ACK.T.{c}.1.1.18446744073709551617.{ts}.{p}", "$JS.ACK.T.{c}.1.-1.1.{ts}.{p}", "$JS.ACK.T.{c}.1.1.1.0.0",
]  # fmt: skip
