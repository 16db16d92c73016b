"""The crash model itself: what is durable is in every image, what is loose may be missing, nothing is invented."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.testing import MODES, CrashDisk, CrashImage, crash_image, crash_images

MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None


class Bench:
    """A directory on tmpfs, a CrashDisk in it, and the images made of it."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(dir=MEMORY))
        self.root = self.path / "root"
        self.root.mkdir()
        self.disk = CrashDisk(self.root)

    def images(self, count: int = 200, seed: int = 1, modes: tuple[str, ...] = MODES) -> Iterator[CrashImage]:
        """Images cut at the end of the log."""
        disk = self.disk
        for image in crash_images(disk, self.path, count=count, seed=seed, modes=modes, start=disk.position):  # type: ignore[arg-type]
            yield image
            image.remove()

    def states(self, name: str = "a", **options: object) -> set[bytes | None]:
        """What a file can hold after a crash now; None where it is missing."""
        return {read(image.path / name) for image in self.images(**options)}  # type: ignore[arg-type]

    def put(self, name: str, data: bytes) -> int:
        """A durable file, still open."""
        fd = self.disk.open(self.root / name, "c")
        self.disk.write(fd, data)
        self.disk.sync(fd)
        self.disk.sync_folder(self.root)
        return fd


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    shutil.rmtree(bench.path)


