"""An executable `nats-server` that is this server, for suites that start one by that name from PATH."""

from __future__ import annotations

import os
import shlex
import sys

from penstock.errors import PenstockError

NAME = "nats-server"
# exec: the process that was started is the server, so its pid is the one to signal.
TEXT = """#!/bin/sh
# Written by `penstock serve --install-shim`: Penstock's server under the name of the one that it stands in for.
{environment}exec {python} -P -c '{code}' "$@"
"""
# Until the server listens to signals itself, an interrupt ends the process: as KeyboardInterrupt it could come up in a
# callback of the import system, which drops it, and the server would start though it was told to stop.
CODE = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); "
    f'from penstock.cli.serve import main; sys.exit(main(sys.argv[1:], "{NAME}"))'
)


def install_shim(folder: str) -> str:
    """Write it into `folder`, which is made if need be; its path is given back."""
    path = os.path.join(folder, NAME)
    draft = f"{path}.{os.getpid()}.tmp"
    # Where the package is found by PYTHONPATH only, the shim must say so: it may be started from anywhere.
    places = [os.path.abspath(place) for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    environment = f"export PYTHONPATH={shlex.quote(os.pathsep.join(places))}\n" if places else ""
    text = TEXT.format(environment=environment, python=shlex.quote(sys.executable), code=CODE)
    try:
        os.makedirs(folder, exist_ok=True)
        with open(draft, "w") as file:
            file.write(text)
        os.chmod(draft, 0o755)
        os.rename(draft, path)
    except OSError as error:
        raise PenstockError(f"cannot write {path}: {error.strerror or error}") from error
    return path
