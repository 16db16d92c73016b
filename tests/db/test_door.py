"""The writer's control socket: which peers it serves, and that no request can end it or block it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.db import control_socket as door
from penstock.db import peer_credentials as peer
from penstock.db.adopt import create_stream
from penstock.db.control_socket import ask
from penstock.db.lock import holder_of
from penstock.errors import StoreError

STRANGER = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def name_of(root: Path) -> str:
    holder = holder_of(str(root))
    assert holder is not None
    return str(holder["door"])


def connect(root: Path, timeout: float = 60.0) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.settimeout(timeout)
    made.connect("\0" + name_of(root))
    return made


def say(root: Path, raw: bytes) -> dict[str, Any]:
    with connect(root) as made:
        made.sendall(raw)
        answer = json.loads(made.makefile().readline())
    assert isinstance(answer, dict)
    return answer


def create(stream: str, **more: Any) -> dict[str, Any]:
    return {"op": "create", "account": "$G", "stream": stream, "config": {}} | more


@pytest.fixture
def db(root: Path) -> Iterator[penstock.Database]:
    with penstock.open(root) as opened:
        yield opened


def run_as(uid: int, code: str, *args: str) -> str:
    """Run code of the standard library as another user."""
    drop = f"import os, socket, sys; os.setgroups([]); os.setgid({uid}); os.setuid({uid})\n"
    done = subprocess.run([sys.executable, "-c", drop + code, *args], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


# Which peers are served.


@as_root
def test_a_process_of_another_user_is_refused_before_it_has_said_anything(root: Path, db: penstock.Database) -> None:
    """The name of an abstract socket is in /proc/net/unix, readable for everybody: knowing it was once enough."""
    code = (
        "made = socket.socket(socket.AF_UNIX); made.settimeout(60)\n"
        "assert '@' + sys.argv[1] in open('/proc/net/unix').read()\n"
        "made.connect('\\0' + sys.argv[1])\n"
        "print(made.recv(65536).decode()); print(made.recv(1))"
    )
    said = run_as(STRANGER, code, name_of(root)).splitlines()
    assert f"requests of its owner only, not of user {STRANGER}" in said[0] and said[-1] == "b''"
    assert str(root) not in "".join(said), "where the store lies is nobody's business"
    assert ask(root, create("T")) == {"name": "T"}, "its owner is served as before"
    assert db.streams() == ["T"]


@as_root
def test_the_owner_of_the_directory_is_served_by_a_writer_that_runs_as_root(root: Path, db: penstock.Database) -> None:
    os.chown(root, 1234, 1234)
    code = (
        "made = socket.socket(socket.AF_UNIX); made.connect('\\0' + sys.argv[1])\n"
        "try: made.sendall(sys.argv[2].encode() + b'\\n')\n"
        "except ConnectionError: pass\n"
        "print(made.recv(65536).decode())"
    )
    assert json.loads(run_as(1234, code, name_of(root), json.dumps(create("T")))) == {"ok": {"name": "T"}}
    assert "not of user 1235" in run_as(1235, code, name_of(root), json.dumps(create("T")))


@as_root
def test_an_impostor_at_the_name_of_a_writer_is_not_believed(root: Path) -> None:
    """The writer exits, and another user who has read the socket's name binds it: answers from there must not count as
    written.
    """
    penstock.open(root).close()
    code = (
        "made = socket.socket(socket.AF_UNIX); made.bind('\\0' + sys.argv[1]); made.listen()\n"
        "print('here', flush=True); got, _ = made.accept()\n"
        "try: got.sendall(sys.argv[2].encode() + b'\\n'); print(got.recv(65536))\n"
        "except ConnectionError: print(b'')"
    )
    drop = f"import os, socket, sys; os.setgroups([]); os.setgid({STRANGER}); os.setuid({STRANGER})\n"
    name = f"penstock-{os.urandom(16).hex()}"
    with (
        subprocess.Popen(
            [sys.executable, "-c", drop + code, name, '{"ok": {"name": "T"}}'], stdout=subprocess.PIPE, text=True
        ) as impostor,
        open(root / "LOCK", "w") as lock,
    ):
        assert impostor.stdout is not None and impostor.stdout.readline() == "here\n"
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write(json.dumps({"pid": 1, "door": name}))
        lock.flush()
        with pytest.raises(StoreError, match=rf"user {STRANGER} .* is not the store's owner"):
            create_stream(root, "T", {})
        assert impostor.stdout.read() == "b''\n", "nothing is said to him either"


def test_a_uid_that_may_stand_for_anybody_is_nobody_s(tmp_path: Path) -> None:
    """In a container, users outside of it and the owner of a mounted directory may all have the uid 65534."""
    (tmp_path / "self").mkdir()
    (tmp_path / "sys" / "kernel").mkdir(parents=True)
    (tmp_path / "sys" / "kernel" / "overflowuid").write_text("65534\n")
    users = tmp_path / "self" / "uid_map"
    assert peer.unclear_uids(str(tmp_path)) == frozenset(), "no user namespaces at all"
    users.write_text("         0          0 4294967295\n")
    assert peer.unclear_uids(str(tmp_path)) == frozenset()
    for partial in ("0 1000 1\n", "0 1000 1\n1 100000 65536\n"):
        users.write_text(partial)
        assert peer.unclear_uids(str(tmp_path)) == {65534}


@as_root
def test_two_strangers_to_a_container_are_not_taken_for_one_another(root: Path) -> None:
    """The store belongs to a user without a number in the writer's namespace, and the peer has none either."""
    unshare = shutil.which("unshare")
    inside = [str(unshare), "--user", "--map-root-user"]
    if unshare is None or subprocess.run([*inside, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no user namespaces here")
    root.mkdir()
    os.chown(root, 4321, 4321)
    os.chmod(root, 0o777)
    code = (
        "import os, sys, penstock\n"
        "with penstock.open(sys.argv[1]) as db:\n"
        "    print(os.stat(sys.argv[1]).st_uid, flush=True); sys.stdin.readline(); print(db.streams())"
    )
    with subprocess.Popen(
        [*inside, sys.executable, "-c", code, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "65534\n", "inside, the owner has no number"
        talk = (
            "made = socket.socket(socket.AF_UNIX); made.connect('\\0' + sys.argv[1])\nprint(made.recv(65536).decode())"
        )
        assert "not of user 65534" in run_as(5432, talk, name_of(root))
        assert ask(root, create("T")) == {"name": "T"}, "the same user outside is root inside"
        assert writer.communicate("\n")[0] == "['T']\n"


# Requests.

DEEP = b"[" * 200_000
ADOPT = {"op": "adopt", "account": "$G", "stream": "S", "job": "j", "tasks": [], "query": "q", "batch": 1}


@pytest.mark.parametrize(
    "request_",
    [
        DEEP,
        b'{"op":"create","account":"$G","stream":"Z","config":' + DEEP,
        b'{"op":"create","account":"$G","stream":"Z","config":{"x":' + DEEP,
        b'{"op":"adopt","account":"$G","stream":"S","job":"j","tasks":[{"x":' + DEEP,
        b'{"op":' + b'{"a":' * 100_000,
        b"",
        b"\xff\xfe",
        b"null",
        b"[]",
        b"7" * 10_000,
        b"{}",
        b'{"op":"drop"}',
        b'{"op":["create"]}',
        *(
            json.dumps(create("Z") | {field: value}).encode()
            for field, value in [
                ("account", ["$G"]), ("account", "../$G"), ("account", "A"), ("stream", 7), ("stream", "../Z"),
                ("stream", "/tmp/Z"), ("stream", ".."), ("stream", "."), ("stream", ""), ("stream", "Z\0"),
                ("stream", "Z" * 300), ("config", []), ("config", None), ("config", {"name": "Y"}),
                ("config", {"self": 1}), ("config", {"subjects": 7}), ("config", {"subjects": [["z"]]}),
                ("config", {"max_age": {"x": 1}}), ("config", {"no_such": 1}), ("config", {"max_msgs": "x"}),
                ("config", {"metadata": {"_penstock.durability": []}}),
            ]
        ),
        *(
            json.dumps(ADOPT | {field: value}).encode()
            for field, value in [
                ("job", "../../.."), ("job", "/tmp"), ("job", ".."), ("job", "."), ("job", ""), ("job", "a\0b"),
                ("job", 7), ("job", None), ("tasks", "x"), ("tasks", ["x"]), ("tasks", [7]), ("tasks", {}),
                ("query", 7), ("query", "q\n"), ("query", "q" * 300), ("batch", "1"), ("batch", -1),
                ("batch", 2**70), ("batch", 1.5), ("batch", True), ("stream", "T"), ("stream", "../S"),
            ]
        ),
    ],
    ids=lambda raw: repr(raw[:90]),
)  # fmt: skip
def test_whatever_is_asked_is_answered_and_the_next_is_served(
    root: Path, db: penstock.Database, request_: bytes
) -> None:
    """200,000 brackets once ended the thread: nothing could be written beside the server until it was restarted."""
    db.stream("S")
    answer = say(root, request_ + b"\n")
    assert answer["error"] and answer["text"], answer
    assert ask(root, create("T")) == {"name": "T"}
    assert db.streams() == ["S", "T"]
    assert not list(root.glob("**/Z*")) and sorted(os.listdir(root.parent)) == [root.name]


def test_a_failure_that_nobody_has_thought_of_is_answered(
    root: Path, db: penstock.Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(name: str) -> None:
        raise AssertionError(f"no room for {name}")

    monkeypatch.setattr(db, "get_stream", fail)
    assert say(root, json.dumps(create("T")).encode() + b"\n")["text"] == "AssertionError: no room for T"
    assert "a request to its control socket failed" in caplog.text
    monkeypatch.undo()
    assert ask(root, create("T")) == {"name": "T"}


# Number and speed of requests.


def test_those_who_say_nothing_hold_nobody_up(root: Path, db: penstock.Database) -> None:
    with ExitStack() as held:
        for _ in range(door.REQUESTS_MAX - 1):
            held.enter_context(connect(root)).sendall(b'{"op":')
        assert ask(root, create("T")) == {"name": "T"}


def test_so_many_that_all_places_are_taken_are_given_up_in_time(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte once restarted the timeout: a byte every ten seconds kept a connection open forever."""
    monkeypatch.setattr(door, "READ_S", 0.2)
    with penstock.open(root), ExitStack() as held:
        slow = [held.enter_context(connect(root)) for _ in range(2 * door.REQUESTS_MAX)]
        for one in slow:
            one.sendall(b"{")
        assert ask(root, create("T")) == {"name": "T"}
        assert b"did not arrive" in slow[0].recv(65536)
        with connect(root) as dripping:  # the answer comes although the client keeps sending
            dripping.setblocking(False)
            answer = b""
            while not answer:
                with suppress(BlockingIOError, BrokenPipeError):  # not read as fast as it is sent, or answered already
                    dripping.send(b" ")
                with suppress(BlockingIOError):
                    answer = dripping.recv(65536)
            assert b"did not arrive" in answer


def test_the_store_closes_while_somebody_says_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "READ_S", 3600.0)
    with penstock.open(root), ExitStack() as held:
        slow = [held.enter_context(connect(root)) for _ in range(3)]
        slow[0].sendall(b"{")
        ask(root, create("T"))  # the other connections have been accepted by now
    penstock.open(root).close()


def test_what_is_too_long_is_refused_while_it_comes(
    root: Path, db: penstock.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "REQUEST_MAX", 300_000)
    with pytest.raises(StoreError, match="write with fewer tasks"):
        ask(root, create("T", config={"description": "x" * 8_000_000}))
    assert ask(root, create("T")) == {"name": "T"}


def test_large_requests_are_read_one_at_a_time(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen of the largest would be half a gigabyte. The timeout of the second starts when its turn comes."""
    monkeypatch.setattr(door, "LARGE", 100_000)
    with penstock.open(root) as db, connect(root) as first:
        db.stream("S")
        opened = db.root
        assert opened is not None and opened._door is not None
        first.sendall(b'{"op":"create","account":"$G","stream":"A","config":{"description":"x"}' + b" " * 200_000)
        while not opened._door._large.locked():
            pass
        second = threading.Thread(target=say, args=(root, json.dumps(create("B")).encode() + b" " * 200_000 + b"\n"))
        second.start()
        assert ask(root, create("T")) == {"name": "T"}, "small ones go by"
        assert db.streams() == ["S", "T"]
        first.sendall(b"}\n")
        assert json.loads(first.makefile().readline()) == {"ok": {"name": "A"}}
        second.join()
        assert db.streams() == ["A", "B", "S", "T"]


def test_too_many_open_files_do_not_end_it(root: Path) -> None:
    """An error of accept() once ended the thread."""
    code = """
import json, logging, resource, socket, sys, threading, penstock
from penstock.db.control_socket import ask
from penstock.db.lock import holder_of
create = {"op": "create", "account": "$G", "stream": "T", "config": {}}
has_failed = threading.Event()
logging.getLogger("penstock").addFilter(lambda record: "could not take" in record.msg and has_failed.set())
with penstock.open(sys.argv[1]) as db:
    name = holder_of(sys.argv[1])["door"]
    made = [socket.socket(socket.AF_UNIX) for _ in range(3)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (made[-1].fileno() + 1, hard))
    for one in made:
        one.connect("\\0" + name)
        one.sendall(json.dumps(create).encode() + b"\\n")
    assert has_failed.wait(60)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    print([one.recv(65536) for one in made], ask(sys.argv[1], create), db.streams())
"""
    done = subprocess.run([sys.executable, "-c", code, str(root)], capture_output=True, text=True, check=False)
    assert "['T']" in done.stdout, done.stderr


def test_a_full_queue_is_waited_for(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connect with a timeout fails at once if the queue is full, which once failed the caller."""
    monkeypatch.setattr(door, "READ_S", 0.1)
    with penstock.open(root), ExitStack() as held:
        for _ in range(door.REQUESTS_MAX + 129):
            made = held.enter_context(socket.socket(socket.AF_UNIX))
            made.setblocking(False)
            try:
                made.connect("\0" + name_of(root))
            except BlockingIOError:
                break
        assert ask(root, create("T")) == {"name": "T"}


def test_a_forked_child_does_not_keep_those_who_are_served(root: Path, db: penstock.Database) -> None:
    """The child inherited their connections: a caller would wait for the child when the writer was killed."""
    with connect(root) as made:
        made.sendall(b'{"op":"drop"')
        opened = db.root
        assert opened is not None and opened._door is not None
        while not opened._door._handlers:
            pass
        pid = os.fork()
        if pid == 0:
            os._exit(sum(other.fileno() >= 0 for other in opened._door._handlers.values()))
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        made.sendall(b"}\n")
        assert b"error" in made.recv(65536)
