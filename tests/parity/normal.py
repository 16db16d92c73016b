"""Values that differ from run to run are replaced by placeholders: times, ids, ports, the Go version. Everything else
is compared.

A payload that is JSON exactly as Go writes it (compact, `<>&` escaped) is kept as a parsed value, keys in their order;
any other payload is kept as text, so that its exact bytes are compared.
"""

from __future__ import annotations

import base64
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from support.wire_client import Frame

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
SERVER_ID = re.compile(r"\bN[A-Z2-7]{55}\b")
CURVE_KEY = re.compile(r"\bX[A-Z2-7]{55}\b")
TEXT_MAX = 1000
DAY = timedelta(days=1)
NUID = re.compile(r"^[0-9A-Za-z]{22}$")
# Keys whose values are always replaced: they belong to a process, a connection or a moment.
BY_KEY = {"rtt", "client_id", "cid", "port", "nonce", "go", "git_commit", "active", "uptime", "idle"}
BY_KEY |= {"pause_remaining", "ack_time"}
ACK_TIME = re.compile(r"(\$JS\.ACK\.[^. ]+\.[^. ]+\.\d+\.\d+\.\d+)\.\d{19}\.(\d+)")
FLOW = re.compile(r"(\$JS\.FC\.[^. ]+\.[^. ]+)\.[0-9A-Za-z]{4}\b")
MADE_UP = re.compile(r"^[0-9A-Za-z]{8}$")  # the name of a consumer that was created without one
PIN = re.compile(rb"Nats-Pin-Id: ([0-9A-Za-z]{22})")
IDENTITY = re.compile(r"(Nats-Stream-Identity|identity does not match): [0-9A-Za-z]{8}\b")
REMAINING = re.compile(r"(\"pause_remaining\":)\d+")  # in the text of an answer that an audit repeats
PIN_KEYS = ("pinned_client_id", "pinned_id")
OURS = {"product"}  # fields that only Penstock has
THEIRS = {"git_commit", "xkey"}  # of INFO: the other server's build, and its key for auth callouts


def without_times(text: str) -> str:
    """`text` with the times of this run replaced; a requested time (of another day) stays."""

    def replace(found: re.Match[str]) -> str:
        moment = found[0]
        fraction = found[1] or ""
        try:
            seconds = datetime.fromisoformat(moment.replace(fraction, "").replace("Z", "+00:00"))
        except ValueError:
            return moment  # the thirtieth of February was asked for, too
        if abs(datetime.now(UTC) - seconds) > DAY:
            return moment
        if fraction.endswith("0"):
            return "<time with trailing zeros>"
        return "<time>" if moment.endswith("Z") else "<time not in UTC>"

    return TIME.sub(replace, text)


class Normal:
    """Makes frames comparable. `names` maps words of this run (the account) to their placeholders."""

    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def learn(self, value: Any) -> None:
        """Number the names and pins that the server generates, in the order in which they appear."""
        if isinstance(value, list):
            for item in value:
                self.learn(item)
        if not isinstance(value, dict):
            return
        config, name = value.get("config"), value.get("name")
        is_consumer = "stream_name" in value and isinstance(config, dict) and isinstance(name, str)
        if is_consumer and not {"name", "durable_name"} & set(config) and MADE_UP.match(name):
            self._number(name, "consumer")
        for key in PIN_KEYS:
            if value.get(key):
                self._number(value[key], "pin")
        for item in value.values():
            self.learn(item)

    def _number(self, made_up: str, noun: str) -> None:
        if made_up not in self._names:
            count = sum(placeholder.startswith(f"<{noun} ") for placeholder in self._names.values())
            self._names[made_up] = f"<{noun} {count + 1}>"

    def text(self, data: bytes | str) -> str:
        text = data if isinstance(data, str) else data.decode("utf-8", "backslashreplace")
        text = IDENTITY.sub(r"\1: <identity>", REMAINING.sub(r"\1<ns>", text))
        text = FLOW.sub(r"\1.<random>", ACK_TIME.sub(r"\1.<ns>.\2", text))
        for name, placeholder in self._names.items():
            text = text.replace(name, placeholder)
        if len(text) > TEXT_MAX:
            text = f"{text[:100]}<and so on, {len(text)} in all>"
        text = SERVER_ID.sub("<server id>", text)
        return without_times(CURVE_KEY.sub("<xkey>", text))

    def value(self, value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            if "flags" in value and "seq" in value:  # a server's own introduction counts what it has sent
                value = value | {"seq": "<seq>"}
            return {self.text(k): self.value(v, k) for k, v in value.items() if k not in OURS}
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if key in BY_KEY and value:
            return f"<{key}>"
        if isinstance(value, str):
            if key in ("hdrs", "data"):
                return self._base64(value)
            if key == "id" and NUID.match(value):
                return "<nuid>"
            return self.text(value)
        if key == "id" and isinstance(value, int):
            return "<id>"
        return value

    def _base64(self, value: str) -> str:
        """Decode base64, so that times in it can be replaced and people can read it."""
        try:
            data = base64.b64decode(value, validate=True)
        except ValueError:
            return value
        return "base64: " + self.text(data)

    def payload(self, data: bytes) -> dict[str, Any]:
        """`{"json": …}` or `{"text": …}`; nothing for no bytes."""
        if not data:
            return {}
        if data[:1] in b"{[":
            try:
                value = json.loads(data)
            except ValueError:
                value = None
            if value is not None and go_json(value) == data:
                self.learn(value)
                return {"json": self.value(value)}
        return {"text": self.text(data)}

    def frame(self, frame: Frame) -> dict[str, Any]:
        if frame.verb not in ("MSG", "HMSG"):
            text = frame.text
            if frame.verb == "INFO":
                assert text.endswith(b"} "), text
                info = {key: value for key, value in json.loads(text).items() if key not in THEIRS}
                return {"frame": "INFO", "json": self.value(info)}
            return {"frame": frame.verb, **({"text": self.text(text)} if text else {})}
        kept: dict[str, Any] = {
            "frame": frame.verb,
            "subject": self.text(frame.subject),
            "sid": frame.sid.decode("latin-1"),
        }
        if frame.reply is not None:
            kept["reply"] = self.text(frame.reply)
        if frame.headers is not None:
            pin = PIN.search(frame.headers)
            if pin:
                self._number(pin[1].decode(), "pin")
            kept["headers"] = self.text(frame.headers)
        return kept | self.payload(frame.payload)


def go_json(value: Any) -> bytes:
    """JSON as Go's encoder writes it."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode("utf-8", "surrogateescape")
