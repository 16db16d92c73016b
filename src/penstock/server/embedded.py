"""A server inside a Python process: `penstock.Server`, for programs and for tests.

with penstock.Server() as server:                  # any port, a temporary store, its own thread
    nc = await nats.connect(server.url)

async with penstock.Server(store_dir="data") as server: ...     # on the caller's loop

with penstock.open("data") as db, penstock.Server(database=db) as server: ...     # the same streams, both ways
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from penstock.server.log.log import Log, open_log
from penstock.server.options import Options
from penstock.server.server import Server, StartError

if TYPE_CHECKING:
    from penstock.db.database import Database

START_S_MAX = 60.0


class EmbeddedServer:
    """A server that runs as long as its `with` block: ready when the block begins, stopped cleanly when it ends.

    Keyword arguments are the options of `penstock serve` (`server_name`, `username`, `password`, `http_port`,
    `max_payload` …); `config` is a configuration file, which they override. By default it listens on 127.0.0.1, on any
    free port. `store_dir` None: a temporary directory that is removed at the end.
    """

    def __init__(
        self,
        *,
        host: str | None = None,
        port: int | None = None,
        jetstream: bool = True,
        store_dir: str | Path | None = None,
        durability: str = "disk",
        database: Database | None = None,
        config: str | Path | None = None,
        log: bool = False,
        **options: Any,
    ) -> None:
        self.options = _options(host, port, config, options)
        self.options.no_log = not log
        settings = self.options.jetstream
        settings.enabled = settings.enabled or jetstream or database is not None
        if durability not in ("disk", "os", "lazy"):
            raise ValueError(f"durability {durability!r}: one of disk, os, lazy")
        if config is None or durability != "disk":
            settings.durability = durability  # type: ignore[assignment]
        if store_dir is not None:
            settings.store_dir = str(store_dir)
        self._database = database
        self._temporary = ""
        self._server: Server | None = None
        self._log: Log | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._may_end: asyncio.Event  # of its loop: the thread may end
        self._failure: BaseException | None = None

    # Facts.

    @property
    def server(self) -> Server:
        """The server itself; its methods belong to its loop's thread."""
        if self._server is None:
            raise RuntimeError("the server is not running: use it as `with penstock.Server() as server`")
        return self._server

    @property
    def port(self) -> int:
        return self.server.port

    @property
    def http_port(self) -> int:
        """The monitoring port; 0 if it is off (`http_port=-1` takes any free one)."""
        return self.server.http_port

    @property
    def url(self) -> str:
        """Where clients connect."""
        host = self.options.host
        shown = "127.0.0.1" if host in ("", "0.0.0.0") else f"[{host}]" if ":" in host else host
        return f"nats://{shown}:{self.port}"

    @property
    def store_dir(self) -> str:
        """The store's directory. `penstock.open` can read it while the server runs, and write it afterwards."""
        if self._database is not None:
            return self._database.path
        return self.options.jetstream.store_dir

    # On the caller's loop.

    async def __aenter__(self) -> EmbeddedServer:
        self._check_idle()
        self._prepare()
        try:
            await self._start()
        except BaseException:
            self._tidy()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.server.stop()
        finally:
            self._tidy()

    async def _start(self) -> None:
        self._log = open_log(self.options)
        self._server = Server(self.options, self._log, self._database)
        try:
            await self._server.start()
        except BaseException:
            self._server = None
            raise

    # In a thread of its own.

    def __enter__(self) -> EmbeddedServer:
        self._check_idle()
        self._prepare()
        is_ready = threading.Event()
        self._failure = None
        self._thread = threading.Thread(target=self._run, args=(is_ready,), name="penstock-server", daemon=True)
        self._thread.start()
        if not is_ready.wait(START_S_MAX):
            raise StartError(f"the server was not ready after {START_S_MAX:g} s")
        if self._failure is not None:
            self._thread.join()
            self._tidy()
            raise self._failure
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        loop, thread = self._loop, self._thread
        assert loop is not None and thread is not None
        try:
            asyncio.run_coroutine_threadsafe(self._end(), loop).result()
            thread.join()
        finally:
            self._tidy()

    def _run(self, is_ready: threading.Event) -> None:
        import uvloop

        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                self._loop = runner.get_loop()
                runner.run(self._serve(is_ready))
        except BaseException as error:  # noqa: BLE001 - raised in the thread that started the server
            self._failure = error
            is_ready.set()

    async def _serve(self, is_ready: threading.Event) -> None:
        await self._start()
        self._may_end = asyncio.Event()
        is_ready.set()
        await self._may_end.wait()  # a server that stopped by itself, as a lame duck does, waits here, too

    async def _end(self) -> None:
        try:
            await self.server.stop()
        finally:
            self._may_end.set()

    def _check_idle(self) -> None:
        if self._server is not None:
            raise RuntimeError("the server is running already")

    def _prepare(self) -> None:
        settings = self.options.jetstream
        if settings.enabled and not settings.store_dir and self._database is None:
            settings.store_dir = self._temporary = tempfile.mkdtemp(prefix="penstock-")

    def _tidy(self) -> None:
        self._server = self._loop = self._thread = None
        if self._log is not None:
            self._log.close()
            self._log = None
        if self._temporary:
            self.options.jetstream.store_dir = ""
            shutil.rmtree(self._temporary)
            self._temporary = ""


def _options(host: str | None, port: int | None, config: str | Path | None, more: dict[str, Any]) -> Options:
    """Arguments override the file; the default is 127.0.0.1 and any free port."""
    if config is None:
        options = Options(host=host or "127.0.0.1", port=-1 if port is None else port)
    else:
        from penstock.server.conf.options_file import load_options
        from penstock.server.conf.validation import complete_options

        options = load_options(str(config))[0]
        options.host = host or options.host or "127.0.0.1"
        options.port = (options.port or -1) if port is None else port
        options = complete_options(options)
    for name, value in more.items():
        if name not in Options.__dataclass_fields__:
            raise TypeError(f"a server has no option {name!r}; those of penstock.server.options.Options are taken")
        _check_type(name, value, getattr(options, name))
        setattr(options, name, value)
    return options


def _check_type(name: str, value: object, known: object) -> None:
    """Refuse a value of the wrong type now, not when the server first uses it."""
    wanted = type(known)
    if wanted in (bool, int, float, str) and not isinstance(value, (int, float) if wanted is float else wanted):
        shown = type(value).__name__ if name in ("password", "authorization") else repr(value)
        raise TypeError(f"option {name!r} takes {wanted.__name__}, not {shown}")
