"""ConsumerLogWriter: writes the consumers of a stream to disk. Rules: docs/format.md, "Consumer log".

Records go into the image of the active file; a CommitLog writes and syncs them, as it does for the stream's blocks
(ARCHITECTURE.md, "Commit"). A file begins with a fold, which holds the whole state of all consumers. While there is no
file, when its image is full, and after a write has failed, no single records are written: memory has the current state,
and the next fold writes it to a new file.
"""
import os

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from penstock.base.disk cimport Disk
from penstock.format.constants cimport RECORD_SIZE_MAX, RECORDS_START
from penstock.format.consumer_log_record cimport (
    LEDGER_END, LEDGER_NOTE, LEDGER_PUT, LEDGER_REMOVE, ledger_begin, ledger_finish, ledger_size,
)
from penstock.store.write.committer cimport Committer
from penstock.store.write.commit_log cimport DURABLE_OS, free_block_file
from penstock.base.varint cimport varint_size, write_varint

cdef extern from "time.h" nogil:
    cdef struct timespec:
        long tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec* out)
    int CLOCK_MONOTONIC

cdef enum:
    FOLD_MIN = 1048576                     # bytes after a fold before the next one
    FOLD_TIMES = 4                         # a fold's sizes before the next: folds cost at most a quarter of the records
    SLACK = 1048576                        # space of the image above that, for the records of one tick
    WRITE_MAX = 65536                      # bytes that the appending thread writes itself
    RETRY_NS = 1000000000


cdef int64_t _now() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return <int64_t>t.tv_sec * 1000000000 + t.tv_nsec


cdef Py_ssize_t _write(uint8_t* out, uint64_t space, uint8_t kind, uint64_t number, uint64_t count, bytes meta, bytes body,
                       uint64_t salt) except -1:
    """Write one record if it fits; returns its size, or 0."""
    cdef uint64_t rest
    cdef uint64_t body_size = len(body)
    cdef Py_ssize_t at, size
    if meta is not None:
        body_size += varint_size(len(meta)) + len(meta)
    if body_size > RECORD_SIZE_MAX - 64:
        raise ValueError(f"consumer {number}: {body_size} bytes do not fit into a record")
    size = ledger_size(number, count, body_size, &rest)
    if <uint64_t>size > space:
        return 0
    at = ledger_begin(out, rest, kind, number, count)
    if meta is not None:
        at = write_varint(out, at, len(meta))
        memcpy(out + at, PyBytes_AS_STRING(meta), len(meta))
        at += len(meta)
    memcpy(out + at, PyBytes_AS_STRING(body), len(body))
    ledger_finish(out, at + len(body), salt)
    return size


