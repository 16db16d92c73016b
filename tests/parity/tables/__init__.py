"""Tables of questions that nats-server answers one by one, and that our rules are asked without a server.

A module with `record` asks the questions of a table: `stream`, `consumer` and `wire`; record.py runs it and writes the
answers to recorded/tables/. The tests of the rules replay them: tests/stream, tests/consumer and tests/wire.
"""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parents[1] / "recorded" / "tables"
TABLES = ("consumer", "stream", "wire")

Table = dict[str, Any]  # the server's version, and by group its cases


def ask(name: str) -> Table:
    """Ask a real nats-server every question of the table."""
    answers: Table = importlib.import_module(f"parity.tables.{name}").record()
    return answers


def recorded(name: str) -> Table:
    text = (RECORDED / f"{name}.json").read_text()
    table: Table = json.loads(re.sub(r"\{x\*(\d+)\}", lambda run: "x" * int(run[1]), text))
    return table


def write(name: str, table: Table) -> None:
    """One case per line: a change of a case is a change of a line. {x*300} stands for 300 times x."""
    RECORDED.mkdir(exist_ok=True)
    groups = []
    for group, cases in table.items():
        is_list = isinstance(cases, list)
        text = "[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]" if is_list else json.dumps(cases)
        groups.append(f'"{group}": {text}')
    text = "{\n" + ",\n".join(groups) + "\n}\n"
    (RECORDED / f"{name}.json").write_text(re.sub("x{100,}", lambda run: f"{{x*{len(run[0])}}}", text))
