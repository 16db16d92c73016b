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
]
PUBLISH = "a publish to a stream"
ASKED = re.compile(r"(?:request|until|a publish with the reply) (?:\$JS\.(?:hub\.)?API\.)?(\S+)")

# Why a code cannot be reached yet, by its constant: the first pattern that fits.
NOT_YET = [
    ("comes with snapshot and restore", r"Restore|Snapshot|TempStorage|JSSequenceNotFound"),
    ("comes with mirrors and sources", r"Mirror|JSSource|StreamExternal|InvalidExternal|SourceHdr"),
    ("comes with consumers", r"Consumer|JSConsumer"),
    ("comes with atomic and fast batches", r"AtomicPublish|BatchPublish|WrongLastSequenceConstant"),
    ("comes with counters", r"MessageIncr|MessageCounter"),
    ("comes with schedules", r"MessageSchedules"),
    ("only in a cluster", r"Cluster|Peer|Raft|StreamAssignment|Move|Reconfigure|Offline|ReplicasNotUpdatable"),
    ("only in a cluster", r"DuplicateMessageConflict|SeqPerSubjectNotReady|StreamSequenceNotMatch"),
    ("only with accounts from JWTs", r"JSNoLimits|JSNoAccount"),
    ("of stream templates, which the real server has no more", r"Template"),
    ("the real server does not send it", r"JSStreamMinLastSeq|InfoMaxSubjects"),
    ("comes with consumers", r"JSStreamInvalidErr"),
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
                endpoint = endpoint_of(entry["did"])
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
}


def print_protocol() -> None:
    texts: dict[str, int] = dict.fromkeys(ERR_TEXTS, 0)
    headers: dict[str, int] = dict.fromkeys(HEADERS, 0)
    fields: dict[str, int] = defaultdict(int)
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
            shown = {field for frame in frames for field in config_fields(frame)}
            for field in shown:
                fields[field] += 1
    print("\n| shown beside the endpoints | conversations |\n|---|---|")
    for what, groups in SHARED.items():
        print(f"| {what} | {sum(counts.get(group, 0) for group in groups.split())} |")
    print("| `-ERR` texts | " + ", ".join(f"{text}: {count}" for text, count in texts.items()) + " |")
    print("| headers of a publish | " + ", ".join(f"{header}: {count}" for header, count in headers.items()) + " |")
    print(f"| fields of a stream's configuration that were echoed ({len(fields)}) | {', '.join(sorted(fields))} |")


def config_fields(frame: dict[str, Any]) -> set[str]:
    body = frame.get("json")
    config = body.get("config") if isinstance(body, dict) else None
    return set(config) if isinstance(config, dict) else set()


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