@cython.no_gc_clear
cdef class ConsumerLogWriter:
    """An append-only log of consumers, each known by a number.

    Always true: the files hold everything that `written_position` and `synced_position` cover, as records or in a fold;
    a consumer's records count up by one.
    """

    def __init__(self, Disk disk not None, folder, Committer committer not None):
        self.log = CommitLog(disk, folder, DURABLE_OS, committer)
        self.counts = {}
        self.is_off = True

    def __dealloc__(self):
        if self.is_attached:
            self.log.detach()
        self.free_files()

    # Appending, by the thread that owns the log: a few hundred nanoseconds.

    cdef void stop_writing(self) noexcept:
        if not self.is_off:
            self.is_off = True
            self.retry_at = _now() + RETRY_NS if self.log.fail_errno else 0

    cdef int append(self, uint8_t kind, uint64_t number, uint64_t count, bytes meta, bytes body) except -1:
        cdef Py_ssize_t size = 0
        if self.log.fail_errno:
            self.stop_writing()
        if not self.is_off:
            size = _write(self.file.image + self.file.size, self.file.capacity - self.file.size, kind, number, count, meta, body,
                          self.salt)
            if size == 0:
                self.stop_writing()
            self.file.size += size
        self.log.appended += size if size else 1
        return 0

    def put(self, number, bytes meta not None, bytes state not None):
        """Record the whole state of a consumer. The record is written twice: one damaged byte cannot lose it."""
        cdef uint64_t count = self.counts.get(number, 0) + 1
        self.append(LEDGER_PUT, number, count, meta, state)
        self.append(LEDGER_PUT, number, count, meta, state)
        self.counts[number] = count

    def note(self, number, bytes changes not None):
        """Record the changes of a consumer's state since its last record."""
        if len(changes):
            count = self.counts[number] + 1
            self.append(LEDGER_NOTE, number, count, None, changes)
            self.counts[number] = count

    def remove(self, number):
        """Record that a consumer was deleted."""
        cdef uint64_t count = self.counts.pop(number) + 1
        self.append(LEDGER_REMOVE, number, count, None, b"")
        self.append(LEDGER_REMOVE, number, count, None, b"")

    def continue_counts(self, dict counts not None):
        """Continue from the number of records that each consumer has in the existing files."""
        self.counts = dict(counts)

    # Committing.

    @property
    def position(self):
        return self.log.appended

    @property
    def written_position(self):
        return self.log.written

    @property
    def synced_position(self):
        return self.log.synced

    @property
    def fold_position(self):
        """The position up to which the log must be synced before the older files may be removed."""
        return self.fold_stop

    def submit(self):
        """Have everything appended written soon, by this thread if it is little: the position. Waits for no sync."""
        cdef CommitLog log = self.log
        if log.fail_errno:
            self.stop_writing()
        if self.is_off or log.submitted == log.appended:
            return log.appended
        log.submit()
        if log.appended - log.written > WRITE_MAX or log.write_now() == 1:
            log.committer.ask(log)
        return log.appended

    def sync(self, position=None):
        """Submit, and have a commit thread sync up to `position` (default: everything). Returns at once."""
        self.submit()
        cdef CommitLog log = self.log
        cdef uint64_t wanted = log.submitted if position is None else min(<uint64_t>position, log.submitted)
        if wanted > log.synced and not log.fail_errno:
            log.request_sync(wanted)

    def flush(self, bint is_synced):
        """Write everything that was appended, and sync it if `is_synced`, in this thread: 0 or -errno."""
        cdef int answer
        cdef CommitLog log = self.log
        if not self.is_off:
            log.submit()
        with nogil:
            answer = log.flush(is_synced)
        return answer

    def add_notify(self, int fd):
        """Write to an eventfd whenever a commit thread has written or synced, or failed to."""
        self.log.add_notify(fd)

    def remove_notify(self, int fd):
        self.log.remove_notify(fd)

    # Folding.

    @property
    def wants_fold(self):
        """Whether a fold is due: a new file with all consumers."""
        if self.log.fail_errno:
            self.stop_writing()
            return _now() >= self.retry_at
        if self.is_off:
            return self.is_required or self.log.appended > self.log.submitted
        return self.is_required or self.file.size > self.fold_limit

    def require_fold(self):
        """Make a fold due although no consumer has changed.

        The existing files are damaged, or hold times of a clock that was set since.
        """
        self.is_required = True

    def fold_failed(self, int code, path):
        """A fold could not begin: it is tried again in a second."""
        self.log.fail(-code, "create", os.fsencode(path))
        self.is_off = True
        self.retry_at = _now() + RETRY_NS

    def retry(self):
        """After a failure: make a fold due at once."""
        if self.log.fail_errno:
            self.stop_writing()
            self.retry_at = 0

    def begin(self, file_id, bytes path not None, bytes front not None, salt, list everyone not None, highest):
        """Begin a new file with a fold: `front`, all of `everyone` (number, meta, state) twice, and the end records."""
        cdef CommitLog log = self.log
        cdef BlockFile* file
        cdef uint64_t size = 0, count, rest
        cdef Py_ssize_t wrote
        cdef int n
        for number, meta, state in everyone:
            size += 2 * (64 + len(<bytes>meta) + len(<bytes>state))
        file = log.new_file(file_id, path, RECORDS_START + size + 64 + max(<uint64_t>FOLD_MIN, FOLD_TIMES * size) + SLACK)
        try:
            memcpy(file.image, PyBytes_AS_STRING(front), RECORDS_START)
            file.size = RECORDS_START
            self.counts = {number: self.counts.get(number, 0) + 1 for number, _, _ in everyone}
            for n in range(2):
                for number, meta, state in everyone:
                    count = self.counts[number]
                    wrote = _write(file.image + file.size, file.capacity - file.size, LEDGER_PUT, number, count, meta, state, salt)
                    assert wrote > 0, "there is room for the fold"
                    file.size += wrote
            for n in range(2):
                file.size += _write(file.image + file.size, 64, LEDGER_END, highest, len(everyone), None, b"", salt)
            self.retire()
        except BaseException:
            free_block_file(file)
            raise
        self.fold_limit = file.size + max(<uint64_t>FOLD_MIN, FOLD_TIMES * (file.size - RECORDS_START))
        self.file = file
        self.salt = salt
        self.is_off = self.is_required = False
        log.is_filling = False             # no space is preallocated: most of these files stay small
        log.appended += file.size
        self.fold_stop = log.appended
        log.start_file(file)
        if log.fail_errno:                 # not earlier: a commit would find nothing to write and count as done
            log.submit()
            log.clear_failure()

    cdef retire(self):
        """Close the active file to new records; after a failure its unwritten bytes are given up."""
        cdef CommitLog log = self.log
        cdef BlockFile** grown
        if self.file != NULL:
            grown = <BlockFile**>realloc(self.files, (self.file_count + 1) * sizeof(BlockFile*))
            if grown == NULL:
                raise MemoryError
            self.files = grown
            self.files[self.file_count] = self.file
            self.file_count += 1
            self.file = NULL
        if log.fail_errno:
            with nogil:
                log.flush_wait()           # no new commit begins while a failure is pending
            while log.first != NULL:
                log.unlist(log.first)
            log.needs_rewrite = False
        else:
            log.submit()

    def release(self):
        """Close the files before the active one that no commit uses any more."""
        cdef Py_ssize_t n, kept = 0
        for n in range(self.file_count):
            if self.files[n].is_listed or self.files[n].users:
                self.files[kept] = self.files[n]
                kept += 1
            else:
                free_block_file(self.files[n])
        self.file_count = kept

    # The end.

    def attach(self):
        """From now on commit threads write and sync this log."""
        if not self.is_attached:
            self.log.attach()
            self.is_attached = True

    def detach(self):
        if self.is_attached:
            self.log.detach()
            self.is_attached = False

    def let_go(self):
        """Close the files without writing; nothing may be appended afterwards."""
        self.detach()
        with nogil:
            self.log.flush_wait()
        self.free_files()

    cdef void free_files(self) noexcept:
        cdef Py_ssize_t n
        if self.log is None:
            return
        self.is_off = True
        self.log.forget_files()
        for n in range(self.file_count):
            free_block_file(self.files[n])
        self.file_count = 0
        free(self.files)
        self.files = NULL
        if self.file != NULL:
            free_block_file(self.file)
            self.file = NULL
