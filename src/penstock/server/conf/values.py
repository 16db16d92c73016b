"""Findings: collects the errors and warnings of a configuration. The functions check the types of values.

A key's handler raises `Fault` for an invalid value; the other keys are read all the same, so that one start reports all
errors. Texts are nats-server's, including Go's names of types, because people search for them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from penstock.base.duration import NS_PER_SECOND, parse_go_duration
from penstock.server.conf.tree import Node

Handler = Callable[[Node], None]
UNKNOWN = "unknown field {}"


class Fault(Exception):
    """An invalid value; `place` is left out where nats-server gives none."""

    def __init__(self, node: Node | None, text: str) -> None:
        super().__init__(f"{node.place}: {text}" if node is not None else text)


@dataclass(slots=True)
class Findings:
    """The errors and warnings found while a tree is read."""

    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)  # nats-server has them too; -t fails on them
    unsupported: list[str] = field(default_factory=list)  # sections of features that this version does not have
    idle: list[str] = field(default_factory=list)  # keys that are known and have no effect here

    def warn(self, node: Node, key: str, text: str) -> None:
        self.warnings.append(f"{node.place}: invalid use of field {quote(key)}: {text}")

    def refuse(self, node: Node, what: str) -> None:
        """Refuse an unsupported feature that decides about access or the place of data: it must not be ignored."""
        self.errors.append(
            f"{node.place}: {what} is not supported yet: the server does not start rather than ignore it"
        )

    def walk(
        self, tree: Mapping[str, Node], handlers: Mapping[str, Handler], unknown: str = "unknown field {}"
    ) -> None:
        """Pass each value to the handler of its key. A key without one is an error, unless a variable refers to it."""
        for key, node in tree.items():
            handler = handlers.get(key.lower())
            if handler is None:
                if not node.is_used:
                    self.errors.append(f"{node.place}: {unknown.format(quote(key))}")
                continue
            try:
                handler(node)
            except Fault as fault:
                self.errors.append(str(fault))


def keys(handlers: Mapping[str, Handler]) -> dict[str, Handler]:
    """Handlers by key; "a b c" are aliases of one key."""
    return {name: handler for names, handler in handlers.items() for name in names.split()}


def into(target: object, name: str, read: Callable[[Node], Any]) -> Handler:
    """A handler that reads a value and stores it as an attribute of `target`."""

    def handler(node: Node) -> None:
        setattr(target, name, read(node))

    return handler


def checked(read: Callable[[Node], Any]) -> Handler:
    """A handler for a value that has no effect here but must be valid."""

    def handler(node: Node) -> None:
        read(node)

    return handler


def go_type(value: Any) -> str:
    """Go's name for the type of a value."""
    for kind, name in (
        (bool, "bool"),
        (str, "string"),
        (int, "int64"),
        (float, "float64"),
        (datetime, "time.Time"),
        (dict, "map[string]interface {}"),
    ):
        if isinstance(value, kind):
            return name
    return "[]interface {}"


