"""complete_options: fills in options that depend on others, and refuses options that contradict each other.

It runs after the file and the flags were read. Checks and texts are those that nats-server applies at its start. It is
a module of its own, so that a server without a configuration file does not load the reader.
"""

from __future__ import annotations

import json

from penstock.base.duration import NS_PER_SECOND, format_duration
from penstock.errors import quote
from penstock.server.advertise import parse_advertise
from penstock.server.auth.passwords import is_bcrypt
from penstock.server.conf.tree import ConfError
from penstock.server.options import UNSENDABLE, Options

PORT_MAX = 65535
MAX_PAYLOAD_WARNED = 8 * 1024 * 1024
HEADERS_REFUSED = ("host", "content-length", "connection", "upgrade", "nats-no-masking")


def blank_options() -> Options:
    """Options before the file and the flags; those that depend on others are empty until `complete_options`."""
    options = Options(host="", port=0, http_host="", auth_timeout=0.0)
    options.websocket.host = ""
    return options


def note_unsupported(options: Options, section: str) -> None:
    """Note a section of a feature that this server does not have yet; one warning names them all."""
    _add_to_line(options.warnings, "Not supported yet, the server runs without: ", section)


def note_ignored(options: Options, key: str) -> None:
    """Note a key that has no effect here; one warning names them all."""
    _add_to_line(options.warnings, "Accepted without effect: ", key)


def _add_to_line(lines: list[str], start: str, name: str) -> None:
    for index, line in enumerate(lines):
        if line.startswith(start):
            names = {*line.removeprefix(start).split(", "), name}
            lines[index] = start + ", ".join(sorted(names))
            return
    lines.append(start + name)


def _why_advertised_wrongly(options: Options) -> str:
    for what, text in (("ClientAdvertise", options.client_advertise), ("advertise", options.websocket.advertise)):
        try:
            parse_advertise(text)
        except ValueError as error:
            return f"invalid {what} value of {text}, err={error}"
    return ""


def complete_options(options: Options) -> Options:
    """Fill in dependent options and check what nats-server checks at its start; ConfError says what is wrong."""
    options.host = options.host or "0.0.0.0"
    options.http_host = options.http_host or options.host
    options.websocket.host = options.websocket.host or "0.0.0.0"
    options.port = options.port or 4222
    options.auth_timeout = options.auth_timeout or (options.tls.timeout + 1.0 if options.tls is not None else 2.0)
    why = _why_invalid(options) or _why_websocket_is_wrong(options) or _why_advertised_wrongly(options)
    if why:
        raise ConfError(why)
    if options.max_payload > MAX_PAYLOAD_WARNED:
        text = "Maximum payloads over 8.00 MB are generally discouraged and could lead to poor performance"
        options.warnings.append(text)
    if _has_plain_passwords(options):
        options.warnings.append("Plaintext passwords detected, use nkeys or bcrypt")
    unsent = [quote(name) for name in options.accounts if UNSENDABLE.search(name)]
    if unsent:
        why = "a blank or a control character in an account's name: the system account hears no events of"
        options.warnings.append(f"{why} {', '.join(unsent)}")
    return options


def _why_invalid(options: Options) -> str:
    if options.lame_duck_grace_period >= options.lame_duck_duration:
        return (
            f"lame duck grace period ({_go(options.lame_duck_grace_period)}) should be strictly lower than "
            f"lame duck duration ({_go(options.lame_duck_duration)})"
        )
    if options.max_payload > options.max_pending:
        return f"max_payload ({options.max_payload}) cannot be higher than max_pending ({options.max_pending})"
    if " " in options.server_name:
        return "server name cannot contain spaces"
    for name in (options.no_auth_user, options.websocket.no_auth_user if options.websocket.port else ""):
        why = _why_no_such_user(options, name)
        if why:
            return why
    system = options.accounts.get(options.system_account) if options.system_account else None
    if options.jetstream.enabled and system is not None and system.jetstream is not None:
        return "Not allowed to enable JetStream on the system account"
    domain = options.jetstream.domain
    if any(char in domain for char in " \t\r\n\f") or "" in domain.split(".")[1:]:
        return f'invalid domain name: derived "$JS.{domain}.API.>" is not a valid subject'
    if any(char in domain for char in ".*>"):
        return "invalid domain name: may not contain ., * or >"
    if options.http_port and options.https_port:
        ports = f"HTTP ({options.http_port}) and HTTPs ({options.https_port}) ports"
        return f"Can't start monitoring: can't specify both {ports}"
    if options.https_port and options.tls is None:
        return "Can't start monitoring: TLS cert and key required for HTTPS"
    for host, port in ((options.host, options.port), (options.websocket.host, options.websocket.port)):
        if not -1 <= port <= PORT_MAX:
            return f'Error listening on port: {host}:{port}, "listen tcp: address {port}: invalid port"'
    for port in (options.http_port, options.https_port):
        if not -1 <= port <= PORT_MAX:
            return f"Can't start monitoring: can't listen to the monitor port: address {port}: invalid port"
    named = options.system_account
    if named and named != "$SYS" and named not in options.accounts:
        return f"error resolving system account: account missing: {named}"
    return ""


def _why_no_such_user(options: Options, name: str) -> str:
    if not name:
        return ""
    users = options.every_user()
    if not users:
        return f'no_auth_user: "{name}" present, but users/nkeys are not defined'
    if any(name in (user.username, user.nkey) for user in users):
        return ""
    return f'no_auth_user: "{name}" not present as user or nkey in authorization block or account configuration'


def _has_plain_passwords(options: Options) -> bool:
    if options.password and not is_bcrypt(options.password):
        return True
    is_mapped = options.tls is not None and options.tls.verify_and_map
    users = [user for user in options.every_user() if not user.nkey and (user.password or not is_mapped)]
    return any(not is_bcrypt(user.password) for user in users)


def _go(seconds: float) -> str:
    return format_duration(round(seconds * NS_PER_SECOND))


def _why_websocket_is_wrong(options: Options) -> str:
    """Why nats-server would refuse to start, in its words; empty if it would start."""
    websocket = options.websocket
    if not websocket.port:
        return ""
    if websocket.tls is None and not websocket.no_tls:
        return "websocket requires TLS configuration"
    for origin in websocket.allowed_origins:
        why = _why_no_origin(origin)
        if why:
            return why
    if options.every_user():
        for field in ("username", "token"):
            if getattr(websocket, field):
                return f"websocket authentication {field} not compatible with presence of users/nkeys"
    if websocket.jwt_cookie:
        return (
            "trusted operators or trusted keys configuration is required for JWT authentication via cookie "
            f"{json.dumps(websocket.jwt_cookie)}"
        )
    for name in websocket.headers:
        if name.lower() in HEADERS_REFUSED:
            return f"websocket: invalid header {json.dumps(name)} not allowed"
        if name.lower().startswith("sec-websocket-"):
            return f'websocket: invalid header {json.dumps(name)}, "Sec-WebSocket-" prefix not allowed'
    return ""


def _why_no_origin(origin: str) -> str:
    from urllib.parse import urlsplit

    try:
        url = urlsplit(origin)
        url.port  # noqa: B018 - raises for an invalid port
    except ValueError as error:
        return f"unable to parse allowed origin: {error}"
    if url.scheme not in ("http", "https"):
        text = "allowed origins must be absolute URLs with http or https scheme"
        return f"unable to parse allowed origin {json.dumps(origin)}: {text}"
    return "" if url.hostname else f"unable to parse allowed origin {json.dumps(origin)}: host is required"
