"""What consumer.py asks a real server: pull requests, acks, and the requests that change a consumer."""

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

# Requests about a consumer: its configuration, the endpoint, the payload.
FUTURE, PAST = '"2126-01-01T00:00:00Z"', '"2020-01-01T00:00:00Z"'
START = {"deliver_policy": "by_start_sequence", "opt_start_seq": 2}
START_TIME = {"deliver_policy": "by_start_time", "opt_start_time": "2020-01-01T00:00:00Z"}
LATE = {"deliver_policy": "by_start_time", "opt_start_time": "2126-01-01T00:00:00Z"}
REQUESTS: list[tuple[Config, str, str]] = [
    *(
        ({}, "PAUSE", payload)
        for payload in (
            "", " ", "{}", "null", "x", "[]", "5", f'{{"pause_until": {FUTURE}}}', f'{{"pause_until": {PAST}}}',
            '{"pause_until": null}', '{"pause_until": ""}', '{"pause_until": 5}',
            '{"pause_until": "0001-01-01T00:00:00Z"}',
            '{"pause_until": "2126-01-01T00:00:00.25+02:00"}', '{"foo": 1}', f'{{"PAUSE_UNTIL": {FUTURE}}}', "{",
            f'[{{"pause_until": {FUTURE}}}]', f' {{"pause_until": {FUTURE}}}',
        )
    ),
    *(
        ({"pause_until": "2125-01-01T00:00:00Z", "metadata": {"a": "b"}}, "PAUSE", payload)
        for payload in ("", "{}", f'{{"pause_until": {PAST}}}', f'{{"pause_until": {FUTURE}}}')
    ),
    (PINNED, "PAUSE", ""),
    *(
        (config, "UNPIN", payload)
        for config, payload in itertools.product(
            ({}, PINNED, OVERFLOW),
            (
                "", "{}", "null", "x", '{"group": ""}', '{"group": "A"}', '{"group": "B"}', '{"group": "a b"}',
                '{"group": 5}', '{"group": "A", "foo": 1}', '{"GROUP": "A"}', "[]",
            ),
        )
    ),
    *(
        (config, "RESET", payload)
        for config, payload in itertools.product(
            ({}, START, START_TIME, LATE, {"deliver_policy": "new"}, {"deliver_policy": "last"}),
            ("", '{"seq": 0}', '{"seq": 1}', '{"seq": 2}', '{"seq": 3}', '{"seq": 99}', "{}"),
        )
    ),
    *(
        ({}, "RESET", payload)
        for payload in (
            " ", "null", "x", "5", "[]", '{"seq": -1}', '{"seq": "1"}', '{"seq": 1.5}', '{"seq": null}', '{"foo": 1}',
            '{"SEQ": 2}', '{"seq": 18446744073709551615}', '{"seq": 18446744073709551616}', "{", '{"seq": 1} x',
        )
    ),
]  # fmt: skip

# Updates of a stream's consumer limits: before, after, and the consumers.
LIMITS: list[tuple[Config, Config, list[Config]]] = [
    (before, after, consumers)
    for before, after in (
        ({}, {"max_ack_pending": 5}),
        ({}, {"inactive_threshold": NS}),
        ({}, {"max_ack_pending": 5000, "inactive_threshold": 60 * NS}),
        ({"max_ack_pending": 500}, {"max_ack_pending": 5}),
        ({"max_ack_pending": 500}, {}),
        ({"max_ack_pending": 5, "inactive_threshold": 9 * NS}, {"max_ack_pending": 5, "inactive_threshold": NS}),
    )
    for consumers in (
        [],
        [{"durable_name": "C", "ack_policy": "explicit"}],
        [{"durable_name": "C", "ack_policy": "explicit", "max_ack_pending": -1}],
        [{"name": "C", "ack_policy": "none"}],
        [{"durable_name": "C", "ack_policy": "explicit", "max_ack_pending": 3, "inactive_threshold": 2 * NS}],
    )
]
