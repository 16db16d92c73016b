"""Ingest: the compiled part of a stream on the server. Messages of one read come in as a batch, answers leave when they are durable.

The router adds what is published while it reads a socket; the pointers point into the read buffer, so the batch is appended before the read ends. Its host, an `IngestHost` (ingest.pyi), is
the stream's endpoint.
Answers, refusals too, wait in order for the position of the log at which everything before them is durable.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from penstock.store.write.batch cimport Incoming, may_ask

cdef enum:
    COUNT_MAX = 100000
    SIZE_MAX = 134217728


cdef Batch client_batch():
    """A batch for what clients publish: a subject with a wildcard as a token is stored too, as in nats-server."""
    cdef Batch batch = Batch()
    batch.takes_names = True
    return batch


cdef class Ingest:
    """A stream's batch of this turn, and the answers that wait for its commits."""

    def __cinit__(self):
        self.batch = client_batch()
        self.parked = []
        self.errors = {}
        self.has_acks = True
        self.count_max = COUNT_MAX
        self.size_max = SIZE_MAX

    def __dealloc__(self):
        cdef Chunk* chunk
        free(self.reply_to)
        free(self.scratch)
        while self.first != NULL:
            chunk = self.first
            self.first = chunk.next
            free(chunk)

    def set_head(self, bytes head not None):
        """What a PubAck begins with, up to its sequence."""
        cdef void* grown = realloc(self.scratch, 2 * (PyBytes_GET_SIZE(head) + SCRATCH_MORE))
        if grown == NULL:
            raise MemoryError
        self.scratch = <uint8_t*>grown
        self.head = head

    cdef int add(self, const uint8_t* subject, uint32_t subject_size, const uint8_t* reply, uint32_t reply_size,
                 const uint8_t* headers, uint32_t headers_size, const uint8_t* payload, uint32_t payload_size,
                 bint copies) except -1:
        """One more message; `copies` when the bytes do not last until the batch is taken."""
        cdef Incoming* item
        cdef void* grown
        cdef uint32_t at = self.batch.count
        cdef bytes kept
        cdef uint8_t* data
        if copies:
            kept = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>subject_size + reply_size + headers_size + payload_size)
            self.batch.keep.append(kept)
            data = <uint8_t*>PyBytes_AS_STRING(kept)
            memcpy(data, subject, subject_size)
            subject = data
            data += subject_size
            if reply_size:
                memcpy(data, reply, reply_size)
                reply = data
                data += reply_size
            if headers_size:
                memcpy(data, headers, headers_size)
                headers = data
                data += headers_size
            if payload_size:
                memcpy(data, payload, payload_size)
            payload = data
        if at == self.reply_capacity:
            grown = realloc(self.reply_to, (at * 2 + 64) * sizeof(ReplyTo))
            if grown == NULL:
                raise MemoryError
            self.reply_to = <ReplyTo*>grown
            self.reply_capacity = at * 2 + 64
        item = self.batch.add()
        item.subject = subject
        item.subject_size = subject_size
        item.payload = payload
        item.payload_size = payload_size
        if headers_size:
            item.headers = headers
            item.headers_size = headers_size
            if may_ask(item):
                item.has_rules = True
                self.batch.has_rules = True
        self.reply_to[at].reply = reply if reply_size else NULL
        self.reply_to[at].reply_size = reply_size
        return 0

    cdef int take(self) except -1:
        """Append this turn's batch; it is parked when another thread has the stream."""
        self.is_touched = False
        if self.batch.count == 0:
            return 0
        if self.is_full():
            self.refuse()
            return 0
        if self.parked or not self.lock.acquire(False):
            self.park()
            return 0
        try:
            self.append(self.batch, self.reply_to)
        finally:
            self.lock.release()
            if self.batch.keep or self.batch.has_rules:
                self.batch = client_batch()
            else:
                self.batch.count = 0       # its arrays are used again
        return 0

    cdef int append(self, Batch batch, ReplyTo* reply_to) except -1:
        cdef bytes whole = None
        cdef list refused = []
        cdef dict duplicates = {}
        cdef uint64_t size = 0
        cdef Py_ssize_t n
        if self.guard is not None:
            for n in range(batch.count):
                size += batch.items[n].subject_size + batch.items[n].headers_size + batch.items[n].payload_size
            whole = self.guard(batch.count, size)
            if whole is not None and batch.count > 1:
                return self.append_each(batch, reply_to)
        if whole is None:
            try:
                refused, duplicates = self.rules.take(batch)
            except Exception as error:     # the store says why: all publishers of the batch are told
                whole = self.endpoint.refusal(error)
        return self.queue_answers(batch, reply_to, refused, duplicates, whole)

    cdef int append_each(self, Batch batch, ReplyTo* reply_to) except -1:
        """Not all of the batch may be taken: ask the guard for each message alone, so that batching does not show."""
        cdef Batch single
        cdef Incoming* item
        cdef Py_ssize_t n
        for n in range(batch.count):
            single = client_batch()
            item = single.add()
            item[0] = batch.items[n]       # its bytes are the batch's, which outlives it
            single.has_rules = item.has_rules
            self.append(single, &reply_to[n])
        return 0

    cdef int queue_answers(self, Batch batch, ReplyTo* reply_to, list refused, dict duplicates, bytes whole) except -1:
        """Keep the answers until the log is committed up to where it is now."""
        cdef Chunk* chunk
        cdef Waiting* item
        cdef size_t size = 0
        cdef uint32_t count = 0, n, at = 0
        cdef dict answers = {}
        if not self.has_acks:
            return 0
        for n in range(<uint32_t>batch.count):
            if reply_to[n].reply != NULL:
                count += 1
                size += reply_to[n].reply_size
        if count == 0:
            return 0
        for place, error in refused:
            answers[place] = error
        chunk = <Chunk*>malloc(sizeof(Chunk) + count * sizeof(Waiting) + size)
        if chunk == NULL:
            raise MemoryError
        chunk.next = NULL
        chunk.position = self.engine.log.appended
        chunk.count = count
        chunk.done = 0
        chunk.items = <Waiting*>(<uint8_t*>chunk + sizeof(Chunk))
        chunk.replies = <uint8_t*>chunk.items + count * sizeof(Waiting)
        item = chunk.items
        for n in range(<uint32_t>batch.count):
            if reply_to[n].reply == NULL:
                continue
            item.reply_at = at
            item.reply_size = reply_to[n].reply_size
            memcpy(chunk.replies + at, reply_to[n].reply, reply_to[n].reply_size)
            at += reply_to[n].reply_size
            if whole is not None or batch.items[n].status:
                if whole is None and n in duplicates:
                    item.answer = ANSWER_DUPLICATE
                    item.seq = duplicates[n]
                else:
                    item.answer = ANSWER_ERROR
                    item.seq = self.next_error
                    self.errors[self.next_error] = whole if whole is not None else self.endpoint.refusal(answers[n])
                    self.next_error += 1
            else:
                item.answer = ANSWER_ACK
                item.seq = batch.items[n].seq
            item += 1
        if self.last != NULL:
            self.last.next = chunk
        else:
            self.first = chunk
        self.last = chunk
        self.waiting_count += count
        return 0

    cdef bint is_full(self) noexcept:
        """Whether more waits already than may. The batch does not count, so that one of any size is taken."""
        cdef uint64_t size = self.parked_bytes + self.engine.log.appended - self.engine.log.committed()
        self.is_half_full = self.parked_count > self.count_max // 2 or size > self.size_max // 2
        return self.parked_count >= self.count_max or size >= self.size_max

    def look(self):
        """Whether half of what may wait does, now."""
        self.is_full()
        return self.is_half_full

    cdef int refuse(self) except -1:
        """Take nothing of the batch, and tell its publishers at once."""
        cdef Batch batch = self.batch
        cdef Py_ssize_t n
        replies = [self.reply_to[n].reply[:self.reply_to[n].reply_size] for n in range(batch.count) if self.reply_to[n].reply != NULL]
        self.batch = client_batch()
        self.endpoint.overflowed(replies if self.has_acks else [])
        return 0

    cdef int park(self) except -1:
        """Keep the batch with its bytes until the stream's lock is free."""
        cdef Batch batch = self.batch
        cdef Incoming* item
        cdef Py_ssize_t n
        cdef bytes kept
        cdef const uint8_t* data
        replies = []
        for n in range(batch.count):
            item = &batch.items[n]
            kept = item.subject[:item.subject_size] + (
                item.headers[:item.headers_size] if item.headers_size else b"") + (
                item.payload[:item.payload_size] if item.payload_size else b"")
            batch.keep.append(kept)
            data = <const uint8_t*>PyBytes_AS_STRING(kept)
            item.subject = data
            if item.headers_size:
                item.headers = data + item.subject_size
            item.payload = data + item.subject_size + item.headers_size
            replies.append(self.reply_to[n].reply[:self.reply_to[n].reply_size] if self.reply_to[n].reply != NULL else None)
            self.parked_bytes += len(kept)
        self.parked_count += batch.count
        self.parked.append((batch, replies))
        self.batch = client_batch()
        self.endpoint.has_parked()
        return 0

    def take_parked(self):
        """Append what was parked, in order: False when the stream's lock is still taken."""
        cdef Batch batch
        cdef ReplyTo* reply_to
        cdef Py_ssize_t n
        cdef bytes reply
        if not self.lock.acquire(False):
            return False
        try:
            while self.parked:
                batch, replies = self.parked[0]
                reply_to = <ReplyTo*>malloc(max(batch.count, 1) * sizeof(ReplyTo))
                if reply_to == NULL:
                    raise MemoryError
                try:
                    for n in range(batch.count):
                        reply = replies[n]
                        reply_to[n].reply = NULL if reply is None else <const uint8_t*>PyBytes_AS_STRING(reply)
                        reply_to[n].reply_size = 0 if reply is None else <uint32_t>len(reply)
                    self.append(batch, reply_to)
                finally:
                    free(reply_to)
                del self.parked[0]
            self.parked_count = self.parked_bytes = 0
        finally:
            self.lock.release()
        return True

    @property
    def is_waiting(self):
        """Whether a publisher waits for an answer."""
        return self.first != NULL

    @property
    def is_due(self):
        """Whether an answer could be sent now."""
        return self.first != NULL and self.first.position <= self.decided()

    cdef uint64_t decided(self) noexcept:
        """Up to where it is known what became of the messages."""
        return self.engine.log.appended if self.is_over else self.engine.log.committed()

    cdef void drop_first(self) noexcept:
        """The oldest answers are sent."""
        cdef Chunk* chunk = self.first
        self.first = chunk.next
        if self.first == NULL:
            self.last = NULL
        self.waiting_count -= chunk.count
        free(chunk)
