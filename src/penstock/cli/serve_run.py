"""The life of a server process: the event loop, the signals, the pid and ports files, the exit code."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from penstock.base.malloc import keep_freed
from penstock.errors import PenstockError
from penstock.server.discovery_files import FileError, Listener, write_pid, write_ports
from penstock.server.log import lifecycle
from penstock.server.log.bridge import bridge_logging, unbridge_logging
from penstock.server.log.log import Log, LogError, open_log
from penstock.server.options import Options
from penstock.server.reload import NO_FILE, Change, ReloadError, apply_to_log, compare_options
from penstock.server.signals import NAMES, set_process_name

OK, FAILED = 0, 1
SWITCH_S = 0.0005  # a thread that opens a stream yields the GIL to the loop after so long; Python's default is 5 ms
THREADS_MAX = 8  # beside the loop, for work that waits for the disk or a lock
Reread = Callable[[], tuple[Options, list[str]]]


class Running(Protocol):
    """The part of the server that this module uses."""

    port: int
    ws_port: int
    reread: Callable[[], None] | None

    @property
    def http_port(self) -> int: ...

    @property
    def https_port(self) -> int: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def wait(self) -> None: ...

    def reload(self, options: Options, changes: list[Change]) -> None: ...

    def lame_duck(self) -> None: ...


def make_server(options: Options, log: Log) -> Running:
    from penstock.server.server import Server

    return Server(options, log)


def run(
    options: Options,
    reread: Reread,
    name: str = "penstock",
    make: Callable[[Options, Log], Running] = make_server,
) -> int:
    """Run a server until it is told to stop, and return the exit code."""
    import uvloop

    _fill_standard_files()
    try:
        log = open_log(options)
    except LogError as error:
        os.write(2, f"nats-server: {error}\n".encode("utf-8", "replace"))
        return FAILED
    set_process_name(name)
    sys.setswitchinterval(SWITCH_S)
    keep_freed()
    bridge = bridge_logging(log)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_Run(options, reread, log, make).run())
    finally:
        unbridge_logging(bridge)
        log.close()


def _fill_standard_files() -> None:
    """Open closed standard streams: else the next opened file would get such a number, and the output written to it."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free descriptor: this one


def _start_threads() -> ThreadPoolExecutor:
    """An executor with all its threads started: by default it adds one whenever none is idle, and keeps them."""
    count = min(THREADS_MAX, (os.cpu_count() or 1) + 4)  # 4 more than processors, as in Python's default
    executor = ThreadPoolExecutor(count, thread_name_prefix="penstock-worker")
    together = threading.Barrier(count)
    try:
        for _ in range(count):
            executor.submit(together.wait)
    except RuntimeError:  # the system allows no more threads: use those that started
        together.abort()
    return executor


class _Run:
    """One server's life. Always true: `stopping` is set once, by the first reason to stop."""

    def __init__(self, options: Options, reread: Reread, log: Log, make: Callable[[Options, Log], Running]) -> None:
        self.options = options
        self.reread = reread
        self.log = log
        self.make = make
        self.stopping = asyncio.Event()
        self.is_started = False
        self.is_lame_duck = False
        self.ports_file = ""

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(_start_threads())
        for number in NAMES:
            loop.add_signal_handler(number, self._trapped, number)
        try:
            self.server = self.make(self.options, self.log)
            self.server.reread = self._reread
            if self.options.pid_file:
                write_pid(self.options.pid_file)
            try:
                if await self._first_of(self._start()):
                    _configure_garbage_collector()
                    await self._first_of(self.server.wait())
            finally:
                await self._end()
            return OK
        except OSError as error:
            self.log.fatal(_why(error))
            return FAILED
        except PenstockError as error:
            self.log.fatal(str(error))
            return FAILED

    async def _start(self) -> None:
        """Write the ports file before any client is answered: the loop does not run in between."""
        await self.server.start()
        self.is_started = True
        self._write_ports()

    async def _first_of(self, work: Coroutine[Any, Any, None]) -> bool:
        """Run `work` until it ends or a signal arrives, which cancels it; whether it ended by itself."""
        task = asyncio.ensure_future(work)
        stop = asyncio.ensure_future(self.stopping.wait())
        await asyncio.wait((task, stop), return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))
            return False
        task.result()
        return True

    async def _end(self) -> None:
        try:
            if self.is_started:
                await self.server.stop()
        finally:
            if self.ports_file:
                self._remove_ports()

    # files

    def _write_ports(self) -> None:
        if not self.options.ports_file_dir:
            return
        try:
            self.ports_file = write_ports(self.options.ports_file_dir, self._listeners())
        except FileError as error:
            self.log.error(str(error))

    def _remove_ports(self) -> None:
        try:
            os.remove(self.ports_file)
        except OSError as error:
            self.log.error(f"Error cleaning up ports file {self.ports_file}: {error.strerror}")
        self.ports_file = ""

    def _listeners(self) -> list[Listener]:
        options, server = self.options, self.server
        found = [Listener("nats", "tls" if options.tls is not None else "nats", options.host, server.port)]
        if server.http_port or server.https_port:
            scheme = "http" if server.http_port else "https"
            port = server.http_port or server.https_port
            found.append(Listener("monitoring", scheme, options.http_host, port))
        if server.ws_port:
            scheme = "wss" if options.websocket.tls is not None else "ws"
            found.append(Listener("websocket", scheme, options.websocket.host, server.ws_port))
        return found

    # signals

    def _trapped(self, number: signal.Signals) -> None:
        lifecycle.trapped(self.log, NAMES[number])
        if number == signal.SIGINT or (number == signal.SIGTERM and not self.is_lame_duck):
            self.stopping.set()
        elif number == signal.SIGUSR1:
            self._reopen()
        elif not self.is_started:
            return  # there is no server yet that could enter lame duck mode or reload
        elif number == signal.SIGUSR2:
            self.is_lame_duck = True
            self.server.lame_duck()
        elif number == signal.SIGHUP:
            self._reload()

    def _reopen(self) -> None:
        try:
            self.log.reopen(self.options)
        except LogError as error:
            self.log.error(str(error))

    def _reload(self) -> None:
        try:
            self._reread()
        except PenstockError as error:
            self.log.error(f"Failed to reload server configuration: {error}")

    def _reread(self) -> None:
        """Read the configuration again and apply the changes; an error says why that is impossible."""
        if not self.options.config_file:
            raise ReloadError(NO_FILE)
        options, warnings = self.reread()
        changes = compare_options(self.options, options)
        apply_to_log(self.log, options, changes)
        self.server.reload(options, changes)
        self.options = options
        for warning in warnings:
            self.log.warn(warning)
        for change in changes:
            self.log.notice(change.text)
            if change.name == "pid_file" and options.pid_file:
                self._write_pid()
            elif change.name == "ports_file_dir":
                self._move_ports()
        self.log.notice(f"Reloaded server configuration ({options.config_digest})")

    def _write_pid(self) -> None:
        try:
            write_pid(self.options.pid_file)
        except FileError as error:
            self.log.error(str(error))

    def _move_ports(self) -> None:
        if self.ports_file:
            self._remove_ports()
        self._write_ports()


def _configure_garbage_collector() -> None:
    """Freeze the objects made at start and collect garbage rarely: with 10,000 connections it blocks the loop 20 ms."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _why(error: OSError) -> str:
    """A system error in one line, with the file that it concerns."""
    place = f"{error.filename}: " if error.filename else ""
    return f"{place}{error.strerror or error}"
