"""`penstock serve`: flags, files, signals and exit codes of a server, as nats-server has them."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.flags import Flag, parse_flags
from penstock.cli.nats_server_wrapper import CODE, install_shim
from penstock.cli.serve import CommandLine, main
from penstock.cli.serve_run import run
from penstock.errors import PenstockError
from penstock.server.log.log import Log
from penstock.server.options import Options
from penstock.server.reload import Change
from penstock.server.signals import SignalError, send_signal

READY_SECONDS = 20.0  # generous: other tests run beside this one


# ----------------------------------------------------------------------------------------------------- the command line


@pytest.mark.parametrize("args", [["-p", "5"], ["-p=5"], ["--p", "5"], ["--port", "5"], ["-port=5"], ["-p", "0x5"]])
def test_flags_are_written_as_go_takes_them(args: list[str]) -> None:
    assert CommandLine([*args, "-js"]).options()[0].port == 5


def test_a_boolean_takes_its_value_after_an_equals_sign_only() -> None:
    line = CommandLine(["-js=false", "-D", "-T=0", "-V", "x", "-p", "1"])
    assert line.rest == ["x", "-p", "1"], "the first that is no flag ends them"
    options = line.options()[0]
    assert (options.jetstream.enabled, options.debug, options.logtime, options.trace) == (False, True, False, True)
    assert options.port == 4222


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["-zzz"], "flag provided but not defined: -zzz"),
        (["-p", "abc"], 'invalid value "abc" for flag -p: parse error'),
        (["-p"], "flag needs an argument: -p"),
        (["-js=maybe"], 'invalid boolean value "maybe" for -js: parse error'),
        (["---p", "1"], "bad flag syntax: ---p"),
        (["-p", "9" * 30], "value out of range"),
    ],
)
def test_a_mistyped_flag_is_told_in_go_s_words(args: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(args) == 2
    assert told in capsys.readouterr().err


def test_dashes_alone_end_the_flags() -> None:
    seen: list[Any] = []
    assert parse_flags(["-a", "1", "--", "-a", "2"], [Flag("a", "int", seen.append)]) == ["-a", "2"]
    assert seen == [1]
    assert parse_flags(["-", "x"], []) == ["-", "x"]


def test_every_flag_of_the_reference_is_known() -> None:
    args = """-a h -addr h -net h -p 1 -port 1 -n s -name s -server_name s -P f -pid f -m 1 -http_port 1 -c f -config f
        -ms 1 -https_port 1 -client_advertise a:1 -ports_file_dir d -l f -log f -T -logtime -logtime_utc -s -syslog
        -r u -remote_syslog u -D -debug -V -trace -VV -DV -DVV -log_size_limit 1 -max_traced_msg_len 1 -js -jetstream
        -sd d -store_dir d -user u -pass p -auth t -tls -tlscert f -tlskey f -tlsverify -tlscacert f -routes r
        -cluster u -cluster_name n -no_advertise -cluster_advertise a -connect_retries 1 -cluster_listen u -profile 1
        -t -sl reload -signal reload -h -help -v -version -help_tls"""
    assert CommandLine(args.split()).rest == []


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "s.conf").write_text("port: 1\ndebug: true\nserver_name: file\njetstream { store_dir: a }\n")
    args = ["-c", str(tmp_path / "s.conf"), "-p", "2", "-D=false", "-sd", "b", "--durability", "os", "-DVV=true"]
    options = CommandLine(args).options()[0]
    assert (options.port, options.server_name, options.jetstream.store_dir) == (2, "file", "b")
    assert options.jetstream.enabled and options.jetstream.durability == "os"
    assert options.debug and options.trace and options.trace_verbose


def test_flags_of_a_cluster_are_named_once_with_the_file_s(tmp_path: Path) -> None:
    (tmp_path / "s.conf").write_text("mqtt { port: 1 }\ncluster { port: 2 }\n")
    args = ["-c", str(tmp_path / "s.conf"), "--cluster", "nats://0.0.0.0:6222", "--routes", "nats://x:1"]
    assert CommandLine(args).options()[0].warnings == ["Not supported yet, the server runs without: cluster, mqtt"]


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["foo"], 'unrecognized command: "foo"'),
        (["-t"], "must specify [-c, --config] option to check configuration file syntax"),
        (["-c", "/nope.conf"], "open /nope.conf: no such file or directory"),
        (["--tls"], "TLS Server certificate must be present and valid"),
        (["--tlscert", "x"], "TLS Server private key must be present and valid"),
        (["--routes", "nats://x:1"], "solicited routes require cluster capabilities, e.g. --cluster"),
        (["--signal", "reload=999999999"], 'signal "reload" 999999999: no such process'),
        (["--signal", "reload=a=b"], "invalid signal parameters: [b]"),
        (["--signal", "reload=nope"], "invalid pid: nope"),
        (["-p", "70000"], "address 70000: invalid port"),
        (["--durability", "no"], "one of disk, os, lazy"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_an_exit_code(
    args: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(args) == 1
    text = capsys.readouterr().err
    assert text.startswith("nats-server: ") and told in text and text.count("\n") == 1


def test_a_file_that_lets_plain_clients_in_does_so_with_the_flags_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flags' TLS once forgot the file's allow_non_tls, and a plain client was turned away."""
    monkeypatch.setattr("penstock.server.conf.tls.why_unusable", lambda tls: "")
    (tmp_path / "s.conf").write_text("allow_non_tls: true\n")
    flags = ["--tls", "--tlscert", "c.pem", "--tlskey", "k.pem"]
    for args, is_allowed in ((["-c", str(tmp_path / "s.conf"), *flags], True), (flags, False)):
        tls = CommandLine(args).options()[0].tls
        assert tls is not None and tls.allow_non_tls is is_allowed


