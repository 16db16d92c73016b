"""Runs cases of the file fuzzer in a process of its own: if it dies, the test survives, and the last line names the
case.

    python file_worker.py SEED KIND START STOP

Each case writes a store with a mutated file and uses every way into it: verify, inspect, a read beside a writer, a
scan, an open for writing, a second one, a repair. It prints a line of JSON per failure, `at N` before each case, and
`done` at the end.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import shutil
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).parents[1])  # it runs in a process of its own, without pytest

from penstock.check import problem, repair  # noqa: E402
from penstock.check.blocks import UNCONFIRMED  # noqa: E402
from penstock.check.open_store import OpenStore  # noqa: E402
from penstock.check.store import check_store  # noqa: E402
from penstock.cli import inspect  # noqa: E402
from penstock.consumer.overview import read_consumers  # noqa: E402
from penstock.db.database import Database  # noqa: E402
from penstock.errors import ApiError, CorruptBlock, NewerFormat, PenstockError  # noqa: E402
from penstock.scan import to_table  # noqa: E402
from penstock.scan.plan import view_at  # noqa: E402
from penstock.store.deletes.deletes import read_deletes  # noqa: E402
from penstock.store.read.snapshot import Snapshot  # noqa: E402
from penstock.testing import FakeClock  # noqa: E402
from support import file_bases  # noqa: E402
from support.file_bases import FILTERS, Base, Content, Files, contents, make_base, small_blocks, write_files  # noqa: E402
from support.file_mutations import kind_of, mutate  # noqa: E402

IS_SANITIZED = "asan" in os.environ.get("LD_PRELOAD", "")
SECONDS_MAX = 120 if IS_SANITIZED else 30
MEMORY_MAX = (400 if IS_SANITIZED else 48) << 20
"""A case may take so much more memory than before it, for files of some 100 kB in all: buffers have a size of their
own."""
NOW = FakeClock(1_800_000_000 * file_bases.SECOND)
# How often each kind of file is the mutated one.
WEIGHTS = {"block": 3, "summary": 4, "checkpoint": 6, "head": 2, "checked": 4, "identity": 2, "log": 4, "lines": 6}
Live = dict[int, Content]


class Failure(AssertionError):
    """A case broke a promise."""


class ControlSocket:
    """The ways into one store. Each returns what it found; the only exception that may be raised is a PenstockError."""

    def __init__(self, root: Path, stream_id: str) -> None:
        self.root, self.stream_id = root, bytes.fromhex(stream_id)

    def verify(self) -> bool | PenstockError:
        """Whether everything is in order: no damage, and nothing that readers do not see yet."""
        try:
            found = check_store(str(self.root))
            return found.is_ok and not any(UNCONFIRMED in note for one in found.streams for note in one.notes)
        except PenstockError as error:
            return error

    def inspect(self) -> PenstockError | None:
        try:
            with OpenStore(str(self.root)) as store:
                for folder in store.folders:
                    facts = inspect._stream_facts(store, folder, ">", 5)
                    json.dumps(facts)
                    shown = {"store": store.path, "writer": None, "streams": [facts]}
                    inspect._print(shown, [folder.label], is_whole=True)
                    if "error" not in facts:
                        stream = store.stream(folder)
                        assert isinstance(stream.store, Snapshot)
                        read_consumers(stream.store)
                        read_deletes(stream.store.paths.root, stream.store.stream_id)
        except PenstockError as error:
            return error
        return None

    def read(self) -> Live | PenstockError:
        """Read the store as a reader beside a writer."""
        try:
            with Database(self.root, read_only=True, clock=NOW) as db:
                return look_at(db)
        except PenstockError as error:
            return error

    def scan(self) -> Live | PenstockError:
        folder = str(self.root / "$G" / "S")
        try:
            found: list[Live] = []
            for from_checkpoint in (True, False):
                view = view_at(folder, from_checkpoint=from_checkpoint)
                to_table(view, subjects=["s.1.>"])
                to_table(view, since=NOW.now_ns())
                rows = to_table(view, columns=["seq", "subject", "payload"], on_damage="report").to_pylist()
                found.append({row["seq"]: (row["subject"], None, row["payload"]) for row in rows})
            is_same = found[0] == found[1]
            return found[0] if is_same else {-1: ("the view from the checkpoint alone differs", None, b"")}
        except PenstockError as error:
            return error

    def write(self, payload: bytes = b"", *, may_be_refused: bool = False) -> tuple[Live, int] | PenstockError:
        """Open for writing and append `payload`, if one is given. Returns the contents and the new sequence; 0 if the
        configuration rejects the message.
        """
        try:
            with Database(self.root, clock=NOW) as db:
                live, seq = look_at(db), 0
                if payload:
                    stream = db.get_stream("S")
                    try:
                        seq = stream.publish("s.9.new", payload).seq
                    except ApiError:
                        if not may_be_refused:
                            raise
                        return live, 0
                    one = stream.consumer("one")
                    for got in one.fetch(2, timeout=0):
                        got.ack()
                    stream.delete(min(live, default=1)) if seq % 7 == 0 else None
                return live, seq
        except PenstockError as error:
            return error

    def repair(self) -> list[str] | PenstockError:
        """Repair the store, and return the damage that remains; a consumer that cannot be read is kept for a version
        that can.
        """
        try:
            after = repair.repair_store(str(self.root), None).after
            assert after is not None
            return [f"{one.path}: {one.text}" for one in after.damage if "cannot be read" not in one.text]
        except PenstockError as error:
            return error


def look_at(db: Database) -> Live:
    """Everything that the library tells about the stream: its messages, of which a filter must find a subset."""
    assert db.get_stream("T").get(1).data == b"another stream"
    stream = db.get_stream("S")
    live = contents(stream)
    stream.state(), stream.subjects(">"), stream.findings, stream.last(">"), list(stream.consumers())
    stream.read(since=NOW.now_ns() - 10**18)
    for one in FILTERS:
        found = contents(stream, one)
        wrong = {seq for seq, content in found.items() if live.get(seq) != content}
        if wrong:
            raise Failure(f"filter {one} gives what is not there: {sorted(wrong)[:5]}")
    for seq in (1, 2, 50, max(live, default=1)):
        try:
            stream.get(seq)
        except PenstockError:
            continue
    return live


def matching(live: Live, pattern: str) -> set[int]:
    from penstock.base.subject import Filters

    wanted = Filters([pattern])
    return {seq for seq, (subject, _, _) in live.items() if wanted.match(subject)}


@contextmanager
def memory_held(limit: int) -> Iterator[None]:
    """Raise if the process uses more than `limit` bytes above its earlier memory."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before = high_water()
    yield
    more = high_water() - before
    if more > limit:
        raise Failure(f"it took {more >> 20} MiB")


