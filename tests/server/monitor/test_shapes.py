"""Every monitoring page, system request and event: what we answer is what nats-server 2.15.1 was recorded to answer.

The scenes and the questions are those of monitor_scenario.py and monitor_auth.py; the real server is asked again, so
that the records stay true.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.monitor_record import play_all
from support.monitor_scenario import SHAPES

FILES = sorted(path.stem for path in SHAPES.glob("*.json"))
RECORDED: dict[str, dict[str, Any]] = {name: json.loads((SHAPES / f"{name}.json").read_text()) for name in FILES}
CASES = [pytest.param(name, asked, id=f"{name}: {asked}") for name in FILES for asked in RECORDED[name]]


@pytest.fixture(scope="module")
def ours() -> dict[str, dict[str, Any]]:
    return play_all("ours")


@pytest.fixture(scope="module")
def real() -> dict[str, dict[str, Any]]:
    return play_all("real")


@pytest.mark.parametrize(("name", "asked"), CASES)
def test_our_answer_is_the_recorded_one(ours: dict[str, dict[str, Any]], name: str, asked: str) -> None:
    found, recorded = ours[name].get(asked), RECORDED[name][asked]
    assert json.dumps(found, indent=1) == json.dumps(recorded, indent=1)  # the order of the keys counts


@pytest.mark.parametrize("name", FILES)
def test_the_real_server_still_answers_what_was_recorded(real: dict[str, dict[str, Any]], name: str) -> None:
    assert json.dumps(real[name], indent=1) == json.dumps(RECORDED[name], indent=1)
