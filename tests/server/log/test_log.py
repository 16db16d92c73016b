"""Log lines: their form, where they go, and that nobody has to read them."""

from __future__ import annotations

import fcntl
import logging
import os
import pty
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.server.log import lifecycle
from penstock.server.log.bridge import bridge_logging, unbridge_logging
from penstock.server.log.log import Log, open_log
from penstock.server.log.sink import FdSink, FileSink, LogError, SyslogSink
from penstock.server.options import JetStreamOptions, Options, TlsOptions

LINE = re.compile(r"\[(\d+)\] (\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6}) \[([A-Z]{3})\] (.*)")
PIPE_SIZE = 65536


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)
    os.close(writer)


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_a_line_has_the_reference_s_form(tmp_path: Path) -> None:
    log = open_log(Options(log_file=str(tmp_path / "l"), debug=True, trace=True))
    for say in (log.notice, log.warn, log.error, log.fatal, log.debug, log.trace):
        say("some text")
    log.close()
    found = [LINE.fullmatch(line) for line in lines_of(tmp_path / "l")]
    assert [match[3] for match in found if match] == ["INF", "WRN", "ERR", "FTL", "DBG", "TRC"]
    assert all(match and match[1] == str(os.getpid()) and match[4] == "some text" for match in found)


def test_debug_and_trace_are_told_only_when_asked_for(tmp_path: Path) -> None:
    log = open_log(Options(log_file=str(tmp_path / "l")))
    log.debug("no")
    log.trace("no")
    log.configure(Options(debug=True))
    log.debug("yes")
    log.close()
    assert [line.rpartition(" ")[2] for line in lines_of(tmp_path / "l")] == ["yes"]


def test_the_time_may_be_left_out_or_be_utc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")  # fourteen hours ahead
    time.tzset()
    path = tmp_path / "l"
    for options in (Options(logtime=False), Options(logtime_utc=True), Options()):
        options.log_file = str(path)
        log = open_log(options)
        log.notice("x")
        log.close()
    monkeypatch.undo()
    time.tzset()
    bare, utc, local = lines_of(path)
    assert bare == f"[{os.getpid()}] [INF] x"
    hours = [int(line.split()[2][:2]) for line in (utc, local)]
    assert (hours[1] - hours[0]) % 24 == 14


def test_a_text_cannot_make_a_line_of_its_own_nor_colours(tmp_path: Path) -> None:
    log = open_log(Options(log_file=str(tmp_path / "l")))
    log.error("one\n[1] 2026/01/01 [INF] two\r\x1b[31m\ud800é")
    log.close()
    (line,) = lines_of(tmp_path / "l")
    assert line.endswith("one\\n[1] 2026/01/01 [INF] two\\r\\x1b[31m?é")


