"""Command line: what may be shown of how this process was started.

Passwords and tokens on it stay out of files (LOCK), pages (/debug/vars), errors, and, as far as the system lets us, the
list of processes. Of a program that is not ours only its name is shown: we do not know which of its words are secret.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence

REDACTED = "[REDACTED]"
SHOWN_SIZE_MAX = 200
_SECRET_FLAG = re.compile("-{1,2}(user|pass|auth)")  # as nats-server has it
_USER_INFO = re.compile(r"://(.*)@", re.DOTALL)
_shown: str | None = None  # this process's, once one of our commands has noted it


def has_secrets(arguments: Sequence[str]) -> bool:
    """Whether a flag with a secret value is among them."""
    return any(_SECRET_FLAG.fullmatch(argument.partition("=")[0]) for argument in arguments)


def redact(arguments: Sequence[str], cover: Callable[[str], str] = lambda text: REDACTED) -> list[str]:
    """The arguments with the values of secret flags covered, and in URLs what stands before an @."""
    shown: list[str] = []
    for before, argument in zip(["", *arguments], arguments, strict=False):
        flag, separator, value = argument.partition("=")
        if _SECRET_FLAG.fullmatch(before):
            shown.append(cover(argument))
        elif separator and _SECRET_FLAG.fullmatch(flag):
            shown.append(f"{flag}={cover(value)}")
        else:
            shown.append(_USER_INFO.sub(lambda found: f"://{cover(found[1])}@", argument))
    return shown


def note_command(program: str, arguments: Sequence[str]) -> None:
    """This process is one of our own commands: its arguments may be shown, without the secrets."""
    global _shown
    _shown = " ".join([program, *redact(arguments)])


def shown_arguments() -> list[str]:
    """The command line as it may be shown, word by word."""
    return redact(sys.argv) if _shown is not None else sys.argv[:1]


def shown_command() -> str:
    """How this process was started, in one line for LOCK."""
    return (_shown or (sys.argv[0] if sys.argv else "") or sys.executable)[:SHOWN_SIZE_MAX]


def hide_secrets() -> None:
    """Write over the values of secret flags where the system reads the command line from, and in `sys`.

    OSError where the system does not let us: then `ps` shows them to every user of the machine.
    """
    if not has_secrets(sys.orig_argv):
        return
    given = b"".join(os.fsencode(word) + b"\0" for word in sys.orig_argv)
    covered = redact(sys.orig_argv, lambda text: "x" * len(os.fsencode(text)))
    sys.argv[1:] = redact(sys.argv)[1:]
    sys.orig_argv[:] = redact(sys.orig_argv)
    start, stop = _argument_area()
    fd = os.open("/proc/self/mem", os.O_RDWR | os.O_CLOEXEC)
    try:
        if os.pread(fd, stop - start, start) != given:
            raise OSError("the command line does not stand where the system says")
        os.pwrite(fd, b"".join(os.fsencode(word) + b"\0" for word in covered), start)
    finally:
        os.close(fd)


def _argument_area() -> tuple[int, int]:
    """Where in our memory the arguments stand: fields 48 and 49 of proc(5)'s stat."""
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    return int(fields[45]), int(fields[46])
