"""Where no store directory is given: a place that everybody knows, and which nobody else may decide about."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SERVE = [sys.executable, "-m", "penstock", "serve", "-js", "-a", "127.0.0.1", "-p", "-1"]


def start(place: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(SERVE, env={**os.environ, "TMPDIR": str(place)}, stderr=subprocess.PIPE, text=True)


def test_the_folders_are_ours_alone(tmp_path: Path) -> None:
    with start(tmp_path) as server:
        assert server.stderr is not None
        assert any("Server is ready" in line for line in server.stderr)
        server.terminate()
        server.stderr.read()
    assert {(tmp_path / path).stat().st_mode & 0o777 for path in ("nats", "nats/penstock")} == {0o700}


@pytest.mark.parametrize("what", ["writable", "writable above", "foreign", "a link"])
def test_what_somebody_else_has_made_there_is_refused(tmp_path: Path, what: str) -> None:
    """Whoever owns the directory could read and exchange all that is stored, and use the control socket."""
    place = tmp_path / "nats" / "penstock"
    place.parent.mkdir()
    if what == "a link":
        (tmp_path / "other").mkdir()
        place.symlink_to(tmp_path / "other")
    else:
        place.mkdir()
    if what == "foreign":
        if os.geteuid():
            pytest.skip("only root can give a directory away")
        os.chown(place, 1234, 1234)
    elif what.startswith("writable"):
        (place if what == "writable" else place.parent).chmod(0o777)
    with start(tmp_path) as server:
        assert server.stderr is not None
        said = ""
        for line in server.stderr:
            said += line
            if "Server is ready" in line:
                server.kill()
    assert server.returncode == 1, said
    assert ("choose a place with --store_dir" in said) == (what != "a link"), said
