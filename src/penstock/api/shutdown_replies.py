"""ShutdownReplies: how requests are answered from the moment when JetStream begins to stop."""

from __future__ import annotations

from enum import Enum


class ShutdownReplies(Enum):
    """Why JetStream stops decides what later requests receive."""

    NO_RESPONDERS = "JetStream is switched off and the server keeps running: requests get 'no responders'"
    LAME_DUCK = "as nats-server in lame duck mode: API requests get no reply, all others get 'no responders'"
    SILENCE = "no reply: the connections are about to close, and clients take 'no responders' for 'no such consumer'"