def high_water() -> int:
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
    raise AssertionError("/proc/self/status has no VmHWM")


class Cases:
    """The cases of one base store."""

    def __init__(self, seed: str, kind: str, room: Path) -> None:
        self.seed, self.kind, self.room = seed, kind, room
        self.outside = room / "outside"
        self.outside.mkdir(exist_ok=True)
        (self.outside / "precious.txt").write_bytes(b"precious")
        self.base: Base = make_base(kind, room)
        config = json.loads(self.base.files["$G/S/config.json"].rpartition(b"\nxxh64 ")[0])
        self.door = ControlSocket(room / "store", config["stream_id"])
        self.told: Counter[str] = Counter()
        self.lies()
        beside, written = self.door.read(), self.fresh().write()
        assert isinstance(beside, dict) and isinstance(written, tuple), (beside, written)
        self.beside, self.written = beside, written[0]
        assert self.written == self.base.live | self.base.later, "the base store is what it should be"

    def lies(self, changed: Files | None = None) -> None:
        write_files(self.door.root, self.base.files | (changed or {}))

    def fresh(self, changed: Files | None = None) -> ControlSocket:
        self.lies(changed)
        return self.door

    def choose(self, rng: random.Random) -> Files:
        """Choose the files to mutate, mostly one."""
        names = [name for name in self.base.files if name.startswith("$G/S/") and kind_of(name)]
        weights = [WEIGHTS[kind_of(name)] / sum(kind_of(one) == kind_of(name) for one in names) for name in names]
        chosen = rng.choices(names, weights, k=rng.choice((1, 1, 1, 1, 1, 2)))
        for one, other in (("config.json", "config.copy.json"), ("BATCHES", "BATCHES.copy")):
            pair = {f"$G/S/{one}", f"$G/S/{other}"}
            if pair & set(chosen) and rng.random() < 0.5:
                chosen = sorted(pair)
        changed: Files = {}
        for name in dict.fromkeys(chosen):
            data = self.base.files[name]
            if name.endswith(("config.copy.json", "BATCHES.copy")) and changed and rng.random() < 0.6:
                changed[name] = next(iter(changed.values()))  # both copies get the same wrong value
                continue
            changed[name] = mutate(rng, name, data)
        return changed

    def run(self, number: int) -> None:
        rng = random.Random(f"{self.seed} {self.kind} {number}")
        changed = self.choose(rng)
        names = ", ".join(changed)
        try:
            with memory_held(MEMORY_MAX + 20 * sum(map(len, changed.values()))):
                self.check(rng, changed, number)
        except BaseException as error:
            error.add_note(f"lies in {names}")
            raise
        finally:
            left = {one.name: one.read_bytes() for one in self.outside.iterdir()}
            if left != {"precious.txt": b"precious"}:
                shutil.rmtree(self.outside)
                self.outside.mkdir()
                (self.outside / "precious.txt").write_bytes(b"precious")
                raise Failure(f"files outside the store were touched: {left}; lies in {names}")

    def check(self, rng: random.Random, changed: Files, number: int) -> None:
        kinds = {kind_of(name) for name in changed}
        is_config = {"$G/S/config.json", "$G/S/config.copy.json"} & changed.keys()
        # A mutated helper file may cost no message; a mutated block or both copies of a configuration may cost theirs.
        is_help = not kinds & {"block", "identity", "lines"} or (kinds == {"identity"} and len(is_config) == 1)
        door = self.fresh(changed)
        verdict = door.verify()
        is_ok = verdict is True
        self.is_order = "$G/S/TRUNCATE" in changed  # readers follow what this file says
        self.expect(is_help, "verify", verdict)
        self.expect(False, "inspect", door.inspect())
        beside = door.read()
        self.compare("a read beside a writer", is_help, is_ok, beside, self.beside)
        if number % 2 == 0:
            scanned = door.scan()
            plain = {seq: (subject, None, data) for seq, (subject, _, data) in self.beside.items()}
            self.compare("a scan", is_help, is_ok, scanned, plain, is_scan=True)
        written = door.write(b"appended", may_be_refused=bool(is_config))
        if isinstance(written, PenstockError):
            self.compare("an open for writing", is_help, is_ok, written, self.written)
        else:
            live, seq = written
            self.compare("an open for writing", is_help, is_ok, live, self.written)
            again = door.write()
            if isinstance(again, PenstockError):
                raise Failure(f"a second open: {again!r}") from again
            lost = {one for one in live if again[0].get(one) != live[one] and one != min(live)}
            may_go = not seq or is_config  # a mutated limit may remove it at once
            if lost or (not may_go and again[0].get(seq, ("", None, b""))[2] != b"appended"):
                raise Failure(f"after a second open these are gone: {sorted(lost)[:5]}")
            self.expect(False, "verify after it", door.verify())
        if number % 3 == 0:
            door = self.fresh(changed)
            left = door.repair()
            if is_help and not is_config and left and not isinstance(left, NewerFormat):
                raise Failure(f"a repair left damage: {left!r}")
            if not isinstance(left, PenstockError):
                self.compare("a repaired store", is_help, not is_config, door.read(), self.written)

    def expect(self, is_help: bool, what: str, found: object) -> None:
        if is_help and isinstance(found, PenstockError) and not isinstance(found, NewerFormat):
            raise Failure(f"{what}: {found!r}") from found

    def compare(
        self, what: str, is_help: bool, is_ok: bool, found: Live | PenstockError, wanted: Live, *, is_scan: bool = False
    ) -> None:
        """With a mutated helper file no operation is refused; if verify reports no damage, the contents match to the
        last byte.
        """
        if isinstance(found, PenstockError):
            if is_help and not isinstance(found, NewerFormat) and not (is_scan and isinstance(found, CorruptBlock)):
                raise Failure(f"{what}: {found!r}") from found
            return
        if not is_help:
            return
        if not is_ok:
            found.pop(-1, None)  # only a full view checks whether the listed blocks exist
        may_come = self.base.published | self.base.later
        if is_scan:
            may_come = {seq: (subject, None, data) for seq, (subject, _, data) in may_come.items()}
        # A mutated HEAD within its bounds loses sequences: those that an adoption adds come above them.
        added = {(subject, None if is_scan else headers, data) for subject, headers, data in self.base.later.values()}
        wrong = {seq for seq, one in found.items() if one != may_come.get(seq) and one not in added}
        if wrong:
            raise Failure(f"{what} gives wrong bytes: {sorted(wrong)[:5]}")
        missing = self.base.live.keys() - found.keys()
        if missing and is_ok and not self.is_order:
            raise Failure(f"{what} lacks {sorted(missing)[:5]}, and verify says ok")
        if missing:
            self.told[f"{what} lacks messages; verify told"] += 1
        if not missing and is_ok and found.keys() - wanted.keys() and not self.base.later and self.kind != "truncate":
            raise Failure(f"{what} has too many: {sorted(found.keys() - wanted.keys())[:5]}, and verify says ok")


