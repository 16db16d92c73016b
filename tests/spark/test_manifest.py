"""Manifests: an export counts from one moment on, wherever it is interrupted. No Spark is needed for this."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.seq_set import SeqSet
from penstock.spark.pipelines.manifest import (
    Lake,
    LakeError,
    LakeFile,
    LakeState,
    Manifest,
    Settings,
    StreamExport,
    pack,
    unpack,
)
from penstock.store.deletes.deletes import Position


class Crash(BaseException):
    """The power goes off."""


def export(lake: Lake, rows: int = 10) -> Manifest:
    """What an export does, with bytes instead of Parquet: two files of the next `rows` sequences."""
    with lake.locked():
        lake.clean()
        lake.create(Settings())
        state = lake.state()
        number, known = state.export + 1, state.streams.get("S")
        first = known.last + 1 if known else 1
        run = f"{number:08}-{os.urandom(4).hex()}"
        staging, files = lake.staging(run), []
        for n in range(2):
            path = f"stream=S/day={n}/{run}.parquet"
            os.makedirs(os.path.join(staging, os.path.dirname(path)), exist_ok=True)
            Path(staging, path).write_bytes(b"%d" % first)
            start = first + n * rows // 2
            files.append(LakeFile(path, "S", rows // 2, 1, start, start + rows // 2 - 1, 0, 0))
        last = first + rows - 1
        made = Manifest(
            number, run, "now", "store", [StreamExport("S", "00", 1, first, last, rows, Position(1, 2), "")], files
        )
        lake.commit(made)
        state.add(made)
        if number % 3 == 0:
            lake.write_state(state)
        return made


def assert_whole(lake: Lake) -> None:
    """The named files follow one another, are there, and no others are."""
    stream = lake.state().streams["S"]
    at = 1
    for file in stream.files:
        assert file.first_seq == at
        at = file.last_seq + 1
    assert at == stream.last + 1
    there = {str(path.relative_to(lake.path)) for path in Path(lake.path).glob("stream=*/**/*.parquet")}
    assert {file.path for file in stream.files} <= there


def test_a_crash_at_any_call_loses_and_doubles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attempt dies one call later than the one before, until one comes through; then the same again."""
    lake = Lake(tmp_path / "lake")
    crashes = 0
    for _ in range(4):
        for number in range(200):
            calls = 0

            def dies(real: Any, number: int = number) -> Any:
                def call(*args: Any, **kwargs: Any) -> Any:
                    nonlocal calls
                    calls += 1
                    if calls == number + 1:
                        raise Crash
                    return real(*args, **kwargs)

                return call

            with monkeypatch.context() as patch:
                for name in ("rename", "link", "unlink", "fsync", "makedirs"):
                    patch.setattr(os, name, dies(getattr(os, name)))
                try:
                    export(lake)
                except Crash:
                    crashes += 1
                    if lake.exists and lake.state().streams:
                        assert_whole(lake)
                    continue
                break
    assert crashes > 40
    export(lake)
    assert_whole(lake)
    named = {file.path for file in lake.state().streams["S"].files}
    assert {str(path.relative_to(lake.path)) for path in Path(lake.path).glob("stream=*/**/*.parquet")} == named
    assert not list(Path(lake.folder).rglob("*.begun")) and not list(Path(lake.folder, "staging").glob("*"))


def test_files_of_others_stay(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    export(lake)
    other = tmp_path / "lake" / "stream=S" / "day=0" / "mine.parquet"
    other.write_bytes(b"x")
    export(lake)
    assert other.exists()


def test_a_newer_format_and_a_foreign_directory_are_refused(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    with pytest.raises(LakeError, match="is no lake"):
        lake.settings()
    export(lake)
    (tmp_path / "lake" / "_lake" / "lake.json").write_text('{"format": 2}')
    with pytest.raises(LakeError, match="format 2 is newer"):
        lake.settings()
    assert Lake(f"file://{tmp_path}/lake").path == lake.path


@given(st.sets(st.integers(1, 2**62), max_size=50))
def test_a_packed_set_is_the_same_again(members: set[int]) -> None:
    found = SeqSet()
    for one in members:
        found.add(one)
    assert unpack(pack(found)) == found


@given(
    st.lists(
        st.tuples(
            st.booleans(),
            st.integers(0, 20),
            st.dictionaries(
                st.sampled_from(["user", "purge"]), st.lists(st.tuples(st.integers(1, 50), st.integers(0, 5)))
            ),
        ),
        max_size=8,
    )
)
def test_a_state_is_what_its_manifests_say(steps: list[tuple[bool, int, dict[str, list[tuple[int, int]]]]]) -> None:
    state, at_once, hidden, rows, files = LakeState(), LakeState(), set[int](), 0, list[LakeFile]()
    manifests = []
    for number, (is_restarted, count, deletes) in enumerate(steps, start=1):
        ranges = {reason: [(first, first + more) for first, more in some] for reason, some in deletes.items()}
        new = [LakeFile(str(number), "S", count, 1, 1, 1, 0, 0)]
        one = StreamExport(
            "S", "00", 1, 1, number, count, None, "", deletes=ranges, unexplained=[], is_restarted=is_restarted
        )
        manifests.append(Manifest(number, "", "", "", [one], new))
        state.add(manifests[-1])
        if is_restarted:
            hidden, rows, files = set(), 0, []
        hidden |= {seq for some in ranges.values() for first, last in some for seq in range(first, last + 1)}
        rows, files = rows + count, files + new
    at_once.add(*manifests)
    assert at_once == state
    if steps:
        known = state.streams["S"]
        assert (set(unpack(known.hidden)), known.rows, known.files) == (hidden, rows, files)
        assert known.last == state.export == len(steps)
