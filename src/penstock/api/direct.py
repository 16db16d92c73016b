"""DIRECT.GET: stored messages as they are, without JSON around them. Forms: docs/wire.md, "Direct get".

A stream with allow_direct answers; others have no responder. Only durable messages are read. A long batch is sent in
slices, and later requests to the same stream wait behind it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.api.messages import GET, SEQ_STOP, find_seq
from penstock.base.subject import is_valid_filter
from penstock.broker.streams.direct_sender import DirectSender
from penstock.db.loop_commits import RETRY_S
from penstock.errors import InvalidJson, StoreError
from penstock.store.read.reader import Reader
from penstock.wire.go_decode import decode_one
from penstock.wire.go_json import parse_time
from penstock.wire.level import asks_too_much

if TYPE_CHECKING:
    from penstock.broker.account import Account, Request
    from penstock.db.stream import Stream

log = logging.getLogger("penstock.api")
PREFIX_SIZE = len(b"$JS.API.DIRECT.GET.")
SLICE = 1024  # messages of a batch that leave in one tick …
SLICE_BYTES = 1 << 20  # … or as many bytes
RESULTS_MAX = 1024  # sequences in the reply to a multi_last
END = b"NATS/1.0 204 EOB\r\nNats-Num-Pending: %d\r\nNats-Last-Sequence: %d\r\n"
EMPTY_REQUEST = b"NATS/1.0 408 Empty Request\r\n\r\n"
MALFORMED = b"NATS/1.0 408 Malformed Request\r\n\r\n"
BAD_REQUEST = b"NATS/1.0 408 Bad Request\r\n\r\n"
LEVEL = b"NATS/1.0 412 Required Api Level\r\n\r\n"
NOT_FOUND = b"NATS/1.0 404 Message Not Found\r\n\r\n"
NO_RESULTS = b"NATS/1.0 404 No Results\r\n\r\n"
FAILED = b"NATS/1.0 500 Internal Error\r\n\r\n"
TOO_MANY = b"NATS/1.0 413 Too Many Results\r\n\r\n"

Work = Generator[None, None, None]
Wanted = dict[str, Any]


class DirectRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A request as clients write it. One that does not parse like this is read again, slowly, as Go's decoder would."""

    seq: int = 0
    last_by_subj: str = ""
    next_by_subj: str = ""
    batch: int = 0
    max_bytes: int = 0
    start_time: str | None = None
    multi_last: list[str] = []
    up_to_seq: int = 0
    up_to_time: str | None = None
    no_hdr: bool = False


_DECODER = msgspec.json.Decoder(DirectRequest)


def read_request(payload: bytes) -> Wanted:
    """The fields that are set; InvalidJson if the body is no request."""
    try:
        wanted: Wanted = msgspec.to_builtins(_DECODER.decode(payload))
        if not 0 <= wanted.get("seq", 0) < SEQ_STOP or not 0 <= wanted.get("up_to_seq", 0) < SEQ_STOP:
            raise ValueError("a sequence that no message has")
        if abs(wanted.get("batch", 0)) >= SEQ_STOP or abs(wanted.get("max_bytes", 0)) >= SEQ_STOP:
            raise ValueError("a count that does not fit")
        for key in ("start_time", "up_to_time"):
            if key in wanted:
                wanted[key] = parse_time(wanted[key])
    except ValueError:  # msgspec's errors are such
        return {key: value for key, value in decode_one(payload, GET).items() if value or key.endswith("_time")}
    return wanted