def quiet() -> None:
    """Discard what inspect prints."""
    os.environ["COLUMNS"] = "200"
    null = open(os.devnull, "w")  # noqa: SIM115
    sys.stdout = null


def main(seed: str, kind: str, start: int, stop: int) -> None:
    out = os.fdopen(os.dup(1), "w", buffering=1)
    quiet()
    problem.PAUSE_S = 0  # type: ignore[assignment]
    room = Path(tempfile.mkdtemp(prefix="penstock-lies-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    try:
        with small_blocks():
            cases = Cases(seed, kind, room)
            for number in range(start, stop):
                faulthandler.dump_traceback_later(SECONDS_MAX, exit=True)
                out.write(f"at {number}\n")
                run_case(cases.run, number, out.write)
            faulthandler.cancel_dump_traceback_later()
        out.write(json.dumps({"told": cases.told}) + "\n")
        out.write("done\n")
    finally:
        shutil.rmtree(room, ignore_errors=True)


def run_case(run: Callable[[int], None], number: int, tell: Callable[[str], Any]) -> None:
    try:
        run(number)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        tell(
            json.dumps(
                {
                    "case": number,
                    "error": repr(error)[:500],
                    "trace": "".join(traceback.format_exception(error))[-6000:],
                }
            )
            + "\n"
        )


if __name__ == "__main__":
    faulthandler.enable()
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
