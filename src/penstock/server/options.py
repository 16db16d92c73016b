"""Options: the configuration of a server, under nats-server's names, from the configuration file and the flags.

Durations are seconds (float), sizes are bytes; -1 and 0 have nats-server's meaning, and so have the defaults.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal, get_args

Durability = Literal["disk", "os", "lazy"]
DURABILITIES: tuple[str, ...] = get_args(Durability)
UNSENDABLE = re.compile("[\\x00-\\x20\\x7f]")  # no subject has these characters, so no event can name the account


@dataclass(slots=True)
class SubjectPermission:
    """The subjects that may be published or subscribed to. `allow` None: all that are not denied."""

    allow: list[str] | None = None
    deny: list[str] = field(default_factory=list)


@dataclass(slots=True)
class ResponsePermission:
    """Replies that a responder may publish in addition: how many per request (-1: any number), and for how long."""

    max_msgs: int = 1
    expires: float = 120.0


@dataclass(slots=True)
class Permissions:
    publish: SubjectPermission | None = None
    subscribe: SubjectPermission | None = None  # an entry may be "subject queue"
    responses: ResponsePermission | None = None


@dataclass(slots=True)
class User:
    """A user that may connect: with name and password (plain or bcrypt), or with an nkey (public key, U…)."""

    username: str = ""
    password: str = field(default="", repr=False)
    nkey: str = ""
    account: str = ""  # "": $G
    permissions: Permissions | None = None
    connection_types: frozenset[str] = frozenset()  # STANDARD, WEBSOCKET …; empty: all
    proxy_required: bool = False


@dataclass(slots=True)
class TlsOptions:
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    verify: bool = False
    verify_and_map: bool = False
    insecure: bool = False
    timeout: float = 2.0
    handshake_first: bool = False
    handshake_first_fallback: float = 0.0  # how long to wait for a client's first byte; "auto" is 0.05
    allow_non_tls: bool = False
    min_version: str = ""
    cipher_suites: list[str] = field(default_factory=list)
    curve_preferences: list[str] = field(default_factory=list)
    pinned_certs: frozenset[str] = frozenset()
    connection_rate_limit: int = 0


@dataclass(slots=True)
class AccountLimits:
    """-1: no limit."""

    max_connections: int = -1
    max_subscriptions: int = -1
    max_payload: int = -1
    max_leafnodes: int = -1


@dataclass(slots=True)
class JetStreamLimits:
    """An account's limits in JetStream; -1: no limit."""

    max_memory: int = -1
    max_storage: int = -1
    max_streams: int = -1
    max_consumers: int = -1
    max_ack_pending: int = -1
    memory_max_stream_bytes: int = -1
    storage_max_stream_bytes: int = -1
    max_bytes_required: bool = False


@dataclass(slots=True)
class AccountOptions:
    name: str
    nkey: str = ""
    users: list[User] = field(default_factory=list)
    jetstream: JetStreamLimits | None = None  # None: JetStream is off for this account
    limits: AccountLimits = field(default_factory=AccountLimits)
    default_permissions: Permissions | None = None


@dataclass(slots=True)
class JetStreamOptions:
    enabled: bool = False
    store_dir: str = ""
    max_memory: int = -1  # -1: 75 % of the memory
    max_storage: int = -1  # -1: 75 % of the free disk
    domain: str = ""
    strict: bool = True
    sync_interval: float = 120.0  # accepted and shown without effect: we sync before we acknowledge
    sync_always: bool = False
    durability: Durability = "disk"  # ours
    unique_tag: str = ""
    request_queue_limit: int = 10_000
    max_buffered_msgs: int = 0  # queued for one stream; 0: 100,000
    max_buffered_size: int = 0  # 0: 128 MiB
    max_ack_pending: int = -1
    max_request_batch: int = -1
    max_ha_assets: int = -1
    duplicate_window: float = 0.0  # 0: no limit
    default_max_consumers: int = 0


@dataclass(slots=True)
class WebsocketOptions:
    host: str = "0.0.0.0"
    port: int = 0  # 0: off, -1: any
    advertise: str = ""
    no_tls: bool = False
    tls: TlsOptions | None = None
    same_origin: bool = False
    allowed_origins: list[str] = field(default_factory=list)
    compression: bool = False
    handshake_timeout: float = 2.0
    auth_timeout: float = 0.0
    username: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    no_auth_user: str = ""
    jwt_cookie: str = ""
    user_cookie: str = ""
    pass_cookie: str = ""
    token_cookie: str = ""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Options:
    """What `penstock serve` runs with. Made by `server.conf` (a file) and `cli.serve` (flags, which win)."""

    config_file: str = ""
    server_name: str = ""
    host: str = "0.0.0.0"
    port: int = 4222  # -1: any
    dont_listen: bool = False
    client_advertise: str = ""
    http_host: str = "0.0.0.0"
    http_port: int = 0  # 0: off, -1: any
    https_port: int = 0
    http_base_path: str = ""
    # authentication
    username: str = ""
    password: str = field(default="", repr=False)
    authorization: str = field(default="", repr=False)  # a token
    users: list[User] = field(default_factory=list)
    default_permissions: Permissions | None = None
    no_auth_user: str = ""
    auth_timeout: float = 2.0
    accounts: dict[str, AccountOptions] = field(default_factory=dict)
    system_account: str = ""  # "": $SYS
    no_system_account: bool = False
    tls: TlsOptions | None = None
    allow_non_tls: bool = False  # applies to `tls` from the file or from flags
    websocket: WebsocketOptions = field(default_factory=WebsocketOptions)
    # bounds
    max_payload: int = 1024 * 1024
    max_control_line: int = 4096
    max_pending: int = 64 * 1024 * 1024
    max_connections: int = 65536
    max_subscriptions: int = 0  # 0: no limit
    max_sub_tokens: int = 0
    max_closed_clients: int = 10_000
    max_traced_msg_len: int = 0
    ping_interval: float = 120.0
    ping_max: int = 2
    write_deadline: float = 10.0
    no_header_support: bool = False
    disable_sublist_cache: bool = False
    no_fast_producer_stall: bool = False
    lame_duck_duration: float = 120.0
    lame_duck_grace_period: float = 10.0
    # logs and other output
    debug: bool = False
    trace: bool = False
    trace_verbose: bool = False
    trace_headers: bool = False
    no_log: bool = False
    logtime: bool = True
    logtime_utc: bool = False
    log_file: str = ""
    log_size_limit: int = 0
    log_max_num: int = 0
    syslog: bool = False
    remote_syslog: str = ""
    pid_file: str = ""
    ports_file_dir: str = ""
    server_tags: list[str] = field(default_factory=list)
    server_metadata: dict[str, str] = field(default_factory=dict)
    jetstream: JetStreamOptions = field(default_factory=JetStreamOptions)
    # logged once at the start
    warnings: list[str] = field(default_factory=list)
    config_digest: str = ""

    def every_user(self) -> list[User]:
        """The users of `authorization`, then those of each account; the latter have the account's name."""
        return [*self.users, *(user for account in self.accounts.values() for user in account.users)]