def read(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def tree(path: Path) -> dict[str, bytes | None]:
    """Every file's bytes, and None for every directory, by path."""
    found = sorted(path.rglob("*"))
    return {str(p.relative_to(path)): p.read_bytes() if p.is_file() else None for p in found}


# ---------------------------------------------------------------------------------------------------- data and its sync


def test_synced_data_is_in_every_image(bench: Bench) -> None:
    bench.put("a", b"kept")
    assert bench.states() == {b"kept"}


def test_unsynced_data_may_be_there_or_not(bench: Bench) -> None:
    fd = bench.put("a", b"kept")
    bench.disk.write(fd, b"+more", 4)
    assert bench.states() == {b"kept", b"kept+more", b"kept\0\0\0\0\0"}
    assert bench.states(modes=("none",)) == {b"kept"}
    assert bench.states(modes=("kill",)) == {b"kept+more"}


def test_a_missing_write_leaves_zeros_below_a_later_one(bench: Bench) -> None:
    fd = bench.put("a", b"")
    bench.disk.write(fd, b"11", 0)
    bench.disk.write(fd, b"22", 2)
    assert bench.states(modes=("reordered",)) == {b"", b"11", b"1122", b"\0\x0022"}
    assert bench.states(modes=("prefix",)) == {b"", b"11", b"1122"}


def test_an_unsynced_truncation_may_be_undone(bench: Bench) -> None:
    fd = bench.put("a", b"12345")
    bench.disk.truncate(fd, 2)
    assert bench.states() == {b"12345", b"12"}
    bench.disk.sync(fd)
    assert bench.states() == {b"12"}


def test_the_sync_of_one_file_says_nothing_about_another(bench: Bench) -> None:
    fd, other = bench.put("a", b"1"), bench.put("b", b"1")
    bench.disk.write(fd, b"2")
    bench.disk.write(other, b"2")
    bench.disk.sync(other)
    assert bench.states("a") == {b"1", b"2"}
    assert bench.states("b") == {b"2"}


def test_a_mapped_store_is_loose_until_the_file_is_synced(bench: Bench) -> None:
    fd = bench.put("HEAD", b"0000")
    address = bench.disk.map(fd, 4)
    bench.disk.store(fd, address, b"1111")
    assert bench.states("HEAD") == {b"0000", b"1111"}
    bench.disk.sync(fd)
    assert bench.states("HEAD") == {b"1111"}
    bench.disk.unmap(address, 4)


def test_a_torn_write_is_whole_within_each_sector(bench: Bench) -> None:
    size, offset = 2000, 300
    fd = bench.put("a", b"o" * 4096)
    bench.disk.write(fd, b"n" * size, offset)
    cuts = [offset, 512, 1024, 1536, 2048, offset + size]
    shapes = set()
    for state in bench.states(modes=("torn",), count=400):
        assert state is not None and len(state) == 4096
        assert state[:offset] == b"o" * offset and set(state[offset + size :]) == set(b"o")
        sectors = [set(state[a:b]) for a, b in pairwise(cuts)]
        assert all(sector in ({ord("o")}, {ord("n")}) for sector in sectors)
        shapes.add(tuple(sector == {ord("n")} for sector in sectors))
    assert len(shapes) > 15  # of 2^5
    assert {sum(shape) for shape in shapes} == {0, 1, 2, 3, 4, 5}


def test_a_torn_append_can_end_early_in_zeros_or_after_a_hole(bench: Bench) -> None:
    fd = bench.put("a", b"")
    bench.disk.write(fd, b"n" * 1200)
    states = bench.states(modes=("torn",), count=400)
    assert {b"", b"n" * 512, b"n" * 1024, b"n" * 1200, bytes(512) + b"n" * 512, bytes(1200)} <= states
    assert b"n" * 512 + bytes(688) in states


def test_data_of_a_failed_sync_stays_loose_until_written_again(bench: Bench) -> None:
    """Linux forgets the dirty pages at the error, so a second fsync that succeeds has synced nothing."""
    fd = bench.put("a", b"old")
    bench.disk.write(fd, b"new")
    bench.disk.fail_at(1, errno.EIO, kinds={"sync_file"})
    with pytest.raises(OSError):
        bench.disk.sync(fd)
    assert bench.states() == {b"old", b"new"}
    bench.disk.sync(fd)
    assert bench.states() == {b"old", b"new"}
    bench.disk.write(fd, b"N")
    bench.disk.sync(fd)
    assert bench.states() == {b"Nld", b"New"}
    bench.disk.write(fd, b"ew", 1)
    bench.disk.sync(fd)
    assert bench.states() == {b"New"}


def test_a_crash_during_a_sync_may_lose_what_it_was_to_save(bench: Bench) -> None:
    fd = bench.put("a", b"")
    bench.disk.write(fd, b"1")
    bench.disk.sync(fd)
    bench.disk.open(bench.root / "b", "c")
    bench.disk.sync_folder(bench.root)
    kinds = [op.kind for op in bench.disk.ops]
    for number, cut, name, expected in (
        (1, kinds.index("sync_file", 3), "a", b""),
        (2, kinds.index("sync_file", 3) + 1, "a", b"1"),
        (3, len(kinds) - 1, "b", None),
        (4, len(kinds), "b", b""),
    ):
        image = crash_image(bench.disk, bench.path / f"{number}", cut=cut, mode="none")
        assert read(image.path / name) == expected, image.description


def test_a_write_during_a_sync_is_not_covered_by_it(bench: Bench) -> None:
    fd = bench.put("a", b"")
    bench.disk.write(fd, b"1")
    bench.disk.sync_delay_us = 50_000
    thread = threading.Thread(target=bench.disk.sync, args=(fd,))
    thread.start()
    while bench.disk.calls["sync_file"] < 2:
        time.sleep(0.001)
    bench.disk.write(fd, b"2", 1)
    bench.disk.open(bench.root / "b", "c")
    thread.join()
    assert bench.states(modes=("kill", "none")) == {b"1", b"12"}
    bench.disk.sync_delay_us = 0
    bench.disk.sync(fd)
    assert bench.states() == {b"12"}


def test_half_of_a_short_write_is_in_the_images(bench: Bench) -> None:
    fd = bench.put("a", b"")
    bench.disk.fail_at(1, errno.ENOSPC, kinds={"pwrite"}, short=True)
    with pytest.raises(OSError):
        bench.disk.write(fd, b"12345678")
    assert bench.states(modes=("kill", "none")) == {b"", b"1234"}


# ------------------------------------------------------------------------------------------------- names and their sync


def test_a_synced_file_whose_directory_is_not_synced_may_be_missing(bench: Bench) -> None:
    fd = bench.disk.open(bench.root / "a", "c")
    bench.disk.write(fd, b"data")
    bench.disk.sync(fd)
    assert bench.states() == {None, b"data"}
    bench.disk.sync_folder(bench.root)
    assert bench.states() == {b"data"}


def test_a_rename_without_a_directory_sync_may_be_undone(bench: Bench) -> None:
    bench.put("a", b"old")
    fd = bench.disk.open(bench.root / "a.tmp", "c")
    bench.disk.write(fd, b"new")
    bench.disk.sync(fd)
    bench.disk.rename(bench.root / "a.tmp", bench.root / "a")
    seen = {tuple(tree(image.path).items()) for image in bench.images()}
    assert seen == {(("a", b"old"),), (("a", b"old"), ("a.tmp", b"new")), (("a", b"new"),)}
    bench.disk.sync_folder(bench.root)
    assert bench.states() == {b"new"}


def test_a_rename_before_the_data_is_synced_can_leave_an_empty_file(bench: Bench) -> None:
    bench.put("a", b"old")
    fd = bench.disk.open(bench.root / "a.tmp", "c")
    bench.disk.write(fd, b"new")
    bench.disk.rename(bench.root / "a.tmp", bench.root / "a")
    assert {b"old", b"new", b""} <= bench.states()


def test_an_unlink_without_a_directory_sync_may_be_undone(bench: Bench) -> None:
    bench.put("a", b"old")
    bench.disk.unlink(bench.root / "a")
    assert bench.states() == {None, b"old"}
    bench.disk.sync_folder(bench.root)
    assert bench.states() == {None}


def test_names_of_one_directory_are_lost_from_some_change_onwards(bench: Bench) -> None:
    for name in "abcd":
        bench.disk.open(bench.root / name, "c")
    seen = {"".join(sorted(os.listdir(image.path))) for image in bench.images()}
    assert seen == {"", "a", "ab", "abc", "abcd"}


def test_a_directory_that_is_lost_takes_its_files_along(bench: Bench) -> None:
    bench.disk.mkdir(bench.root / "d")
    fd = bench.disk.open(bench.root / "d/a", "c")
    bench.disk.write(fd, b"data")
    bench.disk.sync(fd)
    bench.disk.sync_folder(bench.root / "d")
    assert {tuple(tree(image.path)) for image in bench.images()} == {(), ("d", "d/a")}
    bench.disk.sync_folder(bench.root)
    assert {tuple(tree(image.path)) for image in bench.images()} == {("d", "d/a")}


def test_a_rename_to_another_directory_needs_both_to_be_synced(bench: Bench) -> None:
    bench.disk.mkdir(bench.root / "d")
    bench.put("a", b"data")
    bench.disk.rename(bench.root / "a", bench.root / "d/b")
    for folder, expected in (("", {("a", "d"), ("d", "d/b")}), ("d", {("d", "d/b")})):
        bench.disk.sync_folder(bench.root / folder)
        assert {tuple(tree(image.path)) for image in bench.images()} == expected


def test_a_file_that_moved_on_under_a_lost_rename_is_found_in_both_places(bench: Bench) -> None:
    """Strict: the second rename is synced, the first only in one of its two directories."""
    bench.disk.mkdir(bench.root / "d")
    bench.put("a", b"data")
    bench.disk.rename(bench.root / "a", bench.root / "d/b")
    bench.disk.rename(bench.root / "d/b", bench.root / "d/c")
    bench.disk.sync_folder(bench.root / "d")
    assert {tuple(tree(image.path)) for image in bench.images()} == {("a", "d", "d/c"), ("d", "d/c")}


def test_a_directory_keeps_its_files_when_it_is_renamed(bench: Bench) -> None:
    bench.disk.mkdir(bench.root / "d")
    bench.disk.write_file(bench.root / "d/a", b"one")
    bench.disk.sync_folder(bench.root)
    bench.disk.rename(bench.root / "d", bench.root / "e")
    bench.disk.write_file(bench.root / "e/b", b"two")
    assert {tuple(tree(image.path)) for image in bench.images()} == {("d", "d/a", "d/b"), ("e", "e/a", "e/b")}


def test_a_failed_directory_sync_promises_nothing(bench: Bench) -> None:
    bench.disk.open(bench.root / "a", "c")
    bench.disk.fail_at(1, errno.EIO, kinds={"sync_dir"})
    with pytest.raises(OSError):
        bench.disk.sync_folder(bench.root)
    assert bench.states() == {None, b""}


# ------------------------------------------------------------------------------------------------------ cuts and marks


def test_cuts_come_in_order_each_at_least_once_and_marks_with_them(bench: Bench) -> None:
    fd = bench.put("a", b"")
    for n in range(10):
        bench.disk.write(fd, b"x", n)
        bench.disk.sync(fd)
        bench.disk.mark(n)
    cuts = []
    modes = set()
    for image in crash_images(bench.disk, bench.path, count=100, seed=5):
        cuts.append(image.cut)
        modes.add(image.mode)
        last = -1 if image.mark is None else image.mark
        assert image.marks == list(range(last + 1))
        assert len(read(image.path / "a") or b"") >= last + 1
        assert str(image.seed) in image.description and image.mode in image.description
        image.remove()
    assert len(cuts) == 100 and cuts == sorted(cuts)
    assert set(cuts) == set(range(bench.disk.position + 1))
    assert modes == set(MODES)
    few = [image.cut for image in crash_images(bench.disk, bench.path, count=5, seed=5)]
    assert len(set(few)) == 5


def test_a_mark_counts_from_the_very_cut_at_which_it_was_made(bench: Bench) -> None:
    bench.disk.mark("start")
    bench.put("a", b"1")
    bench.disk.mark("end")
    last = bench.disk.position
    found = [crash_image(bench.disk, bench.path / f"{cut}", cut=cut).marks for cut in (0, last - 1, last)]
    assert found == [["start"], ["start"], ["start", "end"]]


def test_an_image_comes_again_from_its_cut_mode_and_seed(bench: Bench) -> None:
    fd = bench.put("a", b"")
    for n in range(30):
        bench.disk.write(fd, bytes([n + 1]) * 700, 700 * n)
    for image in crash_images(bench.disk, bench.path, count=60, seed=3):
        again = crash_image(bench.disk, bench.path / "again", cut=image.cut, mode=image.mode, seed=image.seed)
        assert tree(again.path) == tree(image.path)
        assert again.description == image.description
        again.remove()
        image.remove()
    with pytest.raises(ValueError):
        crash_image(bench.disk, bench.path / "again", cut=1000)


def test_a_crash_of_a_crash_begins_at_the_image(bench: Bench) -> None:
    fd = bench.put("a", b"old")
    bench.disk.write(fd, b"new")
    image = crash_image(bench.disk, bench.path / "image", cut=bench.disk.position)
    disk = CrashDisk(image.path)
    disk.write(disk.open(image.path / "a", "w"), b"+", 3)
    states = {read(i.path / "a") for i in crash_images(disk, bench.path, count=30, seed=1, modes=("kill", "none"))}
    assert states == {b"new", b"new+"}


def test_a_change_behind_the_disks_back_is_named(bench: Bench) -> None:
    (bench.root / "d").mkdir()
    bench.disk.open(bench.root / "d/a", "c")
    with pytest.raises(ValueError, match="behind the disk's back"):
        next(crash_images(bench.disk, bench.path, count=1, seed=1))


def test_files_and_directories_of_an_image_belong_to_their_owner_alone(bench: Bench) -> None:
    bench.disk.mkdir(bench.root / "d")
    bench.disk.open(bench.root / "d/a", "c")
    image = crash_image(bench.disk, bench.path / "image", cut=2)
    assert oct(os.stat(image.path / "d").st_mode)[-3:] == "700"
    assert oct(os.stat(image.path / "d/a").st_mode)[-3:] == "600"


# ------------------------------------------------------------------------------- any sequence of calls, any crash of it

NAMES = ("a", "b", "d/a", "d/b")
Step = tuple[str, str, str, int, bytes]


@dataclass
class File:
    """Its bytes, and per byte whether it is clean (0), dirty (1) or lost to a failed sync (2)."""

    content: bytearray = field(default_factory=bytearray)
    state: bytearray = field(default_factory=bytearray)
    is_cut: int = 0  # the same for truncations: an old byte may come back where one is loose

    def resize(self, size: int) -> None:
        fresh = bytes([2 if self.is_cut == 2 else 1])
        if size < len(self.content):
            self.is_cut = max(self.is_cut, 1)
        self.content = self.content[:size].ljust(size, b"\0")
        self.state = self.state[:size].ljust(size, fresh)

    def write(self, offset: int, data: bytes) -> None:
        if offset + len(data) > len(self.content):
            cut = self.is_cut
            self.resize(offset + len(data))
            self.is_cut = cut
        self.content[offset : offset + len(data)] = data
        self.state[offset : offset + len(data)] = bytes([1]) * len(data)

    def sync(self, *, works: bool) -> None:
        self.state = self.state.replace(b"\1", b"\0" if works else b"\2")
        if self.is_cut == 1:
            self.is_cut = 0 if works else 2


class Model:
    """An independent and slower account of what must survive: by byte and by name, not by change."""

    def __init__(self, disk: CrashDisk, root: Path) -> None:
        self.disk, self.root = disk, root
        self.names: dict[str, File] = {}
        self.pending: list[tuple[set[str], set[str]]] = []  # directories to sync, names touched
        self.promises: dict[int, list[tuple[str, bytes | None, bytes]]] = {}
        self.live: dict[int, dict[str, bytes | None]] = {}
        self.note()

    def note(self) -> None:
        """What every image cut here must have: by name the bytes and which of them count; None for no such file."""
        loose = set().union(*(names for _, names in self.pending)) if self.pending else set()
        promises: list[tuple[str, bytes | None, bytes]] = []
        for name in NAMES:
            if name not in loose and (not name.startswith("d/") or "d" not in loose):
                file = self.names.get(name)
                promises.append((name, bytes(file.content), bytes(file.state)) if file else (name, None, b""))
        self.promises[self.disk.position] = promises
        self.live[self.disk.position] = tree(self.root)

    def touch(self, *names: str) -> None:
        self.pending.append(({os.path.dirname(name) for name in names}, set(names)))

    def run(self, step: Step) -> None:
        kind, name, other, number, data = step
        file = self.names.get(name)
        path = self.root / name
        if kind == "create":
            self.disk.close(self.disk.open(path, "c"))
            if file is None:
                self.names[name] = File()
                self.touch(name)
            else:
                file.resize(0)
                file.is_cut = max(file.is_cut, 1)
        elif kind == "sync_dir":
            folder = os.path.dirname(name)
            self.disk.sync_folder(self.root / folder)
            for folders, _ in self.pending:
                folders.discard(folder)
            self.pending = [entry for entry in self.pending if entry[0]]
        elif file is None:
            return
        elif kind == "unlink":
            self.disk.unlink(path)
            del self.names[name]
            self.touch(name)
        elif kind == "rename" and other != name:
            self.disk.rename(path, self.root / other)
            self.names[other] = self.names.pop(name)
            self.touch(name, other)
        elif kind in ("write", "truncate", "sync", "sync_fails"):
            self.run_on_file(kind, file, path, number, data)
        self.note()

    def run_on_file(self, kind: str, file: File, path: Path, number: int, data: bytes) -> None:
        fd = self.disk.open(path, "w")
        if kind == "write":
            self.disk.write(fd, data, number)
            file.write(number, data)
        elif kind == "truncate":
            self.disk.truncate(fd, number)
            file.resize(number)
        elif kind == "sync":
            self.disk.sync(fd)
            file.sync(works=True)
        else:
            self.disk.fail_at(1, errno.EIO, kinds={"sync_file"})
            with pytest.raises(OSError):
                self.disk.sync(fd)
            file.sync(works=False)
        self.disk.close(fd)

    def check(self, image: CrashImage) -> None:
        for name, content, state in self.promises[image.cut]:
            found = read(image.path / name)
            if content is None or found is None:
                assert found is content, f"{name}: {image.description}"
                continue
            for offset, (byte, mark) in enumerate(zip(content, state, strict=True)):
                if mark == 0:
                    assert offset < len(found) and found[offset] == byte, f"{name} at {offset}: {image.description}"
        if image.mode == "kill":
            assert tree(image.path) == self.live[image.cut], image.description


steps = st.lists(
    st.tuples(
        st.sampled_from(("create", "write", "write", "sync", "sync_dir", "truncate", "rename", "unlink", "sync_fails")),
        st.sampled_from(NAMES),
        st.sampled_from(NAMES),
        st.integers(0, 1200),
        st.one_of(st.binary(min_size=1, max_size=8), st.integers(1, 255).map(lambda n: bytes([n]) * 1100)),
    ),
    max_size=30,
)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=steps, seed=st.integers(0, 2**32))
def test_every_image_holds_all_that_was_durable(steps: list[Step], seed: int) -> None:
    bench = Bench()
    try:
        model = Model(bench.disk, bench.root)
        bench.disk.mkdir(bench.root / "d")
        model.touch("d")
        model.note()
        for step in [*(("create", name, name, 0, b"") for name in NAMES), *steps]:
            model.run(step)
        for image in crash_images(bench.disk, bench.path, count=80, seed=seed):
            model.check(image)
            image.remove()
    finally:
        shutil.rmtree(bench.path)