def test_a_full_pipe_never_blocks_and_what_was_lost_is_told(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    log = Log(Options(logtime=False), FdSink(writer))
    for n in range(5000):
        log.notice(f"line {n} {'x' * 100}")
    assert log.dropped > 0
    os.set_blocking(reader, False)
    first = os.read(reader, 10 * PIPE_SIZE).decode()
    assert first.endswith("\n"), "what was written is whole lines"
    written, dropped = first.count("\n"), log.dropped
    assert written + dropped == 5000
    log.notice("after")
    told = os.read(reader, PIPE_SIZE).decode().splitlines()
    assert told[0].endswith(f"[WRN] {dropped} log lines were dropped: there was no room for them")
    assert told[1].endswith("[INF] after")
    assert log.dropped == 0


def test_the_pipe_of_others_stays_as_it_was(pipe: tuple[int, int]) -> None:
    """The flag that makes a write return at once belongs to all who share the pipe: ours is another description."""
    _, writer = pipe
    sink = FdSink(writer)
    sink.write("INF", b"x\n")
    assert not fcntl.fcntl(writer, fcntl.F_GETFL) & os.O_NONBLOCK
    sink.close()
    os.write(writer, b"still open\n")


def test_a_line_longer_than_a_pipe_is_not_torn_by_the_next(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    log = Log(Options(logtime=False), FdSink(writer))
    log.notice("a" * (PIPE_SIZE + 1000))
    log.notice("lost")
    os.set_blocking(reader, False)
    text = os.read(reader, 10 * PIPE_SIZE)
    log.notice("b")
    text += os.read(reader, PIPE_SIZE)
    lines = text.decode().splitlines()
    assert [line.partition("] ")[2][:8] for line in lines] == ["[INF] aa", "[WRN] 1 ", "[INF] b"]
    assert lines[0].count("a") == PIPE_SIZE + 1000


def test_nobody_at_the_other_end_is_no_reason_to_fail() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    log = Log(Options(), FdSink(writer))
    log.notice("x")
    assert log.dropped == 1
    os.close(writer)


def test_a_journal_s_socket_is_written_without_waiting() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        log = Log(Options(logtime=False), FdSink(ours.fileno()))
        for _ in range(20_000):
            log.notice("x" * 100)
        assert log.dropped > 0
        assert theirs.recv(50).startswith(f"[{os.getpid()}] [INF] xxx".encode())
        log.close()


def test_labels_have_colours_on_a_terminal_only(pipe: tuple[int, int]) -> None:
    master, slave = pty.openpty()
    log = Log(Options(logtime=False), FdSink(slave))
    log.warn("x")
    assert os.read(master, 100) == f"[{os.getpid()}] [\x1b[0;93mWRN\x1b[0m] x\r\n".encode()
    log.close()
    os.close(master)
    os.close(slave)
    log = Log(Options(logtime=False), FdSink(pipe[1]))
    log.warn("x")
    assert os.read(pipe[0], 100) == f"[{os.getpid()}] [WRN] x\n".encode()


def test_a_log_file_past_its_size_is_set_aside_and_old_ones_go(tmp_path: Path) -> None:
    path = tmp_path / "l"
    log = open_log(Options(log_file=str(path), log_size_limit=300, log_max_num=3))
    for n in range(60):
        log.notice(f"line {n}")
    log.close()
    backups = sorted(other for other in tmp_path.iterdir() if other != path)
    assert len(backups) == 2, "three files with the one that is written"
    assert all(re.fullmatch(r"l\.\d{4}(\.\d\d){5}\.\d{9}", other.name) for other in backups)
    assert all(other.stat().st_size >= 300 for other in backups)
    head = lines_of(backups[-1])[0]
    assert re.fullmatch(r'\[\d+\] \S+ \S+ \[INF\] Rotated log, backup saved as ".*/l\.[\d.]+"', head), head
    assert any(line.endswith("line 59") for file in (path, backups[-1]) for line in lines_of(file))


def test_a_log_file_that_was_moved_away_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "l"
    options = Options(log_file=str(path))
    log = open_log(options)
    log.notice("one")
    path.rename(tmp_path / "old")
    log.notice("two")
    log.reopen(options)
    log.notice("three")
    log.close()
    assert [line.rpartition("] ")[2] for line in lines_of(tmp_path / "old")] == ["one", "two"]
    assert [line.rpartition("] ")[2] for line in lines_of(path)] == ["File log re-opened", "three"]


def test_a_log_that_is_no_file_is_not_reopened(pipe: tuple[int, int]) -> None:
    log = Log(Options(logtime=False), FdSink(pipe[1]))
    log.reopen(Options())
    assert os.read(pipe[0], 100).endswith(b"File log re-open ignored, not a file logger\n")


def test_a_log_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"open .*/no/l: no such file or directory"):
        open_log(Options(log_file=str(tmp_path / "no" / "l")))


def test_a_full_disk_does_not_stop_the_server() -> None:
    sink = FileSink("/dev/full")
    log = Log(Options(), sink)
    log.notice("x")
    assert log.dropped == 1
    log.close()


def test_syslog_elsewhere_gets_datagrams_with_severities() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(5)
        options = Options(remote_syslog=f"udp://127.0.0.1:{receiver.getsockname()[1]}")
        log = open_log(options)
        log.notice("hello")
        log.error("no")
        assert re.fullmatch(rb"<5>\S+T\S+ \S+ nats-server\[\d+\]: hello\n", receiver.recv(200))
        assert receiver.recv(200).startswith(b"<3>")
        log.close()


def test_a_syslog_that_is_none_is_told() -> None:
    with pytest.raises(LogError, match="error invalid network type"):
        SyslogSink("http://x:1")
    with pytest.raises(LogError, match="error connecting to syslog"):
        SyslogSink("tcp://127.0.0.1:1")


def test_the_lines_that_tools_wait_for_are_the_reference_s(tmp_path: Path) -> None:
    path = tmp_path / "l"
    options = Options(log_file=str(path), config_file="s.conf", config_digest="sha256:x", warnings=["careful"])
    options.jetstream = JetStreamOptions(enabled=True, domain="hub")
    options.tls = TlsOptions()
    log = open_log(options)
    lifecycle.starting(log, options, "name", "NAAA", "0.1.0")
    lifecycle.http_monitor(log, "0.0.0.0", 8222)
    lifecycle.starting_jetstream(log)
    lifecycle.jetstream(log, options, "/data/jetstream", 3 * 1024**3, 1536)
    lifecycle.websocket(log, "::", 80, is_tls=False)
    lifecycle.listening(log, options, "0.0.0.0", 4222)
    lifecycle.ready(log)
    lifecycle.trapped(log, "interrupt")
    lifecycle.stopping(log)
    lifecycle.stopping_jetstream(log)
    lifecycle.jetstream_stopped(log)
    lifecycle.stopped(log)
    log.close()
    told = [line.split(" ", 3)[3] for line in lines_of(path)]
    for wanted in (
        "[INF] Starting nats-server",
        "[INF]   Version:  2.15.1",
        "[INF]   Name:     name",
        "[INF]   ID:       NAAA",
        "[WRN] careful",
        "[INF] Using configuration file: s.conf (sha256:x)",
        "[INF] Starting http monitor on 0.0.0.0:8222",
        "[INF] Starting JetStream",
        "[INF]   Max Memory:      3.00 GB",
        "[INF]   Max Storage:     1.50 KB",
        '[INF]   Store Directory: "/data/jetstream"',
        "[INF]   Domain:          hub",
        "[INF] Listening for websocket clients on ws://[::]:80",
        "[INF] Listening for client connections on 0.0.0.0:4222",
        "[INF] TLS required for client connections",
        "[INF] Server is ready",
        '[INF] Trapped "interrupt" signal',
        "[INF] Initiating Shutdown...",
        "[INF] Initiating JetStream Shutdown...",
        "[INF] JetStream Shutdown",
        "[INF] Server Exiting..",
    ):
        assert wanted in told


def test_what_python_s_logging_is_told_becomes_a_line(tmp_path: Path) -> None:
    log = open_log(Options(log_file=str(tmp_path / "l"), logtime=False))
    before = logging.getLogger().handlers[:]
    bridge = bridge_logging(log)
    try:
        logging.getLogger("penstock.store").warning("%s is damaged", "000001.blk")
        logging.getLogger("other").info("not wanted")
        try:
            raise KeyError("x")
        except KeyError:
            logging.getLogger("asyncio").exception("Exception in callback\nhandle: …")
    finally:
        unbridge_logging(bridge)
        logging.getLogger().handlers[:] = before
    log.close()
    pid = os.getpid()
    assert lines_of(tmp_path / "l") == [
        f"[{pid}] [WRN] 000001.blk is damaged",
        f"[{pid}] [ERR] Exception in callback: KeyError: 'x'",
    ]
