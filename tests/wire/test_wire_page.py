"""docs/wire.md names what the code has: every -ERR text, every field of CONNECT and INFO, in their order."""

import re
from pathlib import Path

import msgspec

from penstock.wire import errors
from penstock.wire.connect import Connect
from penstock.wire.info import Info
from penstock.wire.parser import FAULTS

PAGE = (Path(__file__).parent.parent.parent / "docs" / "wire.md").read_text(encoding="utf-8")


def part(title: str) -> str:
    """The text under a heading of the page."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    assert found, f"no heading {title!r}"
    return found[1]


def test_every_error_text_stands_in_the_table_and_no_other() -> None:
    texts = {value for name, value in vars(errors).items() if name.isupper() and isinstance(value, str)}
    texts |= {
        errors.publish_violation("SUBJECT"),
        errors.reply_violation("SUBJECT"),
        errors.subscription_violation("SUBJECT"),
        errors.subscription_withdrawn("SUBJECT", None, "SID"),
        errors.tokens_violation("SUBJECT"),
    }
    assert set(re.findall(r"^\| `(.+?)` \| (?:yes|no) \|", part("-ERR"), re.M)) == texts


def test_every_fault_stands_in_the_table_with_what_is_heard() -> None:
    for fault, text in zip(FAULTS[1:], errors.FAULT_TEXTS[1:], strict=True):
        received = f"`{text}`, close" if text else "nothing, close"
        assert re.search(rf"^\| {fault} \| .* \| {re.escape(received)} \|$", part("Faults"), re.M), fault


def test_every_field_of_connect_stands_in_the_table() -> None:
    named = re.findall(r"^\| ((?:`[a-z_]+` ?)+)\|", part("CONNECT"), re.M)
    fields = {name.strip("`") for row in named for name in row.split()}
    assert fields == {field.encode_name for field in msgspec.structs.fields(Connect)} | {"import", "export"}


def test_the_fields_of_info_stand_in_their_order_with_what_may_be_left_out() -> None:
    listed = [word for line in part("INFO").splitlines() if line.startswith("    ") for word in line.split()]
    fields = msgspec.structs.fields(Info)
    assert listed == [field.encode_name + ("" if field.required else "?") for field in fields]
