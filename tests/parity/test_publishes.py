"""What the server publishes by itself: whom it reaches, in the code, on the page, in conversations with both servers.

The cases: cases/publishes.py; the real server's answers: recorded/publishes.json.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from parity.cases.publishes import LISTENERS, WAYS, name_of
from parity.catalog import Case, assert_as_recorded, cases_of, difference, recorded, run
from parity.different import DIFFERENT, NO_COMMAND, OBEYED
from penstock.broker.routing.origin import REACHES, Listener, Origin
from support.servers import Servers

PAGE = (Path(__file__).parents[2] / "docs" / "publishes.md").read_text(encoding="utf-8")
LISTENER_OF = {
    "clients": Listener.CLIENT,
    "streams": Listener.STREAM,
    "services": Listener.SERVICE,
    "acks": Listener.ACK,
    "pull requests": Listener.PULL,
    "flow control": Listener.FLOW,
}
# Rows that have no conversation of their own: clients' messages are in all of them; the system account has no streams.
UNPLAYED = {
    "a client's message",
    "a client's message to `$JS.DOMAIN.API`, passed on",
    "an event of the system account",
}


def table(title: str) -> list[list[str]]:
    """The rows of the table under a heading of the page, the first of them its head."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    assert found, f"no heading {title!r}"
    lines = [line.strip("|").split("|") for line in found[1].splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line] for line in lines]
    return [row for row in rows if not set("".join(row)) <= {"-"}]


def test_the_page_has_the_codes_table_and_the_conversations_rows() -> None:
    head, *rows = table("Who hears what")
    assert head[3:] == list(LISTENERS) == list(LISTENER_OF)
    assert set(LISTENER_OF.values()) == set(Listener)
    for name, _, origin, *cells in rows:
        reached = {LISTENER_OF[column] for column, cell in zip(head[3:], cells, strict=True) if cell == "yes"}
        assert set(cells) <= {"yes", "no"} and reached == REACHES[Origin[origin]], name
        assert name in UNPLAYED or WAYS[name].origin == origin, name
    assert {row[0] for row in rows} == UNPLAYED | set(WAYS)
    assert {row[2] for row in rows} == set(Origin.__members__)


def test_the_page_tells_what_nats_server_does_as_it_was_recorded() -> None:
    _, *rows = table("Where nats-server 2.15.1 differs")
    told = {name: () if who == "nobody" else tuple(who.split(", ")) for name, who in rows}
    assert told == OBEYED
    obeyed = {case: entry for case, entries in recorded("publishes").items() for entry in entries if says_obeys(entry)}
    assert set(obeyed) == {name_of(way, listener) for way, listeners in OBEYED.items() for listener in listeners}


def says_obeys(entry: dict[str, object]) -> bool:
    return "'obeys': True" in str(entry["got"])


@pytest.mark.parametrize("case", cases_of("publishes"), ids=str)
def test_nothing_that_the_server_publishes_is_a_command_to_it(case: Case, ours: Servers) -> None:
    """The rest is as the real server has it."""
    reason = DIFFERENT["publishes"].get(case.name)
    if reason is None:
        assert_as_recorded(case, ours)
        return
    transcript, is_whole = run(case, ours)
    assert is_whole and difference(recorded("publishes")[case.name], transcript)
    (found,) = transcript[-1]["got"]
    if reason == NO_COMMAND:
        whole = {"streams": ["T", "V"], "messages": 2, "consumers": ["C"]}
        assert found["json"] == whole or found["json"]["obeys"] is False
    else:
        assert found["json"] == {"as": "taken"}
