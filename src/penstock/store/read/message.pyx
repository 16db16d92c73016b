"""Message: a stored message as a read returns it. `headers` and `time` are decoded on first use."""
from datetime import datetime, timedelta, timezone

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@cython.freelist(64)
cdef class Message:
    """A stored message."""

    @property
    def time(self):
        """When it was stored, as an aware datetime (UTC, microseconds); time_ns is exact."""
        return _EPOCH + timedelta(microseconds=self.time_ns // 1000)

    @property
    def headers(self):
        """Its headers: a mapping from name to values (empty when it has none)."""
        if self._headers is None:
            from penstock.wire.headers import decode
            self._headers = decode(self.raw_headers or b"")
        return self._headers

    def __repr__(self):
        size = len(self.data)
        return f"<Message {self.seq} {self.subject!r} {size} byte{'' if size == 1 else 's'}>"


cdef Message make_message(const uint8_t* block, const Record* record):
    cdef Message message = Message.__new__(Message)
    message.seq = record.seq
    message.time_ns = record.time
    message.subject = PyUnicode_DecodeUTF8(<const char*>block + record.subject, record.subject_size, "backslashreplace")
    message.data = PyBytes_FromStringAndSize(<const char*>block + record.payload, record.payload_size)
    if record.flags & FLAG_HEADERS:
        message.raw_headers = PyBytes_FromStringAndSize(<const char*>block + record.headers, record.headers_size)
    return message
