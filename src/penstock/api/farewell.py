"""Farewell: what clients hear of JetStream from the moment on when it stops."""

from __future__ import annotations

from enum import Enum


class Farewell(Enum):
    """Why it stops, and so what those hear who still ask."""

    GONE = "no responders: it is switched off, and the server stays"
    LAME_DUCK = "as of the reference in lame duck mode: API requests hear nothing, all else finds no responders"
    SILENCE = "nothing: the connections are about to close, and a client takes no responders for 'no such consumer'"
