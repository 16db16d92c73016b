"""Print what the parity tests cover, as markdown for docs/parity.md: by endpoint and by error code, not by scripts.

    python tools/parity_table.py

Read from the recordings (tests/parity/recorded): which endpoint was asked, what came, which case shows it. An error
code that no request of this version can reach says why.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

PARITY = Path(__file__).parent.parent / "tests" / "parity"

ENDPOINTS = [
    "INFO",
    "STREAM.CREATE",
    "STREAM.UPDATE",
    "STREAM.NAMES",
    "STREAM.LIST",
    "STREAM.INFO",
    "STREAM.DELETE",
    "STREAM.PURGE",
    "STREAM.MSG.GET",
    "STREAM.MSG.DELETE",
    "STREAM.LEADER.STEPDOWN",
    "STREAM.PEER.REMOVE",
    "STREAM.PEER.EVACUATE",
    "STREAM.CANCEL_MOVE",
    "DIRECT.GET",
    "CONSUMER.CREATE",
    "CONSUMER.DURABLE.CREATE",
    "CONSUMER.NAMES",
    "CONSUMER.LIST",
    "CONSUMER.INFO",
    "CONSUMER.DELETE",
    "CONSUMER.PAUSE",
    "CONSUMER.UNPIN",
    "CONSUMER.RESET",
    "CONSUMER.MSG.NEXT",
    "CONSUMER.LEADER.STEPDOWN",
    "CONSUMER.PEER.REMOVE",
    "CONSUMER.PEER.EVACUATE",
]
PUBLISH = "a publish to a stream"
PULL = "CONSUMER.MSG.NEXT"
ASKED = re.compile(r"(?:request|until|a publish with the reply) (?:\$JS\.(?:hub\.)?API\.)?(\S+)")

# Why a code cannot be reached yet, by its constant: the first pattern that fits.
NOT_YET = [
    ("comes with snapshot and restore", r"Restore|Snapshot|TempStorage|JSSequenceNotFound"),
    ("comes with mirrors and sources", r"Mirror|JSSource|StreamExternal|InvalidExternal|SourceHdr"),
    ("comes with mirrors and sources", r"MirrorConsumer|SourceConsumer|MirrorDurable|SourceDurable"),
    ("only in a cluster", r"ConsumerReplicas|ConsumerOffline"),
    (
        "the real server does not send it",
        r"DurableInSubject|PullNotDurable|ConsumerOnMapped|FilterNotSubset|ExistingActive|ReplacementWithDifferent",
    ),
    (
        "another check of the real server comes first",
        r"NameNotInSubject|ConfigRequired|BadDurable|AndNameMismatch|MaxWaitingNegative|BatchNegative|PolicyInvalidErr",
    ),
    ("needs a disk that fails, or a flood", r"ConsumerStoreFailed"),
    ("comes with atomic and fast batches", r"AtomicPublish|BatchPublish|WrongLastSequenceConstant"),
    ("comes with counters", r"MessageIncr|MessageCounter"),
    ("comes with schedules", r"MessageSchedules"),
    ("only in a cluster", r"Cluster|Peer|Raft|StreamAssignment|Move|Reconfigure|Offline|ReplicasNotUpdatable"),
    ("only in a cluster", r"DuplicateMessageConflict|SeqPerSubjectNotReady|StreamSequenceNotMatch"),
    ("only with accounts from JWTs", r"JSNoLimits|JSNoAccount"),
    ("of stream templates, which the real server has no more", r"Template"),
    ("the real server does not send it", r"JSStreamMinLastSeq|InfoMaxSubjects"),
    ("the real server does not send it", r"JSStreamInvalidErr"),
    ("comes with snapshot and restore", r"JSStreamLimits"),
    ("of the system account's requests for a cluster", r"JSStreamGeneralError"),
    ("needs a disk that fails, or a flood", r"StreamDelete|StreamCreate|StreamUpdate|TooManyRequests"),
    ("needs JetStream to stop under way", r"JSNotEnabledErr"),
]


def endpoint_of(did: str) -> str:
    """The endpoint that a step asked; a publish where it is none."""
    found = ASKED.match(did)
    if found is None:
        return ""
    subject = found[1]
    is_api = "$JS." in did or did.startswith("until")
    if not is_api:
        return PUBLISH
    return next((name for name in sorted(ENDPOINTS, key=len, reverse=True) if subject.startswith(name)), "")


def is_pulled(group: str, frames: list[dict[str, Any]]) -> bool:
    """Whether these are messages of a consumer, or its statuses: they are read some steps after they were asked for."""
    is_about = (group.startswith("consumer_") and group != "consumer_push") or group in (
        "random_consumers",
        "random_feeds",
    )
    heads = [str(frame.get("reply", "")) + str(frame.get("headers", "")) for frame in frames]
    return is_about and any(head.startswith(("$JS.ACK.", "NATS/1.0 4")) for head in heads)


def outcomes(frames: list[dict[str, Any]]) -> list[tuple[int, str]]:
    """What came: (error code, its text), or a status, or 0 for an answer that is none."""
    found = []
    for frame in frames:
        body = frame.get("json")
        status = re.match(r"NATS/1\.0 (\d+)(?: ([^\r]*))?", frame.get("headers", ""))
        if isinstance(body, dict) and "error" in body:
            found.append((int(body["error"]["err_code"]), ""))
        elif status:
            found.append((int(status[1]), status[2] or ""))
        elif frame.get("frame") in ("MSG", "HMSG") or body is not None:
            found.append((0, ""))
    return found


def main() -> None:
    cases: dict[str, set[str]] = defaultdict(set)
    by_endpoint: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    total = 0
    groups: dict[str, int] = {}
    for path in sorted((PARITY / "recorded").glob("*.json")):
        recorded: dict[str, list[dict[str, Any]]] = json.loads(path.read_text())
        groups[path.stem] = len(recorded)
        total += len(recorded)
        for name, transcript in recorded.items():
            for entry in transcript:
                endpoint = endpoint_of(entry["did"]) or (PULL if is_pulled(path.stem, entry["got"]) else "")
                for code, _ in outcomes(entry["got"]) if endpoint else []:
                    cases[endpoint].add(f"{path.stem}: {name}")
                    by_endpoint[endpoint][code].add(f"{path.stem}: {name}")
    print_endpoints(by_endpoint, cases)
    print_errors(by_endpoint)
    print_protocol()
    print(f"\n{total} conversations in {len(groups)} groups: " + ", ".join(f"{n} {g}" for g, n in groups.items()) + ".")


def print_endpoints(by_endpoint: dict[str, dict[int, set[str]]], cases: dict[str, set[str]]) -> None:
    print("| endpoint | conversations | good | statuses | error codes |\n|---|---|---|---|---|")
    for endpoint in [*ENDPOINTS, PUBLISH]:
        codes = by_endpoint[endpoint]
        errors = sorted(code for code in codes if code >= 10000)
        statuses = sorted(code for code in codes if 0 < code < 1000)
        print(
            f"| {endpoint} | {len(cases[endpoint])} | {len(codes.get(0, ()))} | "
            f"{', '.join(map(str, statuses)) or '–'} | {len(errors)}: {', '.join(map(str, errors)) or '–'} |"
        )


# What the reference says of connections; each text is counted by the conversations that heard it.
ERR_TEXTS = [
    "Unknown Protocol Operation",
    "Authorization Violation",
    "Authentication Timeout",
    "Maximum Payload Violation",
    "maximum control line exceeded",
    "maximum connections exceeded",
    "maximum account active connections exceeded",
    "maximum subscriptions exceeded",
    "Invalid Subject",
    "Invalid Publish Subject",
    "Permissions Violation for Publish to",
    "Permissions Violation for Subscription to",
    "using queue",
    "too many tokens",
    "Permissions Violation for Publish with Reply of",
    "Stale Connection",
    "invalid client protocol",
    "no responders requires headers support",
]
HEADERS = [
    "Nats-Msg-Id",
    "Nats-Expected-Stream",
    "Nats-Expected-Last-Sequence",
    "Nats-Expected-Last-Subject-Sequence",
    "Nats-Expected-Last-Subject-Sequence-Subject",
    "Nats-Expected-Last-Msg-Id",
    "Nats-Rollup",
    "Nats-TTL",
    "Nats-Marker-Reason",
    "Nats-Incr",
    "Nats-Batch-Id",
    "Nats-Schedule",
    "Nats-Scheduler",
    "Nats-Stream-Source",
    "Nats-Required-Api-Level",
    "Nats-Request-Info",
    "KV-Operation",
]
STATUSES = [  # of consumers, to pull requests and to those who listen
    "100 Idle Heartbeat",
    "100 FlowControl Request",
    "Nats-Consumer-Stalled",
    "404 No Messages",
    "408 Request Timeout",
    "408 Requests Pending",
    "409 Batch Completed",
    "409 Consumer Deleted",
    "409 Consumer is push based",
    "409 Exceeded MaxRequestBatch",
    "409 Exceeded MaxRequestExpires",
    "409 Exceeded MaxRequestMaxBytes",
    "409 Exceeded MaxWaiting",
    "409 Message Size Exceeds MaxBytes",
    "409 Server Shutdown",
    "400 Bad Request - json",
    "400 Bad Request - heartbeat value too large",
    "400 Bad Request - Priority Group missing",
    "400 Bad Request - Invalid Priority Group",
    "400 Bad Request - Not a Overflow Priority consumer",
    "400 Bad Request - Not a Pinned Client Priority consumer",
    "400 Bad Request - Priority must be between 0 and 9",
    "412 Required Api Level",
    "423 Nats-Pin-Id mismatch",
    "423 Nats-Wrong-Pin-Id",
]
ADVISORIES = [
    "consumer_action",
    "consumer_pause",
    "consumer_group_pinned",
    "consumer_group_unpinned",
    "max_deliver",
    "nak",
    "terminated",
    "consumer_ack",
]
SHARED = {  # groups by what they show, where no endpoint counts it
    "the protocol's verbs in their forms": "core_protocol random_protocol",
    "who hears a message; reserved subjects and replies": "core_delivery random_delivery",
    "INFO and the limits of connections": "core_limits",
    "logging in: none, user, token, users, bcrypt, nkey, no_auth_user, connection types": "auth",
    "permissions: publish, subscribe, queues, responses, defaults": "permissions",
    "TLS: after INFO, first, both; certificates, users by certificate": "tls",
    "WebSocket: upgrade, origins, frames, cookies": "websocket",
    "stop, restart, kill, lame duck, reload": "lifecycle random_restarts",
    "advisories, and the system account's events": "advisories system_events",
    "pull requests and their statuses": "consumer_pull",
    "acks of every kind, and what comes again": "consumer_acks",
    "where a consumer begins: deliver policies and filters": "consumer_start",
    "push consumers: queues, heartbeats, flow control": "consumer_push",
    "work queues and interest": "consumer_retention",
    "priority groups": "consumer_priority",
    "KV watchers, object stores, ordered consumers, as clients send them": "consumer_clients",
    "consumers over a restart": "consumer_restart",
    "consumers by chance": "random_consumers random_feeds",
}


def print_protocol() -> None:
    texts: dict[str, int] = dict.fromkeys(ERR_TEXTS, 0)
    headers: dict[str, int] = dict.fromkeys(HEADERS, 0)
    statuses: dict[str, int] = dict.fromkeys(STATUSES, 0)
    advisories: dict[str, int] = dict.fromkeys(ADVISORIES, 0)
    fields: dict[str, dict[str, int]] = {"stream": defaultdict(int), "consumer": defaultdict(int)}
    counts: dict[str, int] = {}
    for path in sorted((PARITY / "recorded").glob("*.json")):
        recorded: dict[str, list[dict[str, Any]]] = json.loads(path.read_text())
        counts[path.stem] = len(recorded)
        for transcript in recorded.values():
            frames = [frame for entry in transcript for frame in entry["got"]]
            said = " ".join(frame.get("text", "") for frame in frames if frame.get("frame") == "-ERR")
            for text in texts:
                texts[text] += text in said
            done = " ".join(entry["did"] for entry in transcript)
            for header in headers:
                headers[header] += f"{header}:" in done
            heads = " ".join(str(frame.get("headers", "")) for frame in frames) + json.dumps(
                [frame["json"] for entry in transcript if "on" not in entry for frame in entry["got"]]
            )
            for status in statuses:
                statuses[status] += status in heads
            types = {str(body.get("type")) for body in map(body_of, frames)}
            for advisory in advisories:
                advisories[advisory] += any(kind.endswith(f".v1.{advisory}") for kind in types)
            for noun, count in fields.items():
                for field in {field for frame in frames for field in config_fields(frame, noun)}:
                    count[field] += 1
    print("\n| shown beside the endpoints | conversations |\n|---|---|")
    for what, groups in SHARED.items():
        print(f"| {what} | {sum(counts.get(group, 0) for group in groups.split())} |")
    print("| `-ERR` texts | " + ", ".join(f"{text}: {count}" for text, count in texts.items()) + " |")
    print("| headers of a publish | " + ", ".join(f"{header}: {count}" for header, count in headers.items()) + " |")
    print("| statuses of consumers | " + ", ".join(f"{text}: {count}" for text, count in statuses.items()) + " |")
    told = ", ".join(f"{kind}: {count}" for kind, count in advisories.items())
    print(f"| advisories and metrics of consumers | {told} |")
    for noun, found in fields.items():
        print(f"| fields of a {noun}'s configuration that were echoed ({len(found)}) | {', '.join(sorted(found))} |")


def body_of(frame: dict[str, Any]) -> dict[str, Any]:
    body = frame.get("json")
    return body if isinstance(body, dict) else {}


def config_fields(frame: dict[str, Any], noun: str) -> set[str]:
    """The fields of a stream's, or a consumer's, configuration that an answer has."""
    body = body_of(frame)
    config = body.get("config")
    is_consumer = "stream_name" in body
    return set(config) if isinstance(config, dict) and is_consumer == (noun == "consumer") else set()


def print_errors(by_endpoint: dict[str, dict[int, set[str]]]) -> None:
    errors = sorted(json.loads((PARITY / "jetstream-errors.json").read_text()), key=lambda e: e["error_code"])
    shown: dict[int, list[str]] = defaultdict(list)
    for endpoint, codes in by_endpoint.items():
        for code in codes:
            shown[code].append(endpoint)
    reached, waiting, missing = [], defaultdict(list), []
    for error in errors:
        code = error["error_code"]
        if code in shown:
            first = min(min(by_endpoint[endpoint][code]) for endpoint in shown[code])
            reached.append((code, error["description"], sorted(shown[code]), first))
            continue
        reason = next((why for why, pattern in NOT_YET if re.search(pattern, error["constant"])), None)
        if reason is None:
            missing.append(error)
        else:
            waiting[reason].append(code)
    print(f"\n{len(reached)} of {len(errors)} error codes are shown; {len(missing)} that could be reached are not.\n")
    print("| code | text | asked of | for example |\n|---|---|---|---|")
    for code, text, endpoints, first in reached:
        print(f"| {code} | {text} | {', '.join(endpoints)} | {first} |")
    for error in missing:
        print(f"| {error['error_code']} | {error['description']} ({error['constant']}) | | **not shown** |")
    print("\n| not reachable here | codes |\n|---|---|")
    for reason, codes_of in waiting.items():
        print(f"| {reason} | {len(codes_of)}: {', '.join(map(str, codes_of))} |")


if __name__ == "__main__":
    main()
