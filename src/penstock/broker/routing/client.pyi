from typing import Any

from penstock.broker.routing.permissions import Permissions
from penstock.broker.routing.sublist import Sublist

class Client:
    """What a connection is allowed, hears, and has waiting for it."""

    account: Any
    permissions: Permissions | None
    awaits_auth: bool
    is_verbose: bool
    is_pedantic: bool
    has_echo: bool
    has_headers: bool
    takes_headers: bool
    has_no_responders: bool
    is_system: bool
    is_paused: bool
    is_stalled: bool
    max_payload: int
    max_control_line: int
    max_pending: int
    max_subs: int
    max_sub_tokens: int
    backlog: int
    in_msgs: int
    in_bytes: int
    out_msgs: int
    out_bytes: int
    stalls: int
    last_ns: int
    fd: int
    @property
    def cid(self) -> int: ...
    @property
    def is_closed(self) -> bool: ...
    @property
    def is_tired(self) -> bool: ...
    @property
    def is_slow(self) -> bool: ...
    @property
    def sub_count(self) -> int: ...
    @property
    def pending(self) -> int: ...
    def take_piece(self) -> bytes: ...
    def take_out(self) -> bytes: ...
    def drop_out(self) -> None: ...
    def subscriptions(self) -> list[tuple[bytes, bytes, bytes, int, int]]: ...
    def join(self, account: object, sublist: Sublist) -> None: ...
    def withdraw(self) -> list[tuple[bytes, bytes, bytes]]: ...
    def leave(self) -> None: ...
    def forget_subs(self) -> None: ...
