"""`penstock serve`: the server's command line. It takes nats-server's flags, and its configuration file.

Flags override the file. Nothing heavy is imported before the command line is parsed: a server is ready in a fraction of
a second, and `-v` and `-t` answer at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from penstock.base.command_line import has_secrets, hide_secrets, note_command
from penstock.cli.flags import Flag, FlagError, Kind, parse_flags
from penstock.errors import PenstockError
from penstock.server.log.lifecycle import VERSION
from penstock.server.options import DURABILITIES, Options, TlsOptions

PROGRAM = "nats-server"  # texts begin with it: tools look for them
OK, FAILED, MISTYPED, INTERRUPTED = 0, 1, 2, 130
CLUSTER_FLAGS = ("routes", "cluster", "cluster_name", "no_advertise", "cluster_advertise", "connect_retries")

USAGE = """
Usage: {program} [flags]

Server:
    -a, --addr, --net <host>         Address to listen on (0.0.0.0 if not given)
    -p, --port <port>                Port for clients (4222; -1 takes any that is free)
    -n, --name, --server_name <name> What the server is called (its id if not given)
    -P, --pid <file>                 Write the process's number there
    -m, --http_port <port>           Port for monitoring over http
    -ms,--https_port <port>          Port for monitoring over https
    -c, --config <file>              Configuration file; flags win over it
    -t                               Check the configuration file and leave
    -sl,--signal <word>[=<pid>]      Tell a running server: ldm, stop, quit, term, reopen, reload;
                                     <pid> is a number or a pid file, and may end in * for several
        --client_advertise <addr>    Address to tell clients instead of our own
        --ports_file_dir <dir>       Write nats-server_<pid>.ports there: all ports, as JSON
        --install-shim <dir>         Put an executable nats-server there that is this server, and leave

Log:
    -l, --log <file>                 Write the log there
    -T, --logtime                    Begin lines with the time (true; -T=false leaves it out)
        --logtime_utc                The time is UTC, not local
    -s, --syslog                     Log to the system's log
    -r, --remote_syslog <url>        Log to a syslog elsewhere: udp://host:514
    -D, --debug                      Tell more
    -V, --trace                      Tell every command of the protocol
    -VV                              The same, of the system account too
    -DV, -DVV                        Both at once
        --log_size_limit <bytes>     Begin the log file anew when it grows past this
        --max_traced_msg_len <bytes> Show no more of a message than this

JetStream:
    -js, --jetstream                 Tick JetStream on
    -sd, --store_dir <dir>           Where streams are kept
        --durability <word>          When a publish is acknowledged: disk (synced, as it is without), os or lazy

Who may connect:
        --user <name>                The one user
        --pass <password>            and their password
        --auth <token>               Or a token

TLS:
        --tls                        Speak TLS
        --tlscert <file>             Certificate of the server
        --tlskey <file>              and its key
        --tlsverify                  Ask clients for certificates and check them
        --tlscacert <file>           against this authority

Cluster (read, not there yet): --routes --cluster --cluster_listen --cluster_name --cluster_advertise
        --no_advertise --connect_retries; --profile is read and has no effect

    -h, --help                       This text
    -v, --version                    The version
        --help_tls                   The `tls` block of a configuration file
"""

TLS_HELP = """
TLS in a configuration file:

    tls {{
        cert_file: "server.pem"        key_file: "server-key.pem"
        ca_file: "ca.pem"              verify: true           # clients show certificates
        verify_and_map: true                                  # and are the user that these name
        handshake_first: auto          timeout: 2
        cipher_suites: [ … ]           curve_preferences: [ … ]
    }}

Cipher suites:
    {ciphers}

Curves:
    {curves}
