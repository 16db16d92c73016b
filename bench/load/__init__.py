"""The load generator: a C program, compiled on first use, driven by arguments, with JSON output; see `load.c`.

The executable goes to `build/bench/`, named after a hash of its sources: changed sources are compiled again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SOURCES = sorted(HERE.glob("*.c"))
HEADERS = sorted(HERE.glob("*.h"))
FOLDER = HERE.parent.parent / "build" / "bench"


def build() -> Path:
    """The executable, compiled if it does not exist yet."""
    told = hashlib.sha256(b"".join(path.read_bytes() for path in SOURCES + HEADERS))
    path = FOLDER / f"load-{told.hexdigest()[:12]}"
    if not path.exists():
        compiler = shutil.which("cc")
        if compiler is None:
            raise RuntimeError("the load generator needs a C compiler (cc): install gcc or clang")
        FOLDER.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}")  # concurrent builds must not see each other's partial file
        subprocess.run([compiler, "-O2", "-Wall", "-o", unfinished, *SOURCES], check=True)
        unfinished.replace(path)
    return path


def drive(mode: str, port: int, **wanted: str | int) -> dict[str, Any]:
    """Run `load MODE` against 127.0.0.1:`port` and return its answer; `last_seq=5` becomes `--last-seq 5`."""
    done = subprocess.run(_command(mode, port, wanted), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"load {mode} {wanted}: {done.stdout}{done.stderr.strip()}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


class Idle:
    """Idle connections, open while the block runs."""

    def __init__(self, port: int, connections: int, subscriptions_each: int) -> None:
        command = _command("idle", port, {"conns": connections, "subs": subscriptions_each})
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> dict[str, Any]:
        """Return once all of them are subscribed."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"load idle ended with {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __exit__(self, *_: object) -> None:
        self._process.communicate()  # closes its standard input, which ends it


def _command(mode: str, port: int, wanted: dict[str, str | int]) -> list[str]:
    words = [str(build()), mode, "--port", str(port)]
    for name, value in wanted.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    return words
