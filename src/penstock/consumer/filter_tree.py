"""Filters in a tree of their tokens, to find a filter that covers another.

Tens of thousands of filters fit into a request: comparing each with each would block all other clients.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_END = ""  # marks the end of a filter: no token is empty


class FilterTree:
    """Valid filters, each once."""

    def __init__(self, filters: Iterable[str]) -> None:
        self._root: dict[str, Any] = {}
        for text in filters:
            node = self._root
            for token in text.split("."):
                node = node.setdefault(token, {})
            node[_END] = {}

    def covers(self, text: str) -> bool:
        """Whether another filter of the tree matches every subject that `text` (which may itself be in the tree)
        matches."""
        tokens = text.split(".")
        size = len(tokens)
        todo = [(self._root, 0, True)]  # node, tokens consumed, and whether the path so far is that of `text` itself
        while todo:
            node, index, is_own = todo.pop()
            if index == size:
                if _END in node and not is_own:
                    return True
                continue
            token = tokens[index]
            if ">" in node and not (is_own and token == ">"):
                return True
            if token == ">":
                if ">" in node:
                    todo.append((node[">"], index + 1, is_own))
                continue
            if token != "*" and token in node:
                todo.append((node[token], index + 1, is_own))
            if "*" in node:
                todo.append((node["*"], index + 1, is_own and token == "*"))
        return False