"""


class CommandLine:
    """The parsed command line. A reload applies it over the configuration file again."""

    def __init__(self, args: Sequence[str]) -> None:
        self.args = args
        self.given: dict[str, Any] = {}
        self.rest = parse_flags(args, self._flags())

    def _flags(self) -> list[Flag]:
        def flag(names: str, kind: Kind, *targets: str) -> Flag:
            def apply(value: str | int | bool) -> None:
                self.given.update(dict.fromkeys(targets, value))

            return Flag(names, kind, apply)

        return [
            flag("h help", "bool", "?help"),
            flag("v version", "bool", "?version"),
            flag("help_tls", "bool", "?help_tls"),
            flag("t", "bool", "?test"),
            flag("c config", "text", "?config"),
            flag("sl signal", "text", "?signal"),
            flag("install-shim install_shim", "text", "?install_shim"),
            flag("a addr net", "text", "host"),
            flag("p port", "int", "port"),
            flag("n name server_name", "text", "server_name"),
            flag("client_advertise", "text", "client_advertise"),
            flag("P pid", "text", "pid_file"),
            flag("ports_file_dir", "text", "ports_file_dir"),
            flag("m http_port", "int", "http_port"),
            flag("ms https_port", "int", "https_port"),
            flag("l log", "text", "log_file"),
            flag("log_size_limit", "int", "log_size_limit"),
            flag("T logtime", "bool", "logtime"),
            flag("logtime_utc", "bool", "logtime_utc"),
            flag("s syslog", "bool", "syslog"),
            flag("r remote_syslog", "text", "remote_syslog"),
            flag("D debug", "bool", "debug"),
            flag("V trace", "bool", "trace"),
            flag("VV", "bool", "trace", "trace_verbose"),
            flag("DV", "bool", "debug", "trace"),
            flag("DVV", "bool", "debug", "trace", "trace_verbose"),
            flag("max_traced_msg_len", "int", "max_traced_msg_len"),
            flag("js jetstream", "bool", "jetstream.enabled"),
            flag("sd store_dir", "text", "jetstream.store_dir"),
            flag("durability", "text", "jetstream.durability"),
            flag("user", "text", "username"),
            flag("pass", "text", "password"),
            flag("auth", "text", "authorization"),
            flag("tls", "bool", "?tls"),
            flag("tlsverify", "bool", "?tlsverify"),
            flag("tlscert", "text", "?tlscert"),
            flag("tlskey", "text", "?tlskey"),
            flag("tlscacert", "text", "?tlscacert"),
            flag("profile", "int", "?profile"),
            flag("cluster cluster_listen", "text", "?cluster"),
            flag("routes", "text", "?routes"),
            flag("cluster_name", "text", "?cluster_name"),
            flag("cluster_advertise", "text", "?cluster_advertise"),
            flag("no_advertise", "bool", "?no_advertise"),
            flag("connect_retries", "int", "?connect_retries"),
        ]

    def asked(self, name: str) -> Any:
        """The value of a flag that is not an option of the server; None if it was not given."""
        return self.given.get(f"?{name}")

    def options(self) -> tuple[Options, list[str]]:
        """The file's options overridden by the flags, checked; and the warnings about the file."""
        from penstock.server.conf.validation import blank_options, complete_options

        options = blank_options()
        warnings: list[str] = []
        if self.asked("config"):
            from penstock.server.conf.options_file import load_options

            options, warnings = load_options(self.asked("config"))
        self._lay_over(options)
        return complete_options(options), warnings

    def _lay_over(self, options: Options) -> None:
        from penstock.server.conf.validation import note_ignored, note_unsupported

        for name, value in self.given.items():
            if name.startswith("?"):
                continue
            if name == "jetstream.durability" and value not in DURABILITIES:
                raise FlagError(f'invalid value "{value}" for flag -durability: one of {", ".join(DURABILITIES)}')
            target: Any = options
            *path, last = name.split(".")
            for step in path:
                target = getattr(target, step)
            setattr(target, last, value)
        self._lay_tls_over(options)
        if any(self.asked(name) for name in CLUSTER_FLAGS):
            if self.asked("routes") and not self.asked("cluster") and not any("cluster" in w for w in options.warnings):
                raise FlagError("solicited routes require cluster capabilities, e.g. --cluster")
            note_unsupported(options, "cluster")
        if self.asked("profile"):
            note_ignored(options, "prof_port")

    def _lay_tls_over(self, options: Options) -> None:
        given = {name: self.asked(name) for name in ("tls", "tlsverify", "tlscert", "tlskey", "tlscacert")}
        if given["tls"] is False:
            options.tls = None
            return
        if not any(given.values()):
            return
        if not given["tlscert"]:
            raise FlagError("TLS Server certificate must be present and valid")
        if not given["tlskey"]:
            raise FlagError("TLS Server private key must be present and valid")
        options.tls = TlsOptions(given["tlscert"], given["tlskey"], given["tlscacert"] or "", bool(given["tlsverify"]))
        options.tls.allow_non_tls = options.allow_non_tls
        from penstock.server.conf.tls import why_unusable

        why = why_unusable(options.tls)
        if why:
            raise FlagError(why)