class Direct:
    """Answers one stream's direct gets. Belongs to the loop's thread."""

    def __init__(self, account: Account, stream: Stream, max_pending: int) -> None:
        self._stream = stream
        self._store = stream.store
        self._is_file = stream.config.storage == "file"
        self._loop = account.tick.loop
        self._max_pending = max_pending
        self._sender = DirectSender(account.router, account.sublist, stream.store.engine, stream.name.encode())
        self._work: deque[Work] = deque()

    def handle(self, request: Request, key: bytes) -> None:
        """Answer one request; `key` is the message subject in the request's subject, if there is one."""
        if request.reply is None:
            return
        try:
            wanted = self._wanted(request, key)
        except _Refused as refused:
            request.respond(b"", refused.status)
            return
        if self._work or not self._stream.try_lock():
            self._later(self._waiting(request, wanted))
            return
        try:
            rest = self._answer(request, wanted)
        finally:
            self._stream.unlock()
        if rest is not None:
            self._later(rest)

    def _wanted(self, request: Request, key: bytes) -> Wanted:
        if request.headers is not None and asks_too_much(request.headers):
            raise _Refused(LEVEL)
        try:
            wanted = read_request(request.payload) if request.payload else {}
        except InvalidJson:
            raise _Refused(MALFORMED) from None
        if key:
            if wanted.keys() - {"no_hdr", "max_bytes"}:
                raise _Refused(BAD_REQUEST)
            wanted["last_by_subj"] = key.decode("utf-8", "surrogateescape")
            return wanted
        last, has_time = "last_by_subj" in wanted, "start_time" in wanted
        after, multi = "next_by_subj" in wanted, "multi_last" in wanted
        if not ("seq" in wanted or last or after or multi or has_time):
            raise _Refused(EMPTY_REQUEST)
        if (
            ("seq" in wanted and (last or has_time))
            or (last and (has_time or after or multi or wanted.get("batch", 0) > 0))
            or (after and multi)
            or ("up_to_seq" in wanted and "up_to_time" in wanted)
        ):
            raise _Refused(BAD_REQUEST)
        return wanted

    # Long work goes on in later ticks.

    def _later(self, work: Work) -> None:
        self._work.append(work)
        if len(self._work) == 1:
            self._loop.call_soon(self._go_on)

    def _waiting(self, request: Request, wanted: Wanted) -> Work:
        rest = self._answer(request, wanted)
        if rest is not None:
            yield from rest

    def _go_on(self) -> None:
        if self._store.engine.is_closed:
            self._work.clear()
            return
        if not self._stream.try_lock():
            self._loop.call_later(RETRY_S, self._go_on)
            return
        try:
            if next(self._work[0], StopIteration) is StopIteration:
                self._work.popleft()
        except Exception:  # our own mistake is logged, and those behind it are served
            log.exception("a direct get failed")
            self._work.popleft()
        finally:
            self._stream.unlock()
        if self._work:
            self._loop.call_soon(self._go_on)

    # The answers.

    def _answer(self, request: Request, wanted: Wanted) -> Work | None:
        if "multi_last" in wanted:
            return self._multi(request, wanted)
        if "batch" in wanted:
            return self._batch(request, wanted)
        assert request.reply is not None
        try:
            if not self._sender.send(request.reply, find_seq(self._stream, wanted), "no_hdr" in wanted):
                request.respond(b"", NOT_FOUND)
        except StoreError:  # damaged, which the store has logged, or just being deleted
            request.respond(b"", NOT_FOUND)
        return None

    def _batch(self, request: Request, wanted: Wanted) -> Work:
        engine, query = self._store.engine, self._store.query
        subject, most = wanted.get("next_by_subj", ""), wanted["batch"]
        start = engine.seq_from_time(wanted["start_time"]) if "start_time" in wanted else wanted.get("seq", 0)
        start = min(start, SEQ_STOP - 1)
        filters = [subject] if subject else []
        if subject and not is_valid_filter(subject):
            request.respond(b"", NOT_FOUND)
            return
        assert request.reply is not None
        pending = query.pending(filters, start) - query.pending(filters, engine.committed_seq + 1)
        reader = Reader(engine, filters, start)
        is_bare, last, count = "no_hdr" in wanted, 0, 0
        left = max(wanted.get("max_bytes") or self._max_pending, 1)
        while count < most and left > 0:
            slice_bytes = min(left, SLICE_BYTES)
            found, size, pending, last = self._sender.send_next(
                reader, request.reply, min(SLICE, most - count), slice_bytes, is_bare, pending, last
            )
            count += found
            left -= size
            if found < SLICE and size < slice_bytes:
                break
            yield
        if not count and most > 0:
            request.respond(b"", NOT_FOUND)
            return
        request.respond(b"", END % (pending, last) + b"\r\n")

    def _multi(self, request: Request, wanted: Wanted) -> Work:
        found = self._last_seqs(wanted)
        if isinstance(found, bytes):
            request.respond(b"", found)
            return
        assert request.reply is not None
        up_to, seqs = found
        seqs = [seq for seq in seqs if seq >= wanted.get("seq", 0)]
        pending, last = len(seqs), 0
        left, most = wanted.get("max_bytes") or self._max_pending, wanted.get("batch", 0)
        for count, seq in enumerate(seqs, 1):
            pending -= 1
            try:
                size = self._sender.send_placed(request.reply, seq, pending, last)
            except StoreError:
                size = -1
            if size < 0:
                request.respond(b"", NOT_FOUND)
                return
            last = seq
            left -= size
            if left <= 0 or count == most:
                break
            if count % SLICE == 0:
                yield
        request.respond(b"", END % (pending, last) + b"Nats-UpTo-Sequence: %d\r\n\r\n" % up_to)

    def _last_seqs(self, wanted: Wanted) -> tuple[int, list[int]] | bytes:
        """The upper sequence and the sequences to send, or the status that refuses the request."""
        engine, query = self._store.engine, self._store.query
        up_to = wanted.get("up_to_seq", 0)
        if "up_to_time" in wanted:
            up_to = engine.seq_from_time(wanted["up_to_time"]) - 1
            if up_to < self._store.index.first_seq:
                return NO_RESULTS
            up_to = min(up_to, engine.committed_seq)
        filters = [one for one in wanted["multi_last"] if is_valid_filter(one)]
        if not filters or (
            up_to > engine.committed_seq and self._is_file
        ):  # for a stream in memory nats-server accepts it
            return NO_RESULTS
        up_to = up_to or engine.committed_seq
        seqs = query.last_seqs(filters, min(up_to, engine.committed_seq), RESULTS_MAX) if engine.committed_seq else []
        if seqs is None:
            return TOO_MANY
        return (up_to, seqs) if seqs else NO_RESULTS


class _Refused(Exception):
    def __init__(self, status: bytes) -> None:
        self.status = status


def get_direct(request: Request) -> None:
    """Pass a request on $JS.API.DIRECT.GET to the stream that answers it."""
    name, dot, key = request.subject[PREFIX_SIZE:].partition(b".")
    jetstream = request.account.jetstream
    direct = jetstream.direct.get(name) if jetstream is not None else None
    if direct is None or (dot and not is_valid_filter(key)):
        no_responders(request)
        return
    try:
        direct.handle(request, key)
    except Exception:  # our own mistake is logged and answered
        log.exception("a direct get from %s failed: %s", name.decode("utf-8", "replace"), request.payload[:200])
        request.respond(b"", FAILED)


def no_responders(request: Request) -> None:
    """Answer as if the subject had no subscriber."""
    client = request.client
    if request.reply is not None and client is not None and client.has_no_responders:
        request.respond(b"", b"NATS/1.0 503\r\nNats-Subject: %s\r\n\r\n" % request.subject)
