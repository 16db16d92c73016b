"""An executable `nats-server` that runs this server, for test suites that start `nats-server` from PATH."""

from __future__ import annotations

import os
import shlex
import sys

from penstock.errors import PenstockError

NAME = "nats-server"
# exec: the started process becomes the server, so signals go to its pid.
TEXT = """#!/bin/sh
# Written by `penstock serve --install-shim`: Penstock's server under the name of the one that it stands in for.
{environment}exec {python} -P -c '{code}' "$@"
"""
# Until the server handles signals itself, SIGINT must end the process: a KeyboardInterrupt could be raised in a
# callback of the import system, which swallows it, and the server would start although it was told to stop.
CODE = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); "
    f'from penstock.cli.serve import main; sys.exit(main(sys.argv[1:], "{NAME}"))'
)


def install_shim(folder: str) -> str:
    """Write the executable into `folder`, which is created if needed, and return its path."""
    path = os.path.join(folder, NAME)
    draft = f"{path}.{os.getpid()}.tmp"
    # If the package is found by PYTHONPATH only, the script must set it: it may be started from anywhere.
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
