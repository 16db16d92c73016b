"""penstock erase."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock
from support.cli_cases import Run


def holders(root: Path, needle: bytes) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file() and needle in path.read_bytes()]


def test_an_erased_payload_is_in_no_file(run: Run, root: Path) -> None:
    assert holders(root, b"order 33")
    # 3 and 5 too: a checksum behind "order 5" may begin with a digit.
    done = run("erase", root, "--stream", "ORDERS", "3", "5", "33", "50-52")
    assert done.code == 0 and "6 messages of ORDERS erased" in done.text
    for number in (33, 50, 51, 52):
        assert not holders(root, b"order %d" % number)
    with penstock.open(root, read_only=True) as db:
        with pytest.raises(penstock.MessageDeleted):
            db.stream("ORDERS").get(33)
        assert db.stream("ORDERS").get(34).data == b"order 34"
    assert run("verify", root).code == 0


def test_what_is_not_there_is_told(run: Run, root: Path) -> None:
    done = run("erase", root, "-s", "ORDERS", "33", "7", "1000", "--json")
    assert done.code == 1
    assert (done.json["erased"], done.json["missing"]) == ([33], [7, 1000])
    assert "no message 7, 1000" in done.err


@pytest.mark.parametrize("text", ["x", "0", "-5", "9-5", "1-", str(2**63), "1-9999999999"])
def test_a_bad_sequence(run: Run, root: Path, text: str) -> None:
    done = run("erase", root, "-s", "ORDERS", "--", text)
    assert done.code == 2 and done.err.count("\n") == 1


def test_with_several_streams_one_is_named(run: Run, root: Path) -> None:
    done = run("erase", root, "1")
    assert done.code == 2 and "--stream" in done.err and "BIG, ORDERS" in done.err


def test_a_stream_that_denies_deletes(run: Run, tmp_path: Path) -> None:
    with penstock.open(tmp_path / "data") as db:
        db.stream("S", subjects=["s"], deny_delete=True).publish("s", b"x")
    done = run("erase", tmp_path / "data", "1")
    assert done.code == 2 and "not permitted" in done.err
