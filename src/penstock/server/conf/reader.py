"""Reader: the state machine that reads one text of nats-server's configuration format; `conf` has the grammar."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from datetime import UTC, datetime

from penstock.server.conf.cursor import Cursor, bytes_of, text_of
from penstock.server.conf.tree import DEPTH_MAX, NODES_MAX, SECRET_KEYS, ConfError, Node, ReadContext, Scalar

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

_SPACES = re.compile(r"[ \t\n\v\f\r]*")
_BLANKS = re.compile(r"[ \t]*")
_KEY = re.compile(r"[^ \t\n\v\f\r=:\0]*")
_BARE = re.compile(r"[^\\\r\n\0;,\]} \t']*")
_INCLUDE = re.compile(r"[^\r\n\0;} \t']*")
_QUOTED = re.compile(r'[^\\"\0]*')
_DIGITS = re.compile(r"[0-9]*")
_ADDRESS = re.compile(r"[0-9.:-]*")
_UNIT_TAIL = re.compile(r"[bBiI]*")
_DATE = "dd-ddTdd:dd:ddZ"
_DIGIT = frozenset("0123456789")
_DOUBLE = {'"': "double ", "'": ""}
_SPACE = frozenset(" \t\n\v\f\r")
_END = frozenset("\r\n\0};, \t")  # what may stand after a number
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", '"': '"', "\\": "\\"}
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_UNITS = {"": 1}
for _power, _letter in enumerate("kmgtpe", start=1):
    _UNITS[_letter] = 1000**_power
    _UNITS.update(dict.fromkeys((_letter + "b", _letter + "i", _letter + "ib"), 1024**_power))

_State = Callable[[], "_State | None"]


class Reader(Cursor):
    """Reads one text. Each state reads a little and returns the next; `after` has the states that follow a value."""

    def __init__(self, text: str, file: str, context: ReadContext, is_environment: bool = False) -> None:
        super().__init__(text, file)
        self.is_environment = is_environment  # the text is the value of an environment variable
        self.context = context
        self.root: dict[str, Node] = {}
        self.open: list[dict[str, Node] | list[Node]] = [self.root]
        self.keys: list[tuple[str, int]] = []
        self.after: list[_State] = []

    def read(self) -> dict[str, Node]:
        state: _State | None = self._top
        while state is not None:
            state = state()
        if self.keys and self.keys[-1][0] != "}":  # one closing brace too many is accepted, for files like JSON
            line, column = self._place(self.at)
            raise ConfError(f"config is invalid ({self.file}:{line}:{column})")
        return self.root

    def _value_shown(self, text: str) -> str:
        """A value as an error shows it; secrets and values from the environment are redacted."""
        is_secret = self.is_environment or (self.keys and self.keys[-1][0].lower() in SECRET_KEYS)
        return "[REDACTED]" if is_secret else text

    # the top level, with or without braces around it

    def _top(self) -> _State | None:
        self._take(_SPACES)
        if self._is_comment():
            return self._top
        char = self._look()
        if char == "{":
            self.at += 1
            self.after.append(self._top)
            return self._block
        if self._is_the_end(char):
            return None
        self.after.append(self._top_value_end)
        return self._key

    def _is_the_end(self, char: str) -> bool:
        if char == "/" or (char == "\0" and self.at < len(self.text)):
            raise self._wrong("Unexpected EOF.", self.at + 1)
        return char == "\0"

    def _top_value_end(self) -> _State | None:
        self._take(_BLANKS)
        if self._is_comment():
            return self._top
        char = self._next()
        if char == "/":
            return self._top_value_end
        if char in "\r\n\0;,}":
            return self._top
        raise self._wrong(f"Expected a top-level value to end with a new line, comment or EOF, {self._got(char)}")

    def _block(self) -> _State | None:
        self._take(_SPACES)
        if self._is_comment():
            return self._block
        char = self._look()
        if char == "{":
            self.at += 1
            self._nest(len(self.after), self.at)
            self.after.append(self._block_end)
            return self._block
        if char == "}":
            self.at += 1
            return self.after.pop()
        if self._is_the_end(char):
            return None
        self.after.append(self._block_value_end)
        return self._key

    def _block_value_end(self) -> _State | None:
        self._take(_BLANKS)
        if self._is_comment():
            return self._block_value_end
        char = self._look()
        if char == "}":
            return self._block_end
        self._next()
        if char == "/":
            return self._block_value_end
        if char in "\r\n;,":
            return self._block
        raise self._wrong(f"Expected a block-level value to end with a new line, comment or EOF, {self._got(char)}")

    def _block_end(self) -> _State | None:
        self._take(_SPACES)
        if self._is_comment():
            return self._block
        char = self._next()
        if char == "/":
            return self._block_end
        if char in ";,":
            return self._block
        if char == "}":
            return self.after.pop()
        raise self._wrong(f"Expected a block-level to end with a '}}', {self._got(char)}")

    # keys

    def _key(self) -> _State | None:
        char = self._look()
        if char in "=:":
            raise self._wrong(f"Unexpected key separator '{char}'")
        if char in "\"'":
            self._quoted_key(char, "Unexpected EOF.")
            return self._key_end
        start = self.at
        self.at += 1
        self._take(_KEY)
        if self._look() in _SPACE and self.text[start : self.at].lower() == "include":
            return self._include
        self.keys.append((text_of(self.text[start : self.at]), start))
        return self._key_end

    def _quoted_key(self, quote: str, at_the_end: str) -> None:
        start = self.at + 1
        stop = self.text.find(quote, start)
        nul = self.text.find("\0", start, stop if stop >= 0 else len(self.text))
        if stop < 0 or nul >= 0:
            self.at = len(self.text)
            raise self._wrong(at_the_end)
        self.keys.append((text_of(self.text[start:stop]), start))
        self.at = stop + 1

    def _key_end(self) -> _State | None:
        self._take(_SPACES)
        char = self._look()
        if char in "=:":
            self.at += 1
        elif char == "\0":
            return None
        return self._value

    def _include(self) -> _State | None:
        self._take(_BLANKS)
        char = self._look()
        for chars, what in (
            ("[", "start of an array"),
            ("{", "start of a map"),
            ("(", "start of a block"),
            ("-0123456789", "start of a number"),
            ("\\", "escape sequence"),
            ("\r\n", "new line"),
        ):
            if char in chars:
                self._next()
                raise self._wrong(f"Expected include value but found {what}")
        start = self.at
        if char in "\"'":
            stop = self.text.find(char, start + 1)
            if stop < 0 or "\0" in self.text[start:stop]:
                self.at = len(self.text)
                raise self._wrong(f"Unexpected EOF in {_DOUBLE[char]}quoted include")
            path = self.text[start + 1 : stop]
            self.at = stop + 1
        else:
            path = self._take(_INCLUDE)
            if self._look() == "'":
                self.at += 1
        self._put_file(text_of(path), start)
        return self.after.pop()

    def _put_file(self, path: str, start: int) -> None:
        scope = self.open[-1]
        assert isinstance(scope, dict), "`include` is only recognized in the place of a key"
        where = os.path.normpath(os.path.join(os.path.dirname(self.file), "./" + path))
        try:
            tree = self.context.include(where, self.context)
        except ConfError as error:
            raise self._bad_value(
                f"error parsing include file '{bytes_of(path)}', {bytes_of(str(error))}", start
            ) from None
        scope.update(tree)
        self._weigh(sum(node.weight for node in scope.values()), start)

    # maps

    def _map_key(self) -> _State | None:
        self._take(_SPACES)
        if self._is_comment():
            return self._map_key
        char = self._look()
        if char in "=:":
            raise self._wrong(f"Unexpected key separator '{char}'.")
        if char == "]":
            raise self._wrong(f"Unexpected array end '{char}' processing map.")
        if char == "\0":
            raise self._wrong("Unexpected EOF processing map.")
        if char == "}":
            return self._map_end
        if char in "\"'":
            self._quoted_key(char, f"Unexpected EOF processing {_DOUBLE[char]}quoted map key.")
            return self._map_key_end
        if char == "/":
            self.at += 1
        start = self.at
        self._next()
        self._take(_KEY)
        if self._look() == "\0":
            raise self._wrong("Unexpected EOF processing map key.")
        if self._look() in _SPACE and self.text[start : self.at].lower() == "include":
            self.after.append(self._map_value_end)
            return self._include
        self.keys.append((text_of(self.text[start : self.at]), start))
        return self._map_key_end

    def _map_key_end(self) -> _State | None:
        self._take(_SPACES)
        if self._look() in "=:":
            self.at += 1
        self._take(_SPACES)
        char = self._look()
        if char == ",":
            self.at += 1
            raise self._wrong('Unexpected map value terminator ",".')
        if char == "}":
            raise self._wrong(f"The key {bytes_of(self.keys[-1][0])!r} has no value", self.keys[-1][1])
        self.after.append(self._map_value_end)
        return self._value

    def _map_value_end(self) -> _State | None:
        self._take(_BLANKS)
        if self._is_comment():
            return self._map_value_end
        char = self._look()
        if char == "}":
            return self._map_end
        self._next()
        if char in "\r\n;,/":
            return self._map_key
        raise self._wrong(f'Expected a map value terminator "," or a map terminator "}}", {self._got(char)}')

    def _map_end(self) -> _State | None:
        self.at += 1
        return self._close()

    # arrays

    def _array_value(self) -> _State | None:
        self._take(_SPACES)
        if self._is_comment():
            return self._array_value
        char = self._look()
        if char in ",/":
            self.at += 1
            raise self._wrong("Unexpected array value terminator ','.")
        if char == "]":
            self.at += 1
            return self._close()
        self.after.append(self._array_value_end)
        return self._value

    def _array_value_end(self) -> _State | None:
        self._take(_BLANKS)
        if self._is_comment():
            return self._array_value_end
        char = self._next()
        if char in "\r\n,/":
            return self._array_value
        if char == "]":
            return self._close()
        raise self._wrong(f'Expected an array value terminator "," or an array terminator "]", {self._got(char)}')

    # values

    def _value(self) -> _State | None:
        self._take(_BLANKS)
        start = self.at
        char = self._look()
        if char in "[{":
            self.at += 1
            self._nest(len(self.open), start)
            self.open.append([] if char == "[" else {})
            return self._array_value if char == "[" else self._map_key
        if char == "'":
            stop = self.text.find("'", start + 1)
            if stop < 0 or "\0" in self.text[start:stop]:
                self.at = len(self.text)
                raise self._wrong("Unexpected EOF.")
            self.at = stop + 1
            return self._put(text_of(self.text[start + 1 : stop]), start + 1)
        if char == '"':
            self.at += 1
            return self._put(text_of(self._escaped(_QUOTED, '"')), start + 1)
        if char == "(":
            return self._lines(start)
        if char == "-":
            self.at += 1
            if self._look() not in _DIGIT:
                found = self._next()
                dot = "Floats must start with a digit, not '.'."
                raise self._wrong(dot if found == "." else f"Expected a digit but got '{self._shown(found)}'.")
            return self._number(start)
        if char in "0123456789":
            return self._number(start)
        if char == ".":
            self.at += 1
            raise self._wrong("Floats must start with a digit")
        if char in "\r\n":
            self.at += 1
            raise self._wrong("Expected value but found new line")
        return self._bare(start)

    def _escaped(self, plain: re.Pattern[str], quote: str) -> str:
        """Text with its escapes resolved: up to a closing `quote`, or as far as a bare text goes without one."""
        parts = [self._take(plain)]
        while self._look() == "\\":
            self.at += 1
            char = self._next()
            if char == "x":
                digits = self.text[self.at : self.at + 2]
                self.at = min(self.at + 2, len(self.text))
                if "\n" in digits or "\r" in digits:
                    raise self._wrong("Expected two hexadecimal digits after '\\x', but hit end of line")
                if not re.fullmatch("[0-9a-fA-F]{2}", digits):
                    raise self._wrong(f"Expected two hexadecimal digits after '\\x', but got '{digits}'")
                parts.append(chr(int(digits, 16)))
            elif char in _ESCAPES:
                parts.append(_ESCAPES[char])
            else:
                allowed = 'Only the following escape characters are allowed: \\xXX, \\t, \\n, \\r, \\", \\\\.'
                raise self._wrong(f"Invalid escape character '{self._shown(char)}'. {allowed}")
            parts.append(self._take(plain))
        if quote:
            if self._next() != quote:
                raise self._wrong("Unexpected EOF.")
        elif self._look() == "'":
            self.at += 1
        return "".join(parts)

    def _bare(self, start: int) -> _State | None:
        """Text without quotes from `start` on: a boolean, a variable, or itself."""
        head = self.text[start : self.at]
        text = head + self._escaped(_BARE, "")
        if self.text[start : self.at] != text:  # it had an escape, or a quote at its end: it is text in any case
            return self._put(text_of(text), start)
        if text.lower() in _BOOLEANS:
            return self._put(_BOOLEANS[text.lower()], start)
        if text.startswith("$"):
            return self._variable(text_of(text[1:]), start)
        return self._put(text_of(text), start)

    def _lines(self, start: int) -> _State | None:
        """A text of whole lines, up to a line that only has a closing parenthesis."""
        match = re.compile(r"\n\)(?=\n|\Z)").search(self.text, start + 1)
        nul = self.text.find("\0", start)
        if match is None or 0 <= nul < match.start():
            self.at = len(self.text)
            raise self._wrong("Unexpected EOF processing block.")
        self.at = match.end()
        return self._put(text_of(self.text[start + 1 : match.start() + 1]), start + 1)

    def _number(self, start: int) -> _State | None:
        """A number, or something that begins like one: a date, an address, a duration, a text."""
        self._take(_DIGITS)
        char = self._look()
        if char == "-" and self.text[start] != "-":
            return self._date(start)
        if char == ".":
            return self._float(start)
        if char.lower() in "kmgtpe":
            self.at += 1
            self._take(_UNIT_TAIL)
            if self._look() not in _END and self._look() != "]":
                return self._bare(start)
        elif char not in _END and char != "]" and self.text[start] != "-":
            self.at += 1
            return self._bare(start)
        text = self.text[start : self.at]
        digits = re.match(r"-?[0-9]+", text)
        assert digits is not None, "a number begins with a digit"
        unit = _UNITS.get(text[digits.end() :].lower())
        if unit is None:
            raise self._bad_value(f"expected integer, but got '{self._value_shown(text)}'", start)
        value = int(digits.group()) * unit if digits.end() - digits.start() <= 20 else INT64_MAX + 1
        if not INT64_MIN <= value <= INT64_MAX:
            raise self._bad_value(f"integer '{self._value_shown(text)}' is out of the range", start)
        return self._put(value, start)

    def _float(self, start: int) -> _State | None:
        self.at += 1
        if self._look() not in _DIGIT:
            char = self._next()
            raise self._wrong(f"Floats must have a digit after the '.', but got '{self._shown(char)}' instead.")
        self._take(_DIGITS)
        if self._look() == ".":
            self._take(_ADDRESS)
            return self._put(text_of(self.text[start : self.at]), start)
        value = float(self.text[start : self.at])
        if value in (float("inf"), float("-inf")):
            shown = self._value_shown(self.text[start : self.at])
            raise self._bad_value(f"float '{shown}' is out of the range", start)
        return self._put(value, start)

    def _date(self, start: int) -> _State | None:
        self.at += 1
        if self.at - start != 5:
            raise self._wrong("All ISO8601 dates must be in full Zulu form.")
        for wanted in _DATE:
            char = self._next()
            if wanted == "d" and not ("0" <= char <= "9"):
                raise self._wrong(f"Expected digit in ISO8601 datetime, but found '{self._shown(char)}' instead.")
            if wanted != "d" and char != wanted:
                raise self._wrong(f"Expected '{wanted}' in ISO8601 datetime, but found '{self._shown(char)}' instead.")
        text = self.text[start : self.at]
        try:
            value = datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        except ValueError:
            raise self._bad_value(
                f"expected Zulu formatted DateTime, but got '{self._value_shown(text)}'", start
            ) from None
        return self._put(value, start)

    # variables

    def _variable(self, name: str, start: int) -> _State | None:
        if name.startswith("2a$"):
            return self._put("$" + name, start)
        line, column = self._place(start)
        for scope in reversed(self.open):
            if isinstance(scope, dict) and name in scope:
                found = scope[name]
                found.is_used = True
                return self._put_node(Node(found.value, self.file, line, column, False, found.weight, found.depth))
        # A password that begins with a dollar sign looks like a variable.
        what = f"variable reference for '{self._value_shown(bytes_of(name))}' on line {line}"
        if name in self.context.names:
            text = f"{what} could not be parsed: variable reference cycle for '{bytes_of(name)}'"
            raise self._bad_value(text, start)
        if len(self.context.names) >= DEPTH_MAX:
            raise self._bad_value(f"{what} could not be parsed: more than {DEPTH_MAX} variables deep", start)
        found_text = self.context.environment.get(name)
        if found_text is None:
            hint = "; quote a text that begins with $" if self._value_shown("") else ""
            raise self._bad_value(f"{what} can not be found{hint}", start)
        self.context.names.add(name)
        data = os.fsencode(found_text).decode("latin-1")
        try:
            tree = Reader(f"pk={data}", self.file, self.context, is_environment=True).read()
        except ConfError as error:
            raise self._bad_value(f"{what} could not be parsed: {bytes_of(str(error))}", start) from None
        finally:
            self.context.names.discard(name)
        if "pk" not in tree:
            raise self._bad_value(f"{what} can not be found", start)
        node = tree["pk"]
        return self._put_node(Node(node.value, self.file, line, column, False, node.weight, node.depth))

    # the tree

    def _nest(self, depth: int, offset: int) -> None:
        if depth > DEPTH_MAX:
            raise self._bad_value(f"nested deeper than {DEPTH_MAX} levels", offset)

    def _weigh(self, weight: int, offset: int) -> None:
        if weight > NODES_MAX:
            raise self._bad_value(f"more than {NODES_MAX} values, with variables counted where they are used", offset)

    def _put(self, value: Scalar, start: int) -> _State | None:
        line, column = self._place(start)
        return self._put_node(Node(value, self.file, line, column))

    def _put_node(self, node: Node) -> _State | None:
        """Add `node` to the open map under its key, whose place it gets, or to the end of the open array."""
        scope = self.open[-1]
        self._nest(node.depth + len(self.open) - 1, self.at)
        if isinstance(scope, dict):
            key, start = self.keys.pop()
            node.line, node.column = self._place(start)
            scope[key] = node
        else:
            scope.append(node)
        return self.after.pop()

    def _close(self) -> _State | None:
        """Finish the map or array that was opened last."""
        value = self.open.pop()
        inner = list(value.values()) if isinstance(value, dict) else value
        weight = 1 + sum(node.weight for node in inner)
        self._weigh(weight, self.at)
        line, column = self._place(self.at)
        depth = 1 + max((node.depth for node in inner), default=0)
        return self._put_node(Node(value, self.file, line, column, False, weight, depth))
