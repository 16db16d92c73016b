"""WebsocketCodec: protocol bytes to and from WebSocket frames, without a socket. Texts and codes are nats-server's.

    codec = WebsocketCodec(upgrade, max_payload)      after the handshake (server/websocket/handshake.py)
    commands = codec.receive(data)                    from the client, in pieces of any size: bytes for the parser
    for frame in codec.outgoing(): write(frame)       answers to pings and closes
    if codec.end: close(codec.end)                    the client has closed, or its frames are broken
    write(codec.encode(commands))                     to the client
    write(codec.closing("Stale Connection"))          the last frame, by the reason of the close

A frame may have a part of a command, or many. Only the bytes of a compressed message are collected; its size is bounded
before and after it is inflated.
"""

from __future__ import annotations

import struct
import zlib

from websockets.frames import apply_mask  # type: ignore[attr-defined]  # compiled where the machine has it

from penstock.server.websocket.handshake import Upgrade

FINAL, COMPRESSED, RESERVED, MASK = 0x80, 0x40, 0x30, 0x80
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
CONTROL_SIZE_MAX = 125
BROWSER_FRAME_SIZE = 4096
COMPRESS_ABOVE = 64
MESSAGE_SIZE_TIMES, MESSAGE_SIZE_MAX = 8, 64 * 1024 * 1024
SYNC_FLUSH = b"\x00\x00\xff\xff"  # ends every deflated message, and is left out on the wire

NORMAL, GOING_AWAY, PROTOCOL_ERROR, BAD_DATA = 1000, 1001, 1002, 1007
POLICY, TOO_BIG, INTERNAL = 1008, 1009, 1011
# A connection that ends for one of these reasons gets no close frame.
UNTOLD = frozenset(
    {
        "Read Error",
        "Write Error",
        "TLS Handshake Failure",
        "Slow Consumer (Pending Bytes)",
        "Slow Consumer (Write Deadline)",
    }
)
# The status of the close frame, by the reason of the end; INTERNAL for all others.
STATUS = {
    "Client Closed": NORMAL,
    "Authentication Timeout": POLICY,
    "Authentication Failure": POLICY,
    "Maximum Account Connections Exceeded": POLICY,
    "Maximum Connections Exceeded": POLICY,
    "Maximum Control Line Exceeded": POLICY,
    "Maximum Subscriptions Exceeded": POLICY,
    "Missing Account": POLICY,
    "Authentication Expired": POLICY,
    "Credentials Revoked": POLICY,
    "Parse Error": PROTOCOL_ERROR,
    "Protocol Violation": PROTOCOL_ERROR,
    "Bad Client Protocol Version": PROTOCOL_ERROR,
    "Maximum Message Payload Exceeded": TOO_BIG,
    "Stale Connection": GOING_AWAY,
    "Server Shutdown": GOING_AWAY,
}


class BadFrame(Exception):
    """A frame breaks the rules of WebSocket; the close frame has the text."""


class TooBig(Exception):
    """A compressed message is larger than allowed."""


