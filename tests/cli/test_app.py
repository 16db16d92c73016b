"""What holds for every command: help, exit codes, errors of one line, nothing heavy imported."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.base.xxh64 import xxh64_of
from support.cli_cases import Run, is_root, spawn, writer

COMMANDS = ("inspect", "verify", "repair", "export", "import", "erase", "migrate")
READING = ("inspect", "verify", "export")


def test_the_help_lists_every_command(run: Run) -> None:
    done = run("--help")
    assert done.code == 0
    for command in COMMANDS:
        assert command in done.text


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_has_an_example(run: Run, command: str) -> None:
    done = run(command, "--help")
    assert done.code == 0
    assert f"Example: penstock {'export' if command == 'import' else command}" in done.text


def test_the_version(run: Run) -> None:
    assert run("--version").text.startswith("penstock 0.")


def test_importing_the_library_imports_none_of_the_tools() -> None:
    """`penstock --help` is quick, and a program that only publishes pays for nothing."""
    code = "import penstock, sys; print([m for m in ('typer', 'rich', 'pyarrow') if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"
    code = (
        "import sys; from penstock.cli import main; main(['--help']); print('pyarrow' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr == "False\n"


@pytest.mark.parametrize(
    "args",
    [
        ("nonsense",),
        ("verify",),
        ("export", "x", "--format", "xml"),
        ("inspect", "x", "--top", "-1"),
        ("verify", "--no", "x"),
    ],
)
def test_a_command_typed_wrong_is_told_in_one_line(run: Run, args: tuple[str, ...]) -> None:
    done = run(*args)
    assert done.code == 2
    assert done.err.startswith("penstock: ") and done.err.count("\n") == 1 and "--help" in done.err
    assert not done.out


@pytest.mark.parametrize("command", READING)
def test_a_directory_that_is_no_store(run: Run, tmp_path: Path, command: str) -> None:
    (tmp_path / "file").write_text("hello")
    for path in (tmp_path, tmp_path / "file", tmp_path / "absent"):
        done = run(command, path)
        assert done.code == 2
        assert done.err.startswith(f"penstock: {path} is not a Penstock store: ") and done.err.count("\n") == 1


def test_writing_commands_make_no_store_by_a_slip(run: Run, tmp_path: Path) -> None:
    for args in (("repair", tmp_path / "absent"), ("erase", tmp_path / "absent", "1")):
        done = run(*args)
        assert done.code == 2 and "is not a Penstock store" in done.err
    assert not (tmp_path / "absent").exists()


@pytest.mark.parametrize("command", ("inspect", "verify", "repair", "export"))
def test_a_stream_that_is_not_there(run: Run, root: Path, command: str) -> None:
    done = run(command, root, "--stream", "ORDER")
    assert done.code == 2
    assert "stream 'ORDER' not found" in done.err and "BIG, ORDERS" in done.err


@pytest.mark.parametrize("command", ("inspect", "verify", "repair", "export"))
def test_a_newer_store_is_refused_and_left_alone(run: Run, root: Path, command: str) -> None:
    line = b"penstock store, format 7\n"
    marker = line + b"xxh64 %016x\n" % xxh64_of(line)
    (root / "PENSTOCK").write_bytes(marker)
    done = run(command, root)
    assert done.code == 2
    assert "format version 7" in done.err and "upgrade" in done.err
    assert (root / "PENSTOCK").read_bytes() == marker


def test_writing_commands_name_who_has_the_store(root: Path, tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.mkdir()
    (old / "messages.jsonl").write_text("")
    with writer(root) as process:
        for args in (("repair", root), ("erase", root, "-s", "ORDERS", "1"), ("import", root), ("migrate", root, old)):
            done = spawn(*args, stdin=b"")
            assert done.code == 2, done
            assert f"pid {process.pid}" in done.err and done.err.count("\n") == 1


@pytest.mark.skipif(is_root(), reason="root may read everything")
def test_no_permission(run: Run, root: Path) -> None:
    os.chmod(root, 0)
    try:
        done = run("inspect", root)
    finally:
        os.chmod(root, 0o700)
    assert done.code == 2 and done.err.count("\n") == 1


def test_a_closed_pipe_is_silent(root: Path) -> None:
    command = f"{sys.executable} -m penstock export {root} --stream BIG | head -c 10"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.stdout == '{"stream":' and done.stderr == ""


def test_control_c_ends_with_130(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "penstock", "import", str(tmp_path / "data")]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "data" / "PENSTOCK").exists():
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130 and err == ""
