"""SendBuffer: bytes that wait for a socket, and the memory in which they lie.

A client that does not read may have tens of megabytes waiting. One growing buffer for them is copied again and again while
it grows, and giving it back to the system takes the loop 4 ms: a hundred such clients that are cut at once kept everybody
waiting for 0.3 s. So what waits lies in pieces of PIECE_SIZE that are linked, handed on by pointer and never moved.

Pieces that are given back are kept as spares, warm memory for whoever needs one next. A thread returns to the system what
was not needed for a while beyond SPARE_KEPT. It needs no GIL, and is there from the first time it has something to do.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.errno cimport EINTR, errno
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from penstock.base.threads cimport (
    pthread_cond_broadcast, pthread_cond_init, pthread_cond_signal, pthread_cond_t, pthread_cond_timedwait, pthread_cond_wait,
    pthread_create, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_t, pthread_mutex_unlock, pthread_t, timed_cond_init,
)

cdef extern from "pthread.h" nogil:
    int pthread_detach(pthread_t thread)
    int pthread_atfork(void (*prepare)() noexcept nogil, void (*parent)() noexcept nogil, void (*child)() noexcept nogil)

cdef extern from "sys/mman.h" nogil:
    void* mmap(void* addr, size_t size, int prot, int flags, int fd, long offset)
    int munmap(void* addr, size_t size)
    int PROT_READ, PROT_WRITE, MAP_PRIVATE, MAP_ANONYMOUS, MAP_NORESERVE
    void* MAP_FAILED

cdef extern from "sys/socket.h" nogil:
    cdef struct msghdr:
        iovec* msg_iov
        size_t msg_iovlen
    ssize_t c_send "send"(int fd, const void* data, size_t size, int flags)
    ssize_t sendmsg(int fd, const msghdr* message, int flags)
    int MSG_DONTWAIT, MSG_NOSIGNAL

cdef enum:
    SIZES = 4                              # spares are kept of PIECE_SIZE and its doubles
    SPARE_KEPT = 16777216                  # bytes of spares that are never freed
    COOL_NS = 50000000                     # spares above that are freed when they were not needed for so long
    AT_ONCE = 64                           # spares that the thread takes while it holds the lock once
    PAGE = 4096
    PARTS_MAX = 64                         # pieces that one call sends, …
    SEND_MAX = 4194304                     # … and bytes

PIECE_BYTES, SPARE_BYTES = PIECE_SIZE, SPARE_KEPT

cdef struct Spare:                         # stored in the spare memory itself
    Spare* next
    size_t size
    bint is_mapped                         # else it is the C library's

# One set for the process: below the lock.
cdef pthread_mutex_t _lock
cdef pthread_cond_t _wake                 # the thread has something to do
cdef pthread_cond_t _is_idle                # … and has nothing more to do
cdef Spare* _spares[SIZES]
cdef Py_ssize_t _counts[SIZES]
cdef Py_ssize_t _lowest[SIZES]             # the fewest spares of each size since the thread last looked
cdef size_t _spare_bytes = 0
cdef Spare* _to_free = NULL                 # to be freed
cdef size_t _doomed_bytes = 0
cdef size_t _freed_bytes = 0               # so far, by the thread
cdef bint _has_thread = False
cdef bint _is_at_work = False              # it is freeing something just now

pthread_mutex_init(&_lock, NULL)
timed_cond_init(&_wake)
pthread_cond_init(&_is_idle, NULL)


cdef void _before_fork() noexcept nogil:
    pthread_mutex_lock(&_lock)


cdef void _after_fork() noexcept nogil:
    pthread_mutex_unlock(&_lock)


cdef void _in_child() noexcept nogil:
    """The thread is not there any more; the memory is."""
    global _has_thread, _is_at_work
    pthread_mutex_init(&_lock, NULL)
    timed_cond_init(&_wake)
    pthread_cond_init(&_is_idle, NULL)
    _has_thread = _is_at_work = False


pthread_atfork(_before_fork, _after_fork, _in_child)


# The thread.

cdef void _release(Spare* first) noexcept nogil:
    cdef Spare* spare
    while first != NULL:
        spare = first
        first = spare.next
        if spare.is_mapped:
            munmap(spare, spare.size)
        else:
            free(spare)


cdef Spare* _cooled(size_t* size) noexcept nogil:
    """Take out some of the spares that were not needed for a while, largest first, down to SPARE_KEPT. The caller holds the lock."""
    cdef Spare* found = NULL
    cdef Spare* spare
    cdef int at = SIZES, count = 0
    while at > 0:
        at -= 1
        while _lowest[at] > 0 and _spare_bytes > SPARE_KEPT and count < AT_ONCE:
            spare = _take_spare(at)
            spare.next = found
            found = spare
            size[0] += spare.size
            count += 1
    return found


cdef void* _free(void* _) noexcept nogil:
    global _to_free, _doomed_bytes, _freed_bytes, _is_at_work
    cdef Spare* found
    cdef size_t size
    cdef timespec until
    cdef int at
    pthread_mutex_lock(&_lock)
    while True:
        found = _to_free
        size = _doomed_bytes
        _to_free = NULL
        _doomed_bytes = 0
        if found == NULL and _spare_bytes <= SPARE_KEPT:
            for at in range(SIZES):
                _lowest[at] = 0
            pthread_cond_broadcast(&_is_idle)
            pthread_cond_wait(&_wake, &_lock)
            continue
        if found == NULL:
            found = _cooled(&size)
        if found == NULL:
            for at in range(SIZES):        # from now on the fewest are counted again
                _lowest[at] = _counts[at]
            clock_gettime(CLOCK_MONOTONIC, &until)
            until.tv_nsec += COOL_NS
            if until.tv_nsec >= 1000000000:
                until.tv_nsec -= 1000000000
                until.tv_sec += 1
            pthread_cond_timedwait(&_wake, &_lock, &until)
            continue
        _is_at_work = True
        pthread_mutex_unlock(&_lock)
        _release(found)
        pthread_mutex_lock(&_lock)
        _is_at_work = False
        _freed_bytes += size
    return NULL


cdef void _ask_thread() noexcept nogil:
    """Wake the thread. The caller holds the lock."""
    global _has_thread
    cdef pthread_t thread
    if not _has_thread:
        if pthread_create(&thread, NULL, _free, NULL):
            return                         # no thread could be started: the memory is freed after the next attempt
        pthread_detach(thread)
        _has_thread = True
    pthread_cond_signal(&_wake)


cdef void _doom(Spare* spare) noexcept nogil:
    """The caller holds the lock."""
    global _to_free, _doomed_bytes
    cdef bint is_first = _to_free == NULL
    spare.next = _to_free
    _to_free = spare
    _doomed_bytes += spare.size
    if is_first:
        _ask_thread()


cdef void free_aside(void* data, size_t size) noexcept nogil:
    """Free memory of `malloc`; a large block in the thread, since the system takes long to take it back."""
    cdef Spare* spare = <Spare*>data
    if data == NULL or size < PIECE_SIZE:
        free(data)
        return
    spare.size = size
    spare.is_mapped = False
    pthread_mutex_lock(&_lock)
    _doom(spare)
    pthread_mutex_unlock(&_lock)


# Buffers.

cdef inline int _size_class(size_t size) noexcept nogil:
    """The index of the smallest spares that are large enough; SIZES: there are none so large."""
    cdef int at = 0
    while at < SIZES and (<size_t>PIECE_SIZE << at) < size:
        at += 1
    return at


cdef Spare* _take_spare(int at) noexcept nogil:
    global _spare_bytes
    cdef Spare* spare = _spares[at]
    _spares[at] = spare.next
    _counts[at] -= 1
    if _counts[at] < _lowest[at]:
        _lowest[at] = _counts[at]
    _spare_bytes -= spare.size
    return spare


cdef uint8_t* take_buffer(size_t wanted, size_t* capacity) noexcept nogil:
    """Memory for `wanted` bytes or more, to be returned with `give_buffer`; NULL: out of memory."""
    cdef int at
    cdef void* data
    if wanted <= SMALL_MAX:
        capacity[0] = wanted
        return <uint8_t*>malloc(wanted)
    at = _size_class(wanted)
    if at == SIZES:
        capacity[0] = (wanted + PAGE - 1) & ~<size_t>(PAGE - 1)
    else:
        capacity[0] = <size_t>PIECE_SIZE << at
        pthread_mutex_lock(&_lock)
        data = NULL if _spares[at] == NULL else _take_spare(at)
        pthread_mutex_unlock(&_lock)
        if data != NULL:
            return <uint8_t*>data
    data = mmap(NULL, capacity[0], PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
    return NULL if data == MAP_FAILED else <uint8_t*>data


cdef void give_buffer(uint8_t* data, size_t capacity) noexcept nogil:
    """Return memory of `take_buffer`."""
    global _spare_bytes
    cdef Spare* spare = <Spare*>data
    cdef int at
    cdef bint had_enough
    if data == NULL or capacity <= SMALL_MAX:
        free(data)
        return
    spare.size = capacity
    spare.is_mapped = True
    at = _size_class(capacity)
    pthread_mutex_lock(&_lock)
    if at == SIZES:
        _doom(spare)
    else:
        had_enough = _spare_bytes > SPARE_KEPT
        spare.next = _spares[at]
        _spares[at] = spare
        _counts[at] += 1
        _spare_bytes += capacity
        if _spare_bytes > SPARE_KEPT and not had_enough:
            _ask_thread()
    pthread_mutex_unlock(&_lock)


def memory():
    """(bytes of spares, bytes that are to be freed, bytes that the thread has freed so far)."""
    return _spare_bytes, _doomed_bytes, _freed_bytes


def wait_until_freed():
    """Return when the thread has nothing to do: for tests."""
    with nogil:
        pthread_mutex_lock(&_lock)
        while _has_thread and (_to_free != NULL or _is_at_work or _spare_bytes > SPARE_KEPT):
            pthread_cond_wait(&_is_idle, &_lock)
        pthread_mutex_unlock(&_lock)


cdef class SendBuffer:
    """Bytes in their order. Always true: `size` is what the pieces hold, and none is empty."""

    def __dealloc__(self):
        self.clear()

    cdef int append(self, uint8_t* data, size_t start, size_t stop, size_t capacity) except -1:
        """Bytes [start, stop) of a buffer, which is ours from now on."""
        cdef Piece* piece = <Piece*>malloc(sizeof(Piece))
        if piece == NULL:
            raise MemoryError
        piece.next = NULL
        piece.data = data
        piece.start = start
        piece.stop = stop
        piece.capacity = capacity
        if self.last == NULL:
            self.first = piece
        else:
            self.last.next = piece
        self.last = piece
        self.size += stop - start
        return 0

    cdef int add(self, const uint8_t* data, size_t size) except -1:
        """A copy of some bytes."""
        cdef size_t space = 0, capacity
        cdef uint8_t* buffer
        if self.last != NULL:
            space = min(self.last.capacity - self.last.stop, size)
            memcpy(self.last.data + self.last.stop, data, space)
            self.last.stop += space
            self.size += space
        if space == size:
            return 0
        # A small buffer first: most clients have few bytes waiting.
        capacity = max(size - space, <size_t>512 if self.last == NULL else self.last.capacity * 2)
        buffer = take_buffer(max(min(capacity, <size_t>PIECE_SIZE), size - space), &capacity)
        if buffer == NULL:
            raise MemoryError
        memcpy(buffer, data + space, size - space)
        try:
            self.append(buffer, 0, size - space, capacity)
        except MemoryError:
            give_buffer(buffer, capacity)
            raise
        return 0

    cdef int move_from(self, SendBuffer other) except -1:
        """All of another's pieces, after ours."""
        if other.first == NULL:
            return 0
        if self.last == NULL:
            self.first = other.first
        else:
            self.last.next = other.first
        self.last = other.last
        self.size += other.size
        other.first = other.last = NULL
        other.size = 0
        return 0

    cdef int spread(self, iovec* parts, int count_max, size_t size_max) noexcept nogil:
        """Fill `parts` with the first pieces: how many there are."""
        cdef Piece* piece = self.first
        cdef int count = 0
        cdef size_t size = 0
        while piece != NULL and count < count_max and size < size_max:
            parts[count].iov_base = piece.data + piece.start
            parts[count].iov_len = min(piece.stop - piece.start, size_max - size)
            size += parts[count].iov_len
            count += 1
            piece = piece.next
        return count

    cdef ssize_t send(self, int fd) noexcept nogil:
        """Send the first pieces without waiting, and drop what was sent; returns what `send` does."""
        cdef iovec parts[PARTS_MAX]
        cdef msghdr message
        cdef ssize_t sent
        memset(&message, 0, sizeof(message))
        message.msg_iov = parts
        message.msg_iovlen = self.spread(parts, PARTS_MAX, SEND_MAX)
        sent = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL)
        if sent > 0:
            self.drop(sent)
        return sent

    cdef void drop(self, size_t size) noexcept nogil:
        """Drop the first `size` bytes."""
        cdef Piece* piece
        cdef size_t part
        self.size -= size
        while size:
            piece = self.first
            part = min(size, piece.stop - piece.start)
            piece.start += part
            size -= part
            if piece.start == piece.stop:
                self.first = piece.next
                if self.first == NULL:
                    self.last = NULL
                give_buffer(piece.data, piece.capacity)
                free(piece)

    cdef void clear(self) noexcept nogil:
        self.drop(self.size)

    # For tests, and for transports in Python.

    @property
    def count(self):
        cdef Piece* piece = self.first
        found = 0
        while piece != NULL:
            found += 1
            piece = piece.next
        return found

    @property
    def capacity_max(self):
        """The size of the largest piece."""
        cdef Piece* piece = self.first
        cdef size_t found = 0
        while piece != NULL:
            found = max(found, piece.capacity)
            piece = piece.next
        return found

    def write(self, bytes data not None):
        if PyBytes_GET_SIZE(data):
            self.add(<const uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))

    def take(self):
        """The first piece, as bytes; empty when nothing waits."""
        if self.first == NULL:
            return b""
        taken = PyBytes_FromStringAndSize(<char*>self.first.data + self.first.start, self.first.stop - self.first.start)
        self.drop(PyBytes_GET_SIZE(taken))
        return taken