@pytest.mark.parametrize("code", [CODE, "import sys; sys.argv[1:] = ['serve']; from penstock.cli import main; main()"])
def test_an_interrupt_during_the_start_is_not_lost(code: str) -> None:
    """As KeyboardInterrupt it once came up in a callback of the import system, was dropped, and the server started."""
    stand_in = "import signal, sys, types; serve = types.ModuleType('penstock.cli.serve'); "
    stand_in += "serve.main = lambda *args: signal.raise_signal(signal.SIGINT); sys.modules[serve.__name__] = serve; "
    done = subprocess.run([sys.executable, "-c", stand_in + code], capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


def test_help_and_versions_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    for args in (["-h"], ["--help"], ["help"]):
        assert main(args, "nats-server") == 0
        assert capsys.readouterr().out.startswith("\nUsage: nats-server [flags]\n")
    assert main(["-v"], "nats-server") == 0
    assert capsys.readouterr().out == "nats-server: v2.15.1\n"
    assert main(["--version"]) == 0
    assert re.fullmatch(r"nats-server: v2\.15\.1\npenstock: v\S+\n", capsys.readouterr().out)
    assert main(["--help_tls"]) == 0
    assert "TLS_AES_128_GCM_SHA256" in capsys.readouterr().out


def test_signals_go_to_the_process_that_a_pid_file_names(tmp_path: Path) -> None:
    sent: list[tuple[int, int]] = []

    def note(pid: int, number: int) -> None:
        sent.append((pid, number))

    (tmp_path / "pid").write_text("4242")
    send_signal(f"ldm={tmp_path}/pid", note)
    send_signal("reload=17", note)
    assert sent == [(4242, signal.SIGUSR2), (17, signal.SIGHUP)]
    with pytest.raises(SignalError, match='unknown signal "dance"'):
        send_signal("dance=17", note)


def test_the_command_line_is_understood_without_anything_heavy() -> None:
    code = (
        "import sys; from penstock.cli import main; main(['serve', '-v'])\n"
        "from penstock.cli.serve import CommandLine; CommandLine(['-js', '-p', '-1']).options()\n"
        "heavy = {'typer', 'rich', 'pyarrow', 'numpy', 'asyncio', 'ssl', 'uvloop', 'cryptography'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_serve_stands_in_the_list_of_commands() -> None:
    done = subprocess.run([sys.executable, "-m", "penstock", "--help"], capture_output=True, text=True, check=True)
    assert "serve" in done.stdout


# --------------------------------------------------------------------------------------- a life, with a server like one


class FakeServer:
    """Stands where the server would: it notes what it is told, and sends itself signals once it runs."""

    def __init__(self, options: Options, log: Log) -> None:
        self.options = options
        self.log = log
        self.port, self.ws_port, self.http_port, self.https_port = 4222, 0, 8222, 0
        self.reread: Callable[[], None] | None = None
        self.calls: list[Any] = []
        self.signals: list[int] = []
        self.fails: Exception | None = None
        self.is_slow = False
        self.over = asyncio.Event()

    async def start(self) -> None:
        self.calls.append("start")
        if self.fails is not None:
            raise self.fails
        if self.is_slow:
            os.kill(os.getpid(), self.signals.pop(0))
            await asyncio.Event().wait()
        asyncio.get_running_loop().call_soon(self._signal)

    def _signal(self) -> None:
        if self.signals:
            os.kill(os.getpid(), self.signals.pop(0))
            asyncio.get_running_loop().call_later(0.01, self._signal)

    async def stop(self) -> None:
        self.calls.append("stop")

    async def wait(self) -> None:
        await self.over.wait()

    def reload(self, options: Options, changes: list[Change]) -> None:
        self.calls.append([change.name for change in changes])

    def lame_duck(self) -> None:
        self.calls.append("lame duck")
        asyncio.get_running_loop().call_later(0.1, self.over.set)


@pytest.fixture
def log_file(tmp_path: Path) -> Path:
    return tmp_path / "log"


def live(
    options: Options, *signals: int, reread: Callable[[], Any] | None = None, **changes: Any
) -> tuple[int, list[Any]]:
    """Run a fake to its end: the exit code, and what it was told."""
    made: list[FakeServer] = []

    def make(options: Options, log: Log) -> FakeServer:
        fake = FakeServer(options, log)
        fake.signals = list(signals)
        for name, value in changes.items():
            setattr(fake, name, value)
        made.append(fake)
        return fake

    code = run(options, reread or (lambda: (options, [])), "python", make)
    return code, made[0].calls


def told(log_file: Path) -> list[str]:
    return [line.split(" ", 3)[3] for line in log_file.read_text().splitlines()]


@pytest.mark.parametrize(("number", "name"), [(signal.SIGINT, "interrupt"), (signal.SIGTERM, "terminated")])
def test_a_signal_stops_the_server_and_that_is_no_failure(log_file: Path, number: int, name: str) -> None:
    assert live(Options(log_file=str(log_file)), number) == (0, ["start", "stop"])
    assert told(log_file) == [f'[INF] Trapped "{name}" signal']


def test_a_server_that_cannot_start_says_why_and_fails(log_file: Path) -> None:
    code, calls = live(Options(log_file=str(log_file)), fails=PenstockError("the store is locked by process 7"))
    assert (code, calls) == (1, ["start"])
    assert told(log_file) == ["[FTL] the store is locked by process 7"]
    code, _ = live(Options(log_file=str(log_file)), fails=OSError(13, "Permission denied", "/data"))
    assert code == 1
    assert told(log_file)[1] == "[FTL] /data: Permission denied"


def test_a_start_can_be_given_up(log_file: Path) -> None:
    assert live(Options(log_file=str(log_file)), signal.SIGTERM, is_slow=True) == (0, ["start"])


def test_a_lame_duck_ends_by_itself_and_is_not_hurried_by_term(log_file: Path) -> None:
    calls = live(Options(log_file=str(log_file)), signal.SIGUSR2, signal.SIGTERM)
    assert calls == (0, ["start", "lame duck", "stop"])


def test_the_log_file_is_reopened(log_file: Path) -> None:
    live(Options(log_file=str(log_file)), signal.SIGUSR1, signal.SIGTERM)
    assert "[INF] File log re-opened" in told(log_file)


def test_a_reload_hands_the_changes_to_the_server_and_tells_them(log_file: Path, tmp_path: Path) -> None:
    old = Options(log_file=str(log_file), config_file="s.conf")
    new = Options(
        log_file=str(log_file), config_file="s.conf", max_payload=5, debug=True, pid_file=str(tmp_path / "pid")
    )
    new.config_digest = "sha256:new"
    code, calls = live(old, signal.SIGHUP, signal.SIGTERM, reread=lambda: (new, ["a warning"]))
    assert (code, calls) == (0, ["start", ["debug", "pid_file", "max_payload"], "stop"])
    assert told(log_file)[1:-1] == [
        "[WRN] a warning",
        "[INF] Reloaded: debug = true",
        f"[INF] Reloaded: pid_file = {tmp_path}/pid",
        "[INF] Reloaded: max_payload = 5",
        "[INF] Reloaded server configuration (sha256:new)",
    ]
    assert (tmp_path / "pid").read_text() == str(os.getpid())


def test_a_reload_that_may_not_be_changes_nothing(log_file: Path) -> None:
    old = Options(log_file=str(log_file), config_file="s.conf")
    new = Options(log_file=str(log_file), config_file="s.conf", max_payload=5, port=5222)
    assert live(old, signal.SIGHUP, signal.SIGTERM, reread=lambda: (new, [])) == (0, ["start", "stop"])
    failed = "[ERR] Failed to reload server configuration: "
    assert told(log_file)[1] == failed + "config reload not supported for Port: old=4222, new=5222"
    live(Options(log_file=str(log_file)), signal.SIGHUP, signal.SIGTERM)
    assert failed + "can only reload config when a file is provided using -c or --config" in told(log_file)


def test_pid_and_ports_are_written_and_only_the_ports_go(log_file: Path, tmp_path: Path) -> None:
    seen = []
    options = Options(log_file=str(log_file), pid_file=str(tmp_path / "pid"), ports_file_dir=str(tmp_path))
    options.host = options.http_host = "127.0.0.1"

    class Looking(FakeServer):
        async def wait(self) -> None:
            seen.append((tmp_path / f"nats-server_{os.getpid()}.ports").read_text())

    assert run(options, lambda: (options, []), "python", Looking) == 0
    assert seen == ['{"nats":["nats://127.0.0.1:4222"],"monitoring":["http://127.0.0.1:8222"]}']
    assert (tmp_path / "pid").read_text() == str(os.getpid())
    assert not list(tmp_path.glob("*.ports"))


def test_a_pid_file_that_cannot_be_written_stops_the_start(log_file: Path) -> None:
    assert live(Options(log_file=str(log_file), pid_file="/nope/pid")) == (1, [])
    assert told(log_file) == ["[FTL] Could not write pidfile: open /nope/pid: no such file or directory"]


def test_a_log_that_cannot_be_opened_stops_the_start(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(Options(log_file="/nope/log"), lambda: (Options(), []), "python") == 1
    assert capfd.readouterr().err == "nats-server: error opening file: open /nope/log: no such file or directory\n"


# ---------------------------------------------------------------------------------------------- a life, with the server


class Served:
    """A server in a process of its own; ready when made."""

    def __init__(self, *command: str, is_read: bool = True) -> None:
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE)
        self.lines: list[str] = []
        if is_read:
            self.read_until("Server is ready")

    def read_until(self, text: str) -> None:
        assert self.process.stderr is not None
        stderr = self.process.stderr.fileno()
        rest = b""
        while not any(text in line for line in self.lines):
            ready, _, _ = select.select([stderr], [], [], READY_SECONDS)
            data = os.read(stderr, 65536) if ready else b""
            assert data, f"no {text!r} in {self.lines}"
            *lines, rest = (rest + data).split(b"\n")
            self.lines += [line.decode() for line in lines]

    @property
    def port(self) -> int:
        match = re.search(r"Listening for client connections on \S+:(\d+)", "\n".join(self.lines))
        assert match is not None
        return int(match[1])

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(READY_SECONDS)

    def close(self) -> None:
        assert self.process.stderr is not None
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(READY_SECONDS)
        self.process.stderr.close()


SERVE = (sys.executable, "-m", "penstock", "serve", "-a", "127.0.0.1", "-p", "-1")


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    made: list[Served] = []

    def start(*args: str, command: tuple[str, ...] = SERVE, is_read: bool = True) -> Served:
        made.append(Served(*command, *args, is_read=is_read))
        return made[-1]

    yield start
    for one in made:
        one.close()


def info(port: int) -> dict[str, Any]:
    with socket.create_connection(("127.0.0.1", port), timeout=READY_SECONDS) as client:
        text = client.makefile().readline()
    found: dict[str, Any] = json.loads(text.removeprefix("INFO "))
    return found


def test_a_server_starts_answers_and_stops(serve: Callable[..., Served], tmp_path: Path) -> None:
    one = serve("-n", "one", "-P", str(tmp_path / "pid"), "--ports_file_dir", str(tmp_path), "-m", "-1")
    ports = tmp_path / f"nats-server_{one.process.pid}.ports"
    assert info(one.port)["server_name"] == "one"
    assert info(one.port)["version"] == "2.15.1"
    assert (tmp_path / "pid").read_text() == str(one.process.pid)
    assert json.loads(ports.read_text())["nats"] == [f"nats://127.0.0.1:{one.port}"]
    assert one.end() == 0
    assert not ports.exists()


def test_the_shim_is_the_server_itself(serve: Callable[..., Served], tmp_path: Path) -> None:
    path = install_shim(str(tmp_path / "bin with a space"))
    one = serve("-a", "127.0.0.1", "-p", "-1", command=(path,))
    assert one.lines[0].startswith(f"[{one.process.pid}] ")
    assert Path(f"/proc/{one.process.pid}/comm").read_text() == "nats-server\n"
    assert one.end(signal.SIGINT) == 0


def test_a_port_that_is_taken_is_one_line_and_exit_code_1(serve: Callable[..., Served]) -> None:
    one = serve()
    command = [*SERVE[:-1], str(one.port)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=READY_SECONDS, check=False)
    assert done.returncode == 1
    fatal = [line for line in done.stderr.splitlines() if "[FTL]" in line]
    assert len(fatal) == 1 and f"Error listening on port: 127.0.0.1:{one.port}, address already in use" in fatal[0]
    assert "Traceback" not in done.stderr


def test_a_store_directory_that_is_a_file_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    """Tools look for nats-server's words: it was "File exists" alone."""
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        command = [*SERVE, "-js", "-sd", str(place)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=READY_SECONDS, check=False)
        assert done.returncode == 1
        fatal = [line for line in done.stderr.splitlines() if "[FTL]" in line]
        assert len(fatal) == 1 and "Can't start JetStream: storage directory is not a directory: " in fatal[0]


def test_a_store_that_another_server_holds_is_named_with_its_holder(
    serve: Callable[..., Served], tmp_path: Path
) -> None:
    one = serve("-js", "-sd", str(tmp_path / "data"))
    command = [*SERVE, "-js", "-sd", str(tmp_path / "data")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=READY_SECONDS, check=False)
    assert done.returncode == 1
    fatal = [line for line in done.stderr.splitlines() if "[FTL]" in line]
    assert len(fatal) == 1 and str(one.process.pid) in fatal[0]
    assert "Traceback" not in done.stderr


def test_a_full_pipe_on_standard_error_does_not_stop_the_server(serve: Callable[..., Served]) -> None:
    one = serve("-DV")
    assert one.process.stderr is not None
    fcntl.fcntl(one.process.stderr, fcntl.F_SETPIPE_SZ, 4096)
    with socket.create_connection(("127.0.0.1", one.port), timeout=READY_SECONDS) as client:
        reader = client.makefile("rb")
        reader.readline()
        client.sendall(b'CONNECT {"verbose":false}\r\n')
        # Each command and each new client is a line of the log, and nobody reads it.
        for _ in range(300):
            with socket.create_connection(("127.0.0.1", one.port), timeout=READY_SECONDS) as other:
                other.sendall(b'CONNECT {"verbose":false,"name":"' + b"x" * 300 + b'"}\r\nPING\r\n')
        client.sendall(b"PING\r\n")
        assert reader.readline() == b"PONG\r\n"
    assert one.end() == 0


def test_a_changed_file_changes_the_running_server(serve: Callable[..., Served], tmp_path: Path) -> None:
    conf = tmp_path / "s.conf"
    conf.write_text("max_payload: 1000\n")
    one = serve("-c", str(conf))
    assert info(one.port)["max_payload"] == 1000
    conf.write_text("max_payload: 2000\nauthorization { token: x }\n")
    one.process.send_signal(signal.SIGHUP)
    one.read_until("Reloaded server configuration")
    assert (info(one.port)["max_payload"], info(one.port)["auth_required"]) == (2000, True)
    conf.write_text("max_payload: oops\n")
    one.process.send_signal(signal.SIGHUP)
    one.read_until("Failed to reload server configuration: ")
    assert info(one.port)["max_payload"] == 2000
    assert one.end() == 0


def test_a_server_without_standard_files_runs(tmp_path: Path) -> None:
    """libuv aborts when a file of its own is one of the first three."""
    command = [*SERVE, "--ports_file_dir", str(tmp_path)]
    script = 'exec "$@" <&- >&- 2>&-'
    process = subprocess.Popen(["/bin/sh", "-c", script, "sh", *command])
    path = tmp_path / f"nats-server_{process.pid}.ports"
    deadline = time.monotonic() + READY_SECONDS
    while not path.exists() and time.monotonic() < deadline:  # it tells nobody but the file
        time.sleep(0.02)
    assert path.exists()
    process.terminate()
    assert process.wait(READY_SECONDS) == 0


def test_every_command_is_told_when_asked_for(serve: Callable[..., Served]) -> None:
    one = serve("-V")
    with socket.create_connection(("127.0.0.1", one.port), timeout=READY_SECONDS) as client:
        client.sendall(b'CONNECT {"verbose":false}\r\nSUB a 1\r\nPUB a 2\r\nhi\r\nPING\r\n')
        one.read_until("->> [PONG]")
    told = [line.partition(" - ")[2].partition(" - ")[2] for line in one.lines if "[TRC]" in line]
    assert told == [
        '<<- [CONNECT {"verbose":false}]',
        "<<- [SUB a 1]",
        "<<- [PUB a 2]",
        '<<- MSG_PAYLOAD: ["hi"]',
        "<<- [PING]",
        "->> [MSG a 1 2]",
        '->> MSG_PAYLOAD: ["hi"]',
        "->> [PONG]",
    ]
    assert one.end() == 0
