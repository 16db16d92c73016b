"""Every monitoring page, system request and event: what we answer is what nats-server 2.15.1 was recorded to answer.

The scene and the questions are monitor_scenario.py's; the real server is asked again, so that the records stay true.
"""

from __future__ import annotations

import json
import os
import sys
from functools import cache
from typing import Any

import pytest

sys.path.insert(0, os.path.dirname(__file__))

import monitor_scenario as scenario

from harness import Kind, ServerProcess

FILES = ("pages", "system", "own", "alice", "encodings", "events", "plain")
RECORDED: dict[str, dict[str, Any]] = {
    name: json.loads((scenario.SHAPES / f"{name}.json").read_text()) for name in FILES
}
CASES = [pytest.param(name, asked, id=f"{name}: {asked}") for name in FILES for asked in RECORDED[name]]


@cache
def played(kind: Kind) -> dict[str, dict[str, Any]]:
    with ServerProcess(kind, scenario.CONFIG) as server:
        shapes = scenario.play(server)
    with ServerProcess(kind, scenario.PLAIN) as server:
        shapes["plain"] = scenario.play_plain(server)
    return shapes


@pytest.mark.parametrize(("name", "asked"), CASES)
def test_our_answer_is_the_recorded_one(name: str, asked: str) -> None:
    ours, recorded = played("ours")[name].get(asked), RECORDED[name][asked]
    assert json.dumps(ours, indent=1) == json.dumps(recorded, indent=1)  # the order of the keys counts


@pytest.mark.parametrize("name", FILES)
def test_the_real_server_still_answers_what_was_recorded(name: str) -> None:
    assert json.dumps(played("real")[name], indent=1) == json.dumps(RECORDED[name], indent=1)
