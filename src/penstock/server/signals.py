"""Signals: which signals stop, reload or retire a running server or reopen its log, and how `--signal` sends them.

INT and TERM stop it gracefully, USR1 reopens the log file, USR2 begins lame duck mode, HUP reloads the configuration.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from penstock.errors import PenstockError

# By the words of `--signal`.
COMMANDS = {
    "stop": signal.SIGKILL,
    "quit": signal.SIGINT,
    "term": signal.SIGTERM,
    "reopen": signal.SIGUSR1,
    "reload": signal.SIGHUP,
    "ldm": signal.SIGUSR2,
}
# As Go names them in "Trapped … signal".
NAMES = {
    signal.SIGINT: "interrupt",
    signal.SIGTERM: "terminated",
    signal.SIGUSR1: "user defined signal 1",
    signal.SIGUSR2: "user defined signal 2",
    signal.SIGHUP: "hangup",
}
PROCESS_NAMES = ("penstock", "nats-server")


class SignalError(PenstockError):
    """A signal cannot be sent: the text says to which process, and why."""


def set_process_name(name: str) -> None:
    """Set the name by which `ps` and `pgrep` show this process, instead of Python's."""
    try:
        with open("/proc/self/comm", "w") as file:
            file.write(name[:15])
    except OSError:
        return  # a system without it: the name stays Python's


def send_signal(text: str, kill: Callable[[int, int], None] = os.kill) -> None:
    """`reload`, `stop=1234`, `ldm=/run/nats.pid`, `quit=12*`: to the one server that runs, or to those named."""
    command, _, target = text.partition("=")
    if "=" in target:
        raise SignalError(f"invalid signal parameters: [{' '.join(target.split('=')[1:])}]")
    target = _from_file(target)
    prefix = target.removesuffix("*")
    if prefix and not prefix.isdecimal():
        raise SignalError(f"invalid pid: {prefix}")
    if target.endswith("*") or not target:
        pids = [pid for pid in running_servers() if str(pid).startswith(prefix)]
    else:
        pids = [int(prefix)]
    if len(pids) > 1 and not target.endswith("*"):
        raise SignalError("\n".join(["multiple nats-server processes running:", *map(str, pids)]))
    if not pids:
        raise SignalError("no nats-server processes running")
    if command not in COMMANDS:
        raise SignalError(f'unknown signal "{command}"')
    failed = []
    for pid in pids:
        try:
            kill(pid, COMMANDS[command])
        except (OSError, OverflowError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            failed.append(f'signal "{command}" {pid}: {reason.lower()}')
    if failed:
        raise SignalError("\n".join(failed))


def _from_file(target: str) -> str:
    """A pid, or the content of a pid file."""
    try:
        with open(target) as file:
            return file.read(64).strip()
    except (OSError, ValueError):
        return target


def running_servers() -> list[int]:
    """The other server processes: they have a server's name and run this package."""
    found = []
    for entry in os.listdir("/proc") if os.path.isdir("/proc") else []:
        if not entry.isdecimal() or int(entry) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry}/comm") as file:
                name = file.read().strip()
            with open(f"/proc/{entry}/cmdline", "rb") as raw:
                line = raw.read()
        except OSError:
            continue  # it has ended, or is hidden from us
        if name in PROCESS_NAMES and b"penstock" in line:
            found.append(int(entry))
    return sorted(found)
