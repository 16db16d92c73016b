"""The catalog of cases: all cases, the server that each one runs on, and the recorded answers of nats-server
(recorded/*.json).
"""

from __future__ import annotations

import difflib
import functools
import importlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from parity.different import DIFFERENT
from parity.script import GivenUp, Script
from support.servers import ServerProcess, Servers

HERE = Path(__file__).parent
RECORDED = HERE / "recorded"
GROUPS = sorted(path.stem for path in (HERE / "cases").glob("[a-z]*.py"))

Transcript = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Case:
    """One script. It runs in an account of its own, or on a server with `config`."""

    group: str
    name: str
    run: Callable[[Script], None]
    account: str = "jetstream: enabled"
    config: str | Callable[[], str] = ""
    is_alone: bool = False  # a server that no other case uses

    def __str__(self) -> str:
        return self.name


_cases: dict[str, dict[str, Case]] = {}


def add(group: str, name: str, run: Callable[[Script], None], **options: Any) -> None:
    cases = _cases.setdefault(group, {})
    assert name not in cases, f"{group}: two cases are named {name!r}"
    cases[name] = Case(group, name, run, **options)


def case(group: str, name: str, **options: Any) -> Callable[[Callable[[Script], None]], Callable[[Script], None]]:
    """Register the function below as a case."""

    def register(run: Callable[[Script], None]) -> Callable[[Script], None]:
        add(group, name, run, **options)
        return run

    return register


def cases_of(group: str) -> list[Case]:
    if group not in _cases:
        importlib.import_module(f"parity.cases.{group}")
    return list(_cases[group].values())


def all_cases() -> list[Case]:
    return [case for group in GROUPS for case in cases_of(group)]


def run(case: Case, servers: Servers) -> tuple[Transcript, bool]:
    """The transcript of `case`, and whether every answer arrived."""
    if case.is_alone:
        with servers.alone(_config(case)) as server:
            return _run_on(case, server.port, "", server)
    if case.config:
        server = servers.shared(_config(case))
        return _run_on(case, server.port, "", server)
    server, account = servers.with_account(case.account)
    return _run_on(case, server.port, account)


def _config(case: Case) -> str:
    return case.config() if callable(case.config) else case.config


def _run_on(case: Case, port: int, account: str, server: ServerProcess | None = None) -> tuple[Transcript, bool]:
    with Script(port, account, server) as script:
        try:
            case.run(script)
        except GivenUp:
            pass
        return script.transcript, script.is_whole


@functools.cache
def recorded(group: str) -> dict[str, Transcript]:
    path = RECORDED / f"{group}.json"
    if not path.exists():
        return {}
    answers: dict[str, Transcript] = json.loads(path.read_text())
    return answers


def write(group: str, answers: dict[str, Transcript]) -> None:
    """One frame per line: a change in a recording is as readable as a change in a conversation."""
    RECORDED.mkdir(exist_ok=True)
    blocks = []
    for name, transcript in sorted(answers.items()):
        lines = ",\n".join(f"  {line}" for entry in transcript for line in [json.dumps(entry, ensure_ascii=False)])
        blocks.append(f" {json.dumps(name, ensure_ascii=False)}: [\n{lines}\n ]")
    (RECORDED / f"{group}.json").write_text("{\n" + ",\n".join(blocks) + "\n}\n")


def as_lines(transcript: Transcript) -> list[str]:
    """A transcript as text: two transcripts are equal if their texts are, the order of keys included."""
    lines = []
    for entry in transcript:
        lines.append(f"{entry.get('on', '')}> {entry['did']}")
        for frame in entry["got"]:
            text = json.dumps(frame, ensure_ascii=False)
            lines.extend(f"    {part}" for part in text.replace(', "', ',\n "').split("\n"))
    return lines


def params(group: str) -> list[Any]:
    """The cases of a group for pytest; cases in which Penstock differs on purpose must differ."""
    reasons = DIFFERENT.get(group, {})

    def marks(case: Case) -> list[pytest.MarkDecorator]:
        reason = reasons.get(case.name)
        return [pytest.mark.xfail(reason=reason, strict=True)] if reason else []

    return [pytest.param(case, id=f"{group}: {case.name}", marks=marks(case)) for case in cases_of(group)]


def assert_as_recorded(case: Case, servers: Servers) -> None:
    """Run the case; fail with a diff if an answer differs from the recorded one."""
    known = recorded(case.group)
    assert case.name in known, (
        f"{case.group} has no recording of {case.name!r}: run tests/parity/record.py {case.group}"
    )
    transcript, _ = run(case, servers)
    found = difference(known[case.name], transcript)
    if found:
        raise AssertionError(f"{case.group}: {case.name}\n{found}")


def difference(expected: Transcript, got: Transcript) -> str:
    """The diff between `got` and the recording; empty if they are equal."""
    lines = difflib.unified_diff(as_lines(expected), as_lines(got), "nats-server", "ours", lineterm="", n=4)
    return "\n".join(lines)