class WebsocketCodec:
    """The frames of one connection.

    Always true: once `end` is set, nothing more is read; at most one close frame is sent.
    """

    def __init__(self, upgrade: Upgrade, max_payload: int) -> None:
        self.upgrade = upgrade
        self.cookies = upgrade.cookies
        self.client_ip = upgrade.client_ip
        self.max_payload = max_payload
        self.end = ""  # the reason to close the connection
        self.fault = ""  # for the log; "": the client has closed
        self._pending = b""  # the beginning of a frame's head or of a control frame, until the rest arrives
        self._left = 0  # missing bytes of the data frame
        self._mask = b""
        self._is_between = True  # no message is begun
        self._is_inflating = False
        self._deflated: list[bytes] = []
        self._deflated_size = 0
        self._outgoing: list[bytes] = []
        self._has_closed = False

    # From the client.

    def receive(self, data: bytes) -> bytes:
        """The protocol bytes in these frames."""
        found: list[bytes] = []
        if self.end:
            return b""
        if self._pending:
            data, self._pending = self._pending + data, b""
        at = 0
        try:
            while at < len(data) and not self.end:
                if self._left:
                    at = self._read_payload(data, at, found)
                    continue
                after = self._read_head(data, at)
                if after < 0:
                    self._pending = data[at:]
                    break
                at = after
                if not self._left:
                    self._finish_frame(found)
        except BadFrame as error:
            self._send_close(PROTOCOL_ERROR, str(error))
            self.end, self.fault = "Read Error", str(error)
        except (TooBig, zlib.error) as error:
            self.end, self.fault = "Read Error", str(error)
        return found[0] if len(found) == 1 else b"".join(found)

    def outgoing(self) -> list[bytes]:
        """Frames to send, once."""
        frames, self._outgoing = self._outgoing, []
        return frames

    def _read_head(self, data: bytes, at: int) -> int:
        """Read a frame's head at `at`, or a whole control frame; the offset after it, or -1 if bytes are missing."""
        left = len(data) - at
        first = data[at]
        kind = first & 0x0F
        is_final, is_compressed = bool(first & FINAL), bool(first & COMPRESSED)
        if first & RESERVED:
            raise BadFrame("RSV2 and RSV3 must be clear")
        if is_compressed and not self.upgrade.is_compressed:
            raise BadFrame("compressed frame received without negotiated permessage-deflate")
        if left < 2:
            return -1
        size = data[at + 1] & 0x7F
        if self.upgrade.is_masked and not data[at + 1] & MASK:
            raise BadFrame("mask bit missing")
        if kind in (CLOSE, PING, PONG):
            if size > CONTROL_SIZE_MAX:
                raise BadFrame(f"control frame length bigger than maximum allowed of {CONTROL_SIZE_MAX} bytes")
            if not is_final:
                raise BadFrame("control frame does not have final bit set")
            if is_compressed:
                raise BadFrame("control frame must not be compressed")
        elif kind in (TEXT, BINARY):
            if not self._is_between:
                raise BadFrame("new message started before final frame for previous message was received")
        elif kind == CONTINUATION:
            if self._is_between or is_compressed:
                raise BadFrame("invalid continuation frame")
        else:
            raise BadFrame(f"unknown opcode {kind}")
        size_size = {126: 2, 127: 8}.get(size, 0)
        mask_size = 4 if self.upgrade.is_masked else 0
        after = at + 2 + size_size + mask_size
        is_control = kind in (CLOSE, PING, PONG)
        if len(data) < (after + size if is_control else after):
            return -1
        if size_size:
            size = int.from_bytes(data[at + 2 : at + 2 + size_size], "big")
            if size >> 63:
                raise BadFrame("invalid 64-bit payload length")
        self._mask = data[after - mask_size : after]
        if is_control:
            self._read_control(kind, self._unmasked(data[after : after + size]))
            return after + size
        self._is_between = is_final
        if kind != CONTINUATION:
            self._is_inflating = is_compressed
        self._left = size
        return after

    def _read_payload(self, data: bytes, at: int, found: list[bytes]) -> int:
        """Read as much of the frame's payload as has arrived."""
        stop = min(at + self._left, len(data))
        part = self._unmasked(data[at:stop])
        size = stop - at
        self._left -= size
        if self._left and self._mask and size % 4:
            self._mask = self._mask[size % 4 :] + self._mask[: size % 4]
        if self._is_inflating:
            self._deflated.append(part)
            self._deflated_size += size
            if self._deflated_size > self._message_size_max:
                raise TooBig("maximum payload exceeded")
        else:
            found.append(part)
        if not self._left:
            self._finish_frame(found)
        return stop

    def _finish_frame(self, found: list[bytes]) -> None:
        if not self._is_inflating or not self._is_between:
            return
        inflated = self._inflate()
        found.append(inflated[: self._payload_max])
        if len(inflated) > self._payload_max:
            raise TooBig("maximum payload exceeded")

    def _inflate(self) -> bytes:
        """Inflate the message; one that is too large only in part."""
        packed = b"".join(self._deflated) + SYNC_FLUSH
        self._deflated, self._deflated_size, self._is_inflating = [], 0, False
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, self._payload_max + 1)

    @property
    def _payload_max(self) -> int:
        return self.max_payload if self.max_payload > 0 else 1024 * 1024

    @property
    def _message_size_max(self) -> int:
        return min(self._payload_max * MESSAGE_SIZE_TIMES, MESSAGE_SIZE_MAX)

    def _unmasked(self, part: bytes) -> bytes:
        return apply_mask(part, self._mask) if self._mask and part else part

    def _read_control(self, kind: int, payload: bytes) -> None:
        if kind == PING:
            self._outgoing.append(frame(PONG, payload))
        elif kind == CLOSE:
            self._read_close(payload)

    def _read_close(self, payload: bytes) -> None:
        """Answer the client's close frame with its own status, or with none."""
        if len(payload) == 1:
            raise BadFrame("close frame payload cannot be 1 byte")
        if payload:
            status = int.from_bytes(payload[:2], "big")
            if not is_status(status):
                raise BadFrame(f"invalid close status code {status}")
            try:
                text = payload[2:].decode()
            except UnicodeDecodeError:
                status, text = BAD_DATA, "invalid utf8 body in close frame"
            self._send_close(status, text)
        else:
            self._outgoing.append(frame(CLOSE, b""))
            self._has_closed = True
        self.end = "Client Closed"

    # To the client.

    def encode(self, data: bytes) -> bytes:
        """Frames with these bytes: one, or several small ones for a browser."""
        if not data:
            return b""
        size_max = BROWSER_FRAME_SIZE if self.upgrade.is_browser else MESSAGE_SIZE_MAX * MESSAGE_SIZE_TIMES
        if not self.upgrade.is_compressed or len(data) <= COMPRESS_ABOVE:
            if len(data) <= size_max:
                return frame(BINARY, data)
            return b"".join(frame(BINARY, data[at : at + size_max]) for at in range(0, len(data), size_max))
        packer = zlib.compressobj(zlib.Z_BEST_SPEED, zlib.DEFLATED, -zlib.MAX_WBITS)
        packed = (packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)).removesuffix(SYNC_FLUSH)
        if self.upgrade.is_compressed_whole or len(packed) <= size_max:
            return frame(BINARY | COMPRESSED, packed)
        # A compressed message in fragments: the first has the compression bit, the last is final.
        starts = range(0, len(packed), size_max)
        return b"".join(
            frame(
                (BINARY | COMPRESSED) if at == 0 else CONTINUATION,
                packed[at : at + size_max],
                is_final=at == starts[-1],
            )
            for at in starts
        )

    def closing(self, reason: str) -> bytes:
        """The last bytes of a connection that ends for this reason: a close frame, unless one was sent."""
        if not self._has_closed and reason not in UNTOLD:
            self._send_close(STATUS.get(reason, INTERNAL), reason)
        return b"".join(self.outgoing())

    def _send_close(self, status: int, text: str) -> None:
        body = text.encode()
        if len(body) > CONTROL_SIZE_MAX - 2:
            body = body[: CONTROL_SIZE_MAX - 5] + b"..."
        self._outgoing.append(frame(CLOSE, status.to_bytes(2, "big") + body))
        self._has_closed = True


def frame(first: int, payload: bytes, is_final: bool = True) -> bytes:
    """A frame from the server; servers do not mask."""
    first |= FINAL if is_final else 0
    size = len(payload)
    if size < 126:
        return bytes((first, size)) + payload
    if size < 65536:
        return struct.pack(">BBH", first, 126, size) + payload
    return struct.pack(">BBQ", first, 127, size) + payload


def is_status(code: int) -> bool:
    """Whether a client may close with this status."""
    return 1000 <= code < 5000 and code not in (1004, 1005, 1006, 1015) and not 1016 <= code <= 2999
