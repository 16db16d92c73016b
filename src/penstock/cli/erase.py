"""penstock erase: delete messages and overwrite their headers and payload, so that no file of the store holds them."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.check.open_store import OpenStore
from penstock.cli.output import OK, REFUSED, complain, console, count, print_json
from penstock.errors import UsageError
from penstock.store.open.stream_folders import shown_names

ERASE_MAX = 1_000_000


def erase(root: str, name: str | None, account: str | None, texts: Sequence[str], as_json: bool) -> int:
    """Erase the sequences; 1 when some of them hold no message."""
    seqs = parse_seqs(texts)
    with OpenStore(root, account, read_only=False) as store:
        folder = store.one(name)
        stream = store.stream(folder)
        erased = [seq for seq in seqs if stream.erase(seq)]
        shown = shown_names(store.folders)[folder]
    missing = [seq for seq in seqs if seq not in set(erased)]
    if as_json:
        print_json(
            {"store": store.path, "account": folder.account, "stream": folder.name, "erased": erased,
             "missing": missing}
        )  # fmt: skip
    else:
        console().print(f"{count(len(erased), 'message')} of {shown} erased", soft_wrap=True, markup=False)
    if missing:
        listed = ", ".join(map(str, missing[:8])) + (" …" if len(missing) > 8 else "")
        complain(f"{shown} in {store.path} holds no message {listed}: deleted before, or never there")
    return REFUSED if missing else OK


def parse_seqs(texts: Sequence[str]) -> list[int]:
    """Sequences from "17" and "20-25"."""
    found: dict[int, None] = {}
    for text in texts:
        first, dash, last = text.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or not 0 < int(first) < 2**63:
            raise UsageError(f"{text!r} is no sequence: a number above 0, or a range such as 20-25")
        stop = int(last or first) + 1
        if stop <= int(first) or stop - int(first) > ERASE_MAX:
            raise UsageError(f"{text!r}: a range goes up, and has at most {ERASE_MAX:,} sequences")
        found.update(dict.fromkeys(range(int(first), stop)))
    return list(found)
