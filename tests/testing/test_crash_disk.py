"""CrashDisk does each call for real, logs what changed, and fails as planned."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.testing import FAULT_KINDS, KINDS, CrashDisk


@pytest.fixture
def disk(tmp_path: Path) -> CrashDisk:
    return CrashDisk(tmp_path)


def kinds_of(disk: CrashDisk) -> list[str]:
    return [op.kind for op in disk.ops]


# ------------------------------------------------------------------------------------------------------------- the log


def test_every_change_is_done_for_real_and_logged_in_order(disk: CrashDisk, tmp_path: Path) -> None:
    disk.mkdir(tmp_path / "d")
    fd = disk.open(tmp_path / "d/a", "c")
    disk.write(fd, b"hello world", 3)
    disk.truncate(fd, 8)
    disk.sync(fd)
    disk.close(fd)
    disk.rename(tmp_path / "d/a", tmp_path / "d/b")
    disk.sync_folder(tmp_path / "d")
    assert (tmp_path / "d/b").read_bytes() == b"\0\0\0hello"
    disk.unlink(tmp_path / "d/b")
    disk.rmdir(tmp_path / "d")
    assert os.listdir(tmp_path) == []
    assert kinds_of(disk) == [
        "make_dir", "create_file", "pwrite", "truncate_file", "sync_file", "rename_file", "sync_dir", "unlink_file",
        "remove_dir",
    ]  # fmt: skip
    write, size, sync, rename = disk.ops[2:6]
    assert (write.offset, write.size, write.data, write.path) == (3, 11, b"hello world", str(tmp_path / "d/a"))
    assert (size.size, size.file, sync.file, sync.start) == (8, write.file, write.file, 4)
    assert (rename.path, rename.new_path) == (str(tmp_path / "d/a"), str(tmp_path / "d/b"))
    assert [op.index for op in disk.ops] == list(range(disk.position)) == list(range(9))


def test_a_file_keeps_its_number_when_it_is_renamed(disk: CrashDisk, tmp_path: Path) -> None:
    fd = disk.open(tmp_path / "a", "c")
    disk.write(fd, b"1")
    disk.rename(tmp_path / "a", tmp_path / "b")
    disk.write(fd, b"2")
    again = disk.open(tmp_path / "b", "w")
    disk.write(again, b"3")
    other = disk.open(tmp_path / "a", "c")
    disk.write(other, b"4")
    writes = [op for op in disk.ops if op.kind == "pwrite"]
    assert [op.file == writes[0].file for op in writes] == [True, True, True, False]
    assert [Path(op.path or "").name for op in writes] == ["a", "b", "b", "a"]


def test_a_new_file_gets_a_new_number_though_the_inode_is_used_again(disk: CrashDisk, tmp_path: Path) -> None:
    files = set()
    for _ in range(20):
        fd = disk.open(tmp_path / "a", "c")
        disk.write(fd, b"x")
        disk.close(fd)
        disk.unlink(tmp_path / "a")
        files.add(disk.ops[-2].file)
    assert len(files) == 20


def test_creating_a_file_that_is_there_empties_it_under_its_old_number(disk: CrashDisk, tmp_path: Path) -> None:
    disk.write_file(tmp_path / "a", b"old")
    fd = disk.open(tmp_path / "a", "c")
    assert disk.size(fd) == 0
    create, last = disk.ops[0], disk.ops[-1]
    assert (last.kind, last.size, last.file) == ("truncate_file", 0, create.file)


def test_what_was_there_before_is_the_base(tmp_path: Path) -> None:
    (tmp_path / "d/e").mkdir(parents=True)
    (tmp_path / "d/a").write_bytes(b"old")
    disk = CrashDisk(tmp_path)
    assert disk.base == {"d": None, "d/e": None, "d/a": b"old"}
    fd = disk.open(tmp_path / "d/a", "w")
    disk.write(fd, b"new")
    assert disk.ops[0].file == disk.base_files["d/a"]
    assert disk.ops[0].path == str(tmp_path / "d/a")


def test_a_root_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        CrashDisk(tmp_path / "none")


def test_a_call_that_really_fails_leaves_no_entry(disk: CrashDisk, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open(tmp_path / "none", "w")
    with pytest.raises(FileNotFoundError):
        disk.rename(tmp_path / "none", tmp_path / "b")
    with pytest.raises(FileNotFoundError):
        disk.sync_folder(tmp_path / "none")
    with pytest.raises(OSError, match="Bad file descriptor"):
        disk.sync(987)
    disk.mkdir(tmp_path / "d")
    assert disk.mkdir(tmp_path / "d") is False
    assert kinds_of(disk) == ["make_dir"]
    assert disk.fired == 0


def test_a_store_into_mapped_memory_reaches_the_file_the_log_and_every_map(disk: CrashDisk, tmp_path: Path) -> None:
    fd = disk.open(tmp_path / "HEAD", "c")
    disk.write(fd, b"0123456789")
    one, two = disk.map(fd, 10), disk.map(disk.open(tmp_path / "HEAD", "w"), 10)
    disk.store(fd, one, b"ab", 4)
    disk.write(fd, b"zz", 9)
    assert disk.mapped(one, 10) == disk.mapped(two, 10) == b"0123ab678z"
    assert (tmp_path / "HEAD").read_bytes() == b"0123ab678zz"
    assert kinds_of(disk) == ["create_file", "pwrite", "store_mapped", "pwrite"]
    assert disk.ops[2].data == b"ab"
    disk.unmap(one, 10)
    disk.store(fd, two, b"c", 0)
    assert disk.mapped(two, 2) == b"c1"
    disk.unmap(two, 10)


def test_where_no_memory_was_mapped_a_store_is_a_write(disk: CrashDisk, tmp_path: Path) -> None:
    disk.fail_at(1, errno.ENODEV, kinds={"map_file"})
    fd = disk.open(tmp_path / "HEAD", "c")
    assert disk.map(fd, 10) == 0
    disk.store(fd, 0, b"ab", 4)
    assert kinds_of(disk) == ["create_file", "pwrite"]


def test_marks_stand_where_they_were_made(disk: CrashDisk, tmp_path: Path) -> None:
    disk.mark(0)
    disk.mkdir(tmp_path / "d")
    assert len(disk.ops) == 1  # taken to Python; the position must not begin again
    disk.mkdir(tmp_path / "e")
    disk.mark({"seq": 7})
    disk.mark("x")
    assert disk.marks == [(0, 0), (2, {"seq": 7}), (2, "x")]


def test_a_sync_covers_only_what_came_before_it_began(disk: CrashDisk, tmp_path: Path) -> None:
    fd = disk.open(tmp_path / "a", "c")
    disk.write(fd, b"1")
    thread = threading.Thread(target=disk.sync, args=(fd,))
    with disk.holding("sync_file"):
        thread.start()
        disk.wait_held()
        disk.write(fd, b"2", 1)
    thread.join()
    assert kinds_of(disk) == ["create_file", "pwrite", "pwrite", "sync_file"]
    assert disk.ops[-1].start == 2


def test_a_call_that_is_held_waits_and_the_others_go_on(disk: CrashDisk, tmp_path: Path) -> None:
    fd = disk.open(tmp_path / "a", "c")
    calls = (lambda: disk.sync(fd), lambda: disk.sync_folder(tmp_path), lambda: disk.truncate(fd, 9))
    threads = [threading.Thread(target=call) for call in calls]
    with disk.holding("sync_file", "sync_dir", "truncate_file"):
        for thread in threads:
            thread.start()
        disk.wait_held(3)
        assert kinds_of(disk) == ["create_file"] and (tmp_path / "a").stat().st_size == 0
        disk.write(fd, b"1")
    for thread in threads:
        thread.join()
    assert sorted(kinds_of(disk)[2:]) == ["sync_dir", "sync_file", "truncate_file"]
    disk.sync(fd)
    with pytest.raises(TimeoutError, match="0 calls wait"):
        disk.wait_held(timeout_s=0)
    with pytest.raises(ValueError, match="only sync_dir"), disk.holding("pwrite"):
        pass


def test_several_threads_at_once_lose_no_entry_and_keep_each_threads_order(disk: CrashDisk, tmp_path: Path) -> None:
    rounds, threads = 300, 6
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for n in range(rounds):
                fd = disk.open(tmp_path / f"{number}", "c" if n == 0 else "w")
                disk.write(fd, n.to_bytes(4, "little") * 50, 200 * n)
                disk.sync(fd)
                disk.close(fd)
                if n % 50 == 0:
                    _ = disk.ops  # taking the log while others write
        except BaseException as error:
            errors.append(error)
            raise

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert errors == []
    assert disk.calls["pwrite"] == disk.calls["sync_file"] == rounds * threads
    assert disk.position == rounds * threads * 2 + threads
    for number in range(threads):
        mine = [op for op in disk.ops if op.path == str(tmp_path / f"{number}")]
        assert [op.offset for op in mine if op.kind == "pwrite"] == [200 * n for n in range(rounds)]
        assert len({op.file for op in mine}) == 1
        assert b"".join(op.data for op in mine) == (tmp_path / f"{number}").read_bytes()


# ---------------------------------------------------------------------------------------------------------- the faults


def test_a_fault_fires_exactly_once_at_the_nth_call(disk: CrashDisk, tmp_path: Path) -> None:
    fd = disk.open(tmp_path / "a", "c")
    disk.fail_at(3, errno.ENOSPC, kinds={"pwrite"})
    outcomes = []
    for n in range(6):
        try:
            disk.write(fd, b"%d" % n, n)
            outcomes.append(0)
        except OSError as error:
            outcomes.append(error.errno or -1)
        disk.sync(fd)
    assert outcomes == [0, 0, errno.ENOSPC, 0, 0, 0]
    assert disk.fired == 1
    assert (tmp_path / "a").read_bytes() == b"01\x00345"
    assert disk.calls["pwrite"] == 6
    assert kinds_of(disk).count("pwrite") == 5


def test_a_persistent_fault_lasts_until_cleared(disk: CrashDisk, tmp_path: Path) -> None:
    disk.fail_at(2, errno.EIO, kinds={"make_dir"}, persistent=True)
    disk.mkdir(tmp_path / "0")
    for n in range(1, 4):
        with pytest.raises(OSError, match="Input/output error"):
            disk.mkdir(tmp_path / f"{n}")
    disk.clear_faults()
    disk.mkdir(tmp_path / "4")
    assert sorted(os.listdir(tmp_path)) == ["0", "4"]
    assert disk.fired == 3


def test_a_short_write_leaves_half_and_says_so_in_the_log(disk: CrashDisk, tmp_path: Path) -> None:
    fd = disk.open(tmp_path / "a", "c")
    disk.fail_at(1, errno.ENOSPC, kinds={"pwrite"}, short=True)
    with pytest.raises(OSError, match="No space"):
        disk.write(fd, b"abcdefgh", 2)
    assert (tmp_path / "a").read_bytes() == b"\0\0abcd"
    assert (disk.ops[-1].data, disk.ops[-1].error) == (b"abcd", errno.ENOSPC)


def test_a_failed_sync_is_in_the_log(disk: CrashDisk, tmp_path: Path) -> None:
    fd = disk.open(tmp_path / "a", "c")
    disk.write(fd, b"a")
    disk.fail_at(1, errno.EIO, kinds={"sync_file"})
    with pytest.raises(OSError, match="Input/output error"):
        disk.sync(fd)
    disk.sync(fd)
    assert [(op.kind, op.error) for op in disk.ops[-2:]] == [("sync_file", errno.EIO), ("sync_file", 0)]


def test_several_plans_count_side_by_side(disk: CrashDisk, tmp_path: Path) -> None:
    fd = disk.open(tmp_path / "a", "c")
    disk.fail_at(1, errno.EIO, kinds={"pwrite"})
    disk.fail_at(2, errno.ENOSPC, kinds={"pwrite", "sync_file"})
    with pytest.raises(OSError, match="Input/output"):
        disk.write(fd, b"a")
    with pytest.raises(OSError, match="No space"):
        disk.sync(fd)
    disk.write(fd, b"a")
    assert disk.fired == 2


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_each_kind_of_call_can_fail_alone(disk: CrashDisk, tmp_path: Path, kind: str) -> None:
    def calls(prefix: str) -> dict[str, BaseException | None]:
        seen: dict[str, BaseException | None] = {}
        disk.mkdir(tmp_path / f"{prefix}x")
        disk.write_file(tmp_path / f"{prefix}y", b"hello")
        fd = disk.open(tmp_path / f"{prefix}y", "w")
        address = disk.map(fd, 5)
        steps: dict[str, Callable[[], object]] = {
            "create_file": lambda: disk.open(tmp_path / f"{prefix}new", "c"),
            "open_file": lambda: disk.open(tmp_path / f"{prefix}y"),
            "pread": lambda: disk.read(fd, 5),
            "pwrite": lambda: disk.write(fd, b"z"),
            "sync_file": lambda: disk.sync(fd),
            "sync_dir": lambda: disk.sync_folder(tmp_path),
            "truncate_file": lambda: disk.truncate(fd, 2),
            "file_size": lambda: disk.size(fd),
            "rename_file": lambda: disk.rename(tmp_path / f"{prefix}y", tmp_path / f"{prefix}z"),
            "unlink_file": lambda: disk.unlink(tmp_path / f"{prefix}{'y' if kind == 'rename_file' else 'z'}"),
            "make_dir": lambda: disk.mkdir(tmp_path / f"{prefix}d"),
            "remove_dir": lambda: disk.rmdir(tmp_path / f"{prefix}x"),
            "map_file": lambda: check_map(disk.map(fd, 5)),
            "store_mapped": lambda: disk.store(fd, address, b"q"),
            "close_file": lambda: disk.close(fd),
        }
        for name, call in steps.items():
            if name == kind:
                disk.fail_at(1, errno.EIO, kinds={kind})
            try:
                call()
                seen[name] = None
            except OSError as error:
                seen[name] = error
        return seen

    seen = calls("a")
    assert [name for name, error in seen.items() if error] == [kind]
    assert set(seen) == set(KINDS)
    assert disk.fired == 1
    assert disk.calls[kind] >= 1


def check_map(address: int) -> None:
    if not address:
        raise OSError(errno.EIO, "no map")


def test_with_no_kinds_named_every_call_counts_but_closes_and_mapped_stores(disk: CrashDisk, tmp_path: Path) -> None:
    def scenario() -> None:
        disk.write_file(tmp_path / "a", b"data")
        fd = disk.open(tmp_path / "a", "w")
        try:
            disk.read(fd, disk.size(fd))
        finally:
            disk.close(fd)

    failed = 0
    while True:
        failed += 1
        before = disk.fired
        disk.fail_at(failed, errno.EIO)
        try:
            scenario()
        except OSError:
            assert disk.fired == before + 1
        else:
            break
        disk.clear_faults()
    assert failed - 1 == 8  # create, pwrite, sync, rename, sync_dir, open, size, pread
    assert {"close_file", "store_mapped"}.isdisjoint(FAULT_KINDS)


def test_a_plan_that_makes_no_sense_is_refused(disk: CrashDisk) -> None:
    with pytest.raises(ValueError):
        disk.fail_at(0, errno.EIO)
    with pytest.raises(ValueError):
        disk.fail_at(1, 0)
    with pytest.raises(ValueError):
        disk.fail_at(1, errno.EIO, kinds={"fsync"})
