"""The log lines of a server's life, from start to stop. People and tools wait for them, so they are nats-server's."""

from __future__ import annotations

from penstock.broker.io.pressure import PATH as PRESSURE_PATH
from penstock.server.log.log import Log
from penstock.server.options import Options

VERSION = "2.15.1"
API_LEVEL = 5
UNITS = "KMGTPE"
RULE = "-------------------------------------------"


def starting(log: Log, options: Options, name: str, server_id: str, penstock_version: str) -> None:
    """The first lines of a start, and the warnings of the configuration."""
    log.notice("Starting nats-server")
    log.notice(f"  Version:  {VERSION}")
    log.notice(f"  Penstock: {penstock_version}")
    log.notice(f"  Name:     {name}")
    log.notice(f"  ID:       {server_id}")
    for warning in options.warnings:
        log.warn(warning)
    if options.config_file:
        log.notice(f"Using configuration file: {options.config_file} ({options.config_digest})")


def no_io_uring(log: Log, error: OSError) -> None:
    log.notice(f"No io_uring here ({error.strerror}): each client is sent to by a system call of its own")


def no_pressure_information(log: Log, error: OSError) -> None:
    log.notice(
        f"This kernel does not tell whether processors are short ({PRESSURE_PATH}: {error.strerror}): the loop sleeps "
        "after each turn, and answers take some 50 us longer; the kernel parameter psi=1 turns it on"
    )


def http_monitor(log: Log, host: str, port: int, is_tls: bool = False) -> None:
    log.notice(f"Starting {'https' if is_tls else 'http'} monitor on {address(host, port)}")


def starting_jetstream(log: Log) -> None:
    log.notice("Starting JetStream")


def jetstream(log: Log, options: Options, store_dir: str, memory_max: int, storage_max: int) -> None:
    """JetStream's lines, once its limits are known."""
    settings = options.jetstream
    log.notice("---------------- JETSTREAM ----------------")
    log.notice(f"  Strict:          {'true' if settings.strict else 'false'}")
    log.notice(f"  Max Memory:      {friendly_bytes(memory_max)}")
    log.notice(f"  Max Storage:     {friendly_bytes(storage_max)}")
    log.notice(f'  Store Directory: "{store_dir}"')
    if settings.domain:
        log.notice(f"  Domain:          {settings.domain}")
    log.notice(f"  API Level:       {API_LEVEL}")
    log.notice(f"  Durability:      {settings.durability}")
    log.notice(RULE)


def temporary_store(log: Log, store_dir: str) -> None:
    log.warn("Temporary storage directory used, data could be lost on system reboot")
    log.debug(f"the store is {store_dir}")


def websocket(log: Log, host: str, port: int, is_tls: bool) -> None:
    log.notice(f"Listening for websocket clients on {'wss' if is_tls else 'ws'}://{address(host, port)}")
    if not is_tls:
        log.warn("Websocket not configured with TLS. DO NOT USE IN PRODUCTION!")


def listening(log: Log, options: Options, host: str, port: int) -> None:
    log.notice(f"Listening for client connections on {address(host, port)}")
    if options.tls is not None:
        log.notice("TLS required for client connections")
        if options.tls.handshake_first and not options.tls.handshake_first_fallback:
            log.warn('Clients that are not using "TLS Handshake First" option will fail to connect')


def ready(log: Log) -> None:
    log.notice("Server is ready")


def trapped(log: Log, signal: str) -> None:
    log.notice(f'Trapped "{signal}" signal')


def stopping(log: Log) -> None:
    log.notice("Initiating Shutdown...")


def stopping_jetstream(log: Log) -> None:
    log.notice("Initiating JetStream Shutdown...")


def jetstream_stopped(log: Log) -> None:
    log.notice("JetStream Shutdown")


def jetstream_failed(log: Log, error: Exception) -> None:
    log.error(f"JetStream was not closed in good order: {error}")


def stopped(log: Log) -> None:
    log.notice("Server Exiting..")


def lame_duck(log: Log) -> None:
    log.notice("Entering lame duck mode, stop accepting new clients")


def address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def friendly_bytes(size: int) -> str:
    """ "17.65 GB": as nats-server writes sizes, in steps of 1024."""
    if size < 1024:
        return f"{size} B"
    power = min((size.bit_length() - 1) // 10, len(UNITS))
    return f"{size / 1024**power:.2f} {UNITS[power - 1]}B"