def main(args: Sequence[str], program: str = "penstock serve") -> int:
    """Run a server, or the other requested action; exit codes as nats-server's: 0 done, 1 failed (2: bad usage)."""
    note_command(program, args)
    try:
        hide_secrets()
    except OSError as error:
        _complain(f"{PROGRAM}: other users of this machine can see the password in the command line: {error}")
    try:
        line = CommandLine(args)
    except FlagError as error:
        _complain(f"{error}\nsee: {program} -h")
        return MISTYPED
    try:
        return _obey(line, program)
    except PenstockError as error:
        _complain(f"{PROGRAM}: {error}")
        return FAILED
    except KeyboardInterrupt:  # before the server handled signals
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the reader is gone: no complaint of the interpreter at exit
        return FAILED


def _obey(line: CommandLine, program: str) -> int:
    word = line.rest[0].lower() if line.rest else ""
    if line.asked("version") or word == "version":
        return _show_version(program)
    if line.asked("help") or word == "help":
        return _show(USAGE.format(program=program))
    if line.asked("help_tls"):
        return _show_tls_help()
    if line.rest:
        if has_secrets(line.args):  # it may be the second half of a password that contains a blank
            raise FlagError("unrecognized command; a password with a blank in it needs quotes")
        raise FlagError(f'unrecognized command: "{line.rest[0]}"')
    if line.asked("install_shim") is not None:
        from penstock.cli.nats_server_wrapper import install_shim

        return _show(f"{install_shim(line.asked('install_shim'))}\n")
    if line.asked("signal"):
        from penstock.server.signals import send_signal

        send_signal(line.asked("signal"))
        return OK
    if line.asked("test"):
        return _test(line.asked("config"))
    options, warnings = line.options()
    for warning in warnings:
        _complain(warning)
    from penstock.cli.serve_run import run

    return run(options, line.options, PROGRAM if program == PROGRAM else "penstock")


def _test(path: str | None) -> int:
    """-t: a file with warnings fails too, as in nats-server."""
    from penstock.server.conf.options_file import BadConf, load_options

    if not path:
        raise FlagError("must specify [-c, --config] option to check configuration file syntax")
    options, warnings = load_options(path)
    if warnings:
        raise BadConf([], warnings)
    for note in options.warnings:
        _complain(f"{PROGRAM}: {note}")
    _complain(f"{PROGRAM}: configuration file {path} is valid ({options.config_digest})")
    return OK


def _show(text: str) -> int:
    if sys.stdout is not None:
        sys.stdout.write(text)
        sys.stdout.flush()
    return OK


def _complain(text: str) -> None:
    if sys.stderr is not None:  # it may be closed: `2>&-`
        sys.stderr.write(f"{text}\n")


def _show_version(program: str) -> int:
    """The version that clients check; under our own name, our version too."""
    if program == PROGRAM:
        return _show(f"{PROGRAM}: v{VERSION}\n")
    from importlib.metadata import version

    return _show(f"{PROGRAM}: v{VERSION}\npenstock: v{version('penstock')}\n")


def _show_tls_help() -> int:
    from penstock.server.conf.tls import CIPHERS, CURVES

    return _show(TLS_HELP.format(ciphers="\n    ".join(sorted(CIPHERS)), curves="\n    ".join(CURVES)))