def shown(value: Any) -> str:
    """A value as Go prints it; a map shows only its keys."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return f"map[{' '.join(value)}]"
    if isinstance(value, list):
        return f"[{' '.join(shown(item.value) for item in value)}]"
    return value.strftime("%Y-%m-%d %H:%M:%S +0000 UTC") if isinstance(value, datetime) else str(value)


def quote(text: str) -> str:
    import json

    return json.dumps(text, ensure_ascii=False)


def _mismatch(node: Node, wanted: str) -> Fault:
    return Fault(node, f"interface conversion: interface {{}} is {go_type(node.value)}, not {wanted}")


def text_of(node: Node) -> str:
    if not isinstance(node.value, str):
        raise _mismatch(node, "string")
    return node.value


def flag_of(node: Node) -> bool:
    if not isinstance(node.value, bool):
        raise _mismatch(node, "bool")
    return node.value


def int_of(node: Node) -> int:
    if isinstance(node.value, bool) or not isinstance(node.value, int):
        raise _mismatch(node, "int64")
    return node.value


def map_of(node: Node) -> dict[str, Node]:
    if not isinstance(node.value, dict):
        raise _mismatch(node, "map[string]interface {}")
    return node.value


def texts_of(node: Node, what: str) -> list[str]:
    """One text, or an array of them."""
    if isinstance(node.value, str):
        return [node.value]
    if not isinstance(node.value, list):
        raise Fault(node, f"error parsing {what}: unsupported type {go_type(node.value)}")
    found = []
    for item in node.value:
        if not isinstance(item.value, str):
            raise Fault(item, f"error parsing {what}: unsupported type in array {go_type(item.value)}")
        found.append(item.value)
    return found


def map_texts_of(node: Node, what: str) -> dict[str, str]:
    if not isinstance(node.value, dict):
        raise Fault(node, f"error parsing {what}: unsupported type {go_type(node.value)}")
    return {key: text_of(inner) for key, inner in node.value.items()}


def parse_duration(text: str) -> float:
    """Seconds of a Go duration; ValueError says what Go would."""
    try:
        return parse_go_duration(text) / NS_PER_SECOND
    except ValueError:
        raise ValueError(_why_no_duration(text)) from None


def _why_no_duration(text: str) -> str:
    rest = text.lstrip("+-") if text[:1] in "+-" else text
    while rest:
        number = re.match(r"[0-9]+\.?[0-9]*|\.[0-9]+", rest)
        if number is None:
            break
        unit = re.match(r"[^0-9.]*", rest[number.end() :])
        assert unit is not None, "it matches nothing, too"
        if not unit.group():
            return f"time: missing unit in duration {quote(text)}"
        if unit.group() not in ("ns", "us", "µs", "μs", "ms", "s", "m", "h"):
            return f"time: unknown unit {quote(unit.group())} in duration {quote(text)}"
        rest = rest[number.end() + unit.end() :]
    return f"time: invalid duration {quote(text)}"


def duration_of(node: Node, key: str, findings: Findings) -> float:
    """Seconds of a duration such as "10s"; a bare number means seconds, with a warning."""
    if isinstance(node.value, str):
        try:
            return parse_duration(node.value)
        except ValueError as error:
            raise Fault(node, f"error parsing {key}: {error}") from None
    findings.warn(node, key, f"{key} should be converted to a duration")
    return float(int_of(node))


def seconds_of(node: Node, what: str) -> float:
    """A timeout: a number of seconds, or a duration."""
    if isinstance(node.value, str):
        try:
            return parse_duration(node.value)
        except ValueError as error:
            raise Fault(node, f"error parsing {what} config, 'timeout' {error}") from None
    if isinstance(node.value, bool) or not isinstance(node.value, int | float):
        raise Fault(node, f"error parsing {what} config, 'timeout' wrong type")
    return float(node.value)


def size_of(node: Node, key: str) -> int:
    """Bytes: a number, or a text that ends in K, M, G or T (times 1024)."""
    value = node.value
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, str):
        raise Fault(node, f"{key} must be int64 or string")
    if not value:
        return 0
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", value[:-1]):
        raise Fault(node, f"{key} strconv.ParseInt: parsing {quote(value[:-1])}: invalid syntax")
    if value[-1] not in "KMGT":
        raise Fault(node, f"{key} sizes defined as strings must end in K, M, G, T")
    return int(value[:-1]) << (10 * (1 + "KMGT".index(value[-1])))


def listen_of(node: Node) -> tuple[str, int]:
    """Host and port: a port alone, or "host:port"."""
    value = node.value
    if isinstance(value, int) and not isinstance(value, bool):
        return "", value
    if not isinstance(value, str):
        raise Fault(node, f"expected port or host:port, got {go_type(value)}")
    match = re.fullmatch(r"(?:\[([^\[\]]*)\]|([^:\[\]]*)):([^:]*)", value)
    if match is None:
        raise Fault(node, f"could not parse address string {quote(value)}")
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", match[3]):
        raise Fault(node, f"could not parse port {quote(match[3])}")
    return match[1] or match[2] or "", int(match[3])


def is_subject(text: str) -> bool:
    """Whether it is a valid subject for a subscription; wildcards are allowed."""
    tokens = text.split(".")
    if any(not token or any(char in " \t\n\r\f" for char in token) for token in tokens):
        return False
    return ">" not in tokens[:-1]
