"""CommitLog: how appended bytes become durable. Rules: ARCHITECTURE.md, "Commit".

The owner (the thread that holds the GIL) appends to the active file's image and submits; whoever commits, the caller itself or a
commit thread, writes and syncs what was submitted meanwhile. No code here that a commit runs takes the GIL.

One class and one file although it is long: all of it works on one list of files, one set of positions and the four locks that
guard them, and no part of it can be read without the others.
"""
import os

cimport cython
from libc.errno cimport EACCES, EIO, ENOMEM, ENOSPC, EPERM, EROFS
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memmove, strdup

from penstock.format.constants cimport HEAD_OPEN, HEAD_SIZE, HEAD_SLOT_SIZE, HEAD_SLOT_STRIDE, HEAD_STOPPED
from penstock.base.monotonic cimport monotonic_ns
from penstock.base.threads cimport (
    pthread_cond_broadcast, pthread_cond_destroy, pthread_cond_init, pthread_cond_wait, pthread_mutex_destroy, pthread_mutex_init,
    pthread_mutex_lock, pthread_mutex_trylock, pthread_mutex_unlock,
)
from penstock.base.xxh64 cimport xxh64


cdef extern from "sys/mman.h" nogil:
    void* mmap(void* addr, size_t size, int prot, int flags, int fd, long offset)
    int munmap(void* addr, size_t size)
    int PROT_READ, PROT_WRITE, MAP_PRIVATE, MAP_ANONYMOUS, MAP_NORESERVE
    void* MAP_FAILED

cdef extern from "unistd.h" nogil:
    ssize_t c_write "write"(int fd, const void* buf, size_t count)
    int c_close "close"(int fd)

cdef extern from "fcntl.h" nogil:
    int O_RDONLY, O_RDWR, O_CREAT, O_TRUNC, O_NOATIME

cdef enum:
    SYNC_INTERVAL_MS = 1000                # `os` and `lazy` are synced in the background this often
    LAZY_MS = 8                            # `lazy` is written this late at the latest
    CHUNK = 1048576
    SLACK = 131072                         # bytes of an image beyond the size of a block
    AHEAD_MIN = 16384                      # zeros written ahead of small commits: the smaller of the file's size …
    AHEAD_MAX = 262144                     # … (clamped to these two) …
    AHEAD_COMMITS = 256                    # … and so many commits of this size
    AHEAD_COMMIT_MAX = 16384               # a commit up to this size is small
    AHEAD_AFTER = 4                        # the first small commit of a block that gets zeros
    BEGIN_MAX = 65536                      # the largest commit that `begin` writes before a commit thread is awake
    COMMIT_MAX = 2097152                   # a commit joins submits up to this size; a larger submit is committed at once
    EARLY_MIN = 524288                     # bytes that are worth a second thread, which writes them during the sync before
    EARLY_MAX = 4194304                    # bytes written so that may wait for their sync
    AHEAD_NEVER = 4611686018427387904      # `zeroed` of a file for which there was no space


cdef void free_block_file(BlockFile* file) noexcept nogil:
    """Free a file that no commit needs any more."""
    if file.image != NULL:
        munmap(file.image, file.capacity)
    if file.fd >= 0:
        c_close(file.fd)
    free(file.path)
    free(file)


# The steps of a commit. A concurrent background sync takes files off the list, but not those with users.


cdef BlockFile* _first_held(CommitLog log) noexcept nogil:
    """The first file that has bytes to commit."""
    cdef BlockFile* file
    pthread_mutex_lock(log.lock)
    file = log.first
    if file != NULL:
        file.users += 1
    pthread_mutex_unlock(log.lock)
    return file


cdef BlockFile* _next_held(CommitLog log, BlockFile* file, BlockFile* last) noexcept nogil:
    """Release `file` and hold the next one; NULL after `last`."""
    pthread_mutex_lock(log.lock)
    file.users -= 1
    file = NULL if file == last else file.next
    if file != NULL:
        file.users += 1
    pthread_mutex_unlock(log.lock)
    return file


cdef uint8_t[AHEAD_MAX] ZEROS


cdef void _write_ahead(CommitLog log, BlockFile* file, uint64_t stop) noexcept nogil:
    """Write zeros behind what a small commit is about to write: the sync of a commit that does not make its file longer is one
    write to the disk, without the file system's journal. Without space for them the commit goes on as usual."""
    file.piece = 0
    if log.durability != DURABLE_DISK or stop - file.written > AHEAD_COMMIT_MAX:
        return
    if stop > file.zeroed:
        file.small_count += 1
        if file.small_count < AHEAD_AFTER:
            return                         # a stream with few commits need not write more than its records
    file.piece = min(stop, AHEAD_COMMITS * (stop - file.written))
    file.piece = min(max(file.piece, <uint64_t>AHEAD_MIN), <uint64_t>AHEAD_MAX)
    if stop > file.zeroed:
        _write_zeros(log, file, stop)


cdef bint _write_zeros(CommitLog log, BlockFile* file, uint64_t at) noexcept nogil:
    """Write a piece of zeros from `at` on, at most up to the end of the block; whether that worked."""
    cdef uint64_t size
    if at + SLACK >= file.capacity:
        return False
    size = min(file.piece, file.capacity - SLACK - at)
    if log.disk.pwrite(file.fd, ZEROS, size, at) < 0:
        log.disk.truncate_file(file.fd, file.written)       # what space is left belongs to the records
        file.zeroed = AHEAD_NEVER
        return False
    file.zeroed = at + size
    return True


cdef int _write_file(CommitLog log, BlockFile* file, uint64_t stop, bint is_early) noexcept nogil:
    """Write a file up to `stop`, making it when it is not there. With `is_early` a failure is left to the next commit."""
    cdef int64_t answer
    if not file.is_created:
        answer = log.disk.open_file(file.path, O_RDWR | O_CREAT | O_TRUNC)
        if answer < 0:
            return <int>answer if is_early else log.fail(<int>answer, "create", file.path)
        file.fd = <int>answer
        pthread_mutex_lock(log.lock)
        log.created += 1                   # from now on: a sync of the directory that begins later covers it
        file.entry = log.created
        file.is_created = True
        pthread_mutex_unlock(log.lock)
        if log.is_filling and file.capacity > SLACK and log.disk.reserve(file.fd, file.capacity - SLACK) == 0:
            # One extent instead of one per commit. If that fails, each write allocates its space as usual.
            file.reserved = file.capacity - SLACK
    elif file.fd < 0:
        answer = log.open_for_read(file)
        if answer < 0:
            return <int>answer if is_early else log.fail(<int>answer, "open", file.path)
    if log.needs_rewrite and file.synced < file.written:
        # The kernel forgets pages whose sync failed: write them again.
        if file.image != NULL:
            file.written = file.synced
        else:
            answer = log.write_again(file)
            if answer < 0:
                return <int>answer if is_early else log.fail(<int>answer, "write", file.path)
    if file.written < stop:
        _write_ahead(log, file, stop)
        answer = log.disk.pwrite(file.fd, file.image + file.written, stop - file.written, file.written)
        if answer < 0:
            return <int>answer if is_early else log.fail(<int>answer, "write", file.path)
        file.written = stop
    return 0


cdef int _sync_file(CommitLog log, BlockFile* file) noexcept nogil:
    """Sync what this commit covers of a file; bytes written meanwhile may not be on the disk after it."""
    cdef int answer
    if file.synced < file.covered:
        answer = log.disk.sync_file(file.fd)
        if answer < 0:
            log.needs_rewrite = True
            return log.fail(answer, "sync", file.path)
        file.synced = file.covered
    return 0


@cython.no_gc_clear
cdef class CommitLog:
    """Bytes on their way to the disk.

    Always true: written <= submitted <= appended, synced <= written; a file leaves the list only when all of it is synced;
    after a failure nothing moves until `retry` or `abandon`.
    """

    def __cinit__(self, Disk disk, folder, int durability, Committer committer):
        self.disk = disk
        self.folder = os.fsencode(folder)
        self.folder_path = self.folder
        self.durability = durability
        self.committer = committer
        for n in range(NOTIFY_MAX):
            self.notify_fds[n] = -1
        self.head_fd = -1
        self.lock = <pthread_mutex_t*>calloc(1, sizeof(pthread_mutex_t))
        self.io = <pthread_mutex_t*>calloc(1, sizeof(pthread_mutex_t))
        self.writing = <pthread_mutex_t*>calloc(1, sizeof(pthread_mutex_t))
        self.linking = <pthread_mutex_t*>calloc(1, sizeof(pthread_mutex_t))
        self.moved = <pthread_cond_t*>calloc(1, sizeof(pthread_cond_t))
        if self.lock == NULL or self.io == NULL or self.writing == NULL or self.linking == NULL or self.moved == NULL:
            raise MemoryError
        pthread_mutex_init(self.lock, NULL)
        pthread_mutex_init(self.io, NULL)
        pthread_mutex_init(self.writing, NULL)
        pthread_mutex_init(self.linking, NULL)
        pthread_cond_init(self.moved, NULL)

    def __dealloc__(self):
        self.close_head()
        free(self.fail_path)
        if self.lock != NULL:
            pthread_mutex_destroy(self.lock)
        if self.io != NULL:
            pthread_mutex_destroy(self.io)
        if self.writing != NULL:
            pthread_mutex_destroy(self.writing)
        if self.linking != NULL:
            pthread_mutex_destroy(self.linking)
        if self.moved != NULL:
            pthread_cond_destroy(self.moved)
        free(self.lock)
        free(self.io)
        free(self.writing)
        free(self.linking)
        free(self.moved)

    # Files and their images: the owner's part.

    cdef BlockFile* new_file(self, uint64_t block_id, bytes path, uint64_t capacity) except NULL:
        """A file that holds nothing yet; with a capacity it gets an image to append to."""
        cdef BlockFile* file = <BlockFile*>calloc(1, sizeof(BlockFile))
        cdef void* image
        if file == NULL:
            raise MemoryError
        file.id = block_id
        file.fd = -1
        file.path = strdup(path)
        if capacity and self.committer is not None:
            file.image = self.committer.take_image(capacity)
            file.capacity = capacity
        if capacity and file.image == NULL:
            image = mmap(NULL, capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
            if image == MAP_FAILED:
                free(file.path)
                free(file)
                raise MemoryError(f"no memory for a block of {capacity} bytes")
            file.image = <uint8_t*>image
            file.capacity = capacity
        return file

    cdef void start_file(self, BlockFile* file) noexcept nogil:
        """Make `file` the active one."""
        pthread_mutex_lock(self.lock)
        if self.last == NULL:
            self.first = file
        else:
            self.last.next = file
        self.last = file
        file.is_listed = True
        pthread_mutex_unlock(self.lock)

    cdef void drop_image(self, BlockFile* file) noexcept nogil:
        cdef uint8_t* image = file.image
        cdef uint64_t capacity = file.capacity
        file.image = NULL
        file.capacity = 0
        if image != NULL and (self.committer is None or not self.committer.keep_image(image, capacity)):
            munmap(image, capacity)

    cdef bint drop_written(self, BlockFile* file) noexcept nogil:
        """Drop the image of a sealed file that is written, unless a sync was promised: after a failed sync the bytes are written
        again from the file. Not while a thread uses the file, which may write it again from the image. Whether it is gone."""
        cdef bint is_free
        if self.durability == DURABLE_DISK:
            return False
        pthread_mutex_lock(self.lock)
        is_free = file.users == 0 and file.written == file.size and not self.needs_rewrite
        if is_free:
            self.drop_image(file)
        pthread_mutex_unlock(self.lock)
        return is_free

    cdef int open_for_read(self, BlockFile* file) noexcept nogil:
        """The file's descriptor, opened if it is not; or -errno."""
        cdef int fd
        if file.fd < 0:
            fd = self.disk.open_file(file.path, O_RDWR | O_NOATIME)   # a read need not update the access time
            if fd == -EPERM:               # only the file's owner may use O_NOATIME
                fd = self.disk.open_file(file.path, O_RDWR)
            if fd == -EACCES or fd == -EROFS or fd == -EPERM:
                fd = self.disk.open_file(file.path, O_RDONLY)
            if fd < 0:
                return fd
            file.fd = fd
            self.opened += 1
        return file.fd

    # Commit: any thread's part.

    cdef uint64_t committed(self) noexcept nogil:
        if self.durability == DURABLE_DISK:
            return self.synced
        if self.durability == DURABLE_OS:
            return self.written
        return self.appended

    cdef uint64_t committed_seq(self) noexcept nogil:
        if self.durability == DURABLE_DISK:
            return self.synced_seq
        if self.durability == DURABLE_OS:
            return self.written_seq
        return self.appended_seq

    cdef void submit(self) noexcept nogil:
        """Hand over all that was appended. A commit ends where a submit ended, so never within a batch."""
        cdef CommitPoint* point
        cdef BlockFile* file
        pthread_mutex_lock(self.lock)
        file = self.first
        while file != NULL:
            file.submitted = file.size
            file = file.next
        if self.appended > self.submitted:
            if self.point_count < POINTS_MAX:
                self.point_count += 1      # else the newest is replaced: a commit may become larger, never smaller
            point = &self.points[self.point_count - 1]
            point.position = self.appended
            point.seq = self.appended_seq
            point.file = self.last
            point.stop = self.last.size if self.last != NULL else 0
        self.submitted = self.appended
        self.submitted_seq = self.appended_seq
        if self.dirty_since == 0:
            self.dirty_since = monotonic_ns()
        pthread_mutex_unlock(self.lock)

    cdef void announce(self) noexcept nogil:
        """Wake the event loops that wait for this log."""
        cdef uint64_t one = 1
        cdef int n, fd
        for n in range(NOTIFY_MAX):
            fd = self.notify_fds[n]
            if fd >= 0:
                c_write(fd, &one, 8)

    cdef int fail(self, int code, const char* op, const char* path) noexcept nogil:
        pthread_mutex_lock(self.lock)
        self.fail_errno = -code
        self.fail_op = op
        free(self.fail_path)
        self.fail_path = strdup(path)
        pthread_cond_broadcast(self.moved)
        pthread_mutex_unlock(self.lock)
        self.announce()
        return code

    cdef int flush(self, bint sync) noexcept nogil:
        """Write, and sync, all that is submitted. 0, or -errno once anything failed."""
        cdef int answer = 0
        cdef uint64_t target
        pthread_mutex_lock(self.lock)
        target = self.submitted
        while answer == 0:
            while self.is_flushing and not self.fail_errno and (self.synced if sync else self.written) < target:
                # Another thread commits: the next commit, by whichever thread, covers what we submitted.
                pthread_cond_wait(self.moved, self.lock)
            if not self.fail_errno and (self.synced if sync else self.written) >= target:
                break
            self.is_flushing = True
            pthread_mutex_unlock(self.lock)
            pthread_mutex_lock(self.io)
            answer = self.flush_locked(sync)
            pthread_mutex_unlock(self.io)
            pthread_mutex_lock(self.lock)
            self.is_flushing = False
            pthread_cond_broadcast(self.moved)
        pthread_mutex_unlock(self.lock)
        return answer

    cdef CommitPoint next_stop(self) noexcept nogil:
        """How far to write now. Much is written and synced piece by piece: the publisher of the first piece need not wait for
        the last, and publishes more meanwhile. The caller has the lock."""
        cdef CommitPoint stop
        cdef BlockFile* file
        cdef uint64_t begin = max(self.ready, self.written)
        cdef int n = 0, kept
        while n < self.point_count and self.points[n].position <= begin:
            n += 1                         # written: its file may be gone
        kept = n
        while n + 1 < self.point_count and self.points[n + 1].position - begin <= COMMIT_MAX:
            n += 1
        if n < self.point_count:
            stop = self.points[n]
        else:                              # nothing new: retry what failed, or sync what is written
            stop.position = self.submitted
            stop.seq = self.submitted_seq
            stop.file = NULL
            file = self.first
            while file != NULL and file.submitted:
                stop.file = file
                stop.stop = file.submitted
                file = file.next
        self.point_count -= kept
        if kept:
            memmove(self.points, &self.points[kept], self.point_count * sizeof(CommitPoint))
        return stop

    cdef int write_files(self, bint is_early) noexcept nogil:
        """Write what is submitted, or a piece of it, then note how far that is; the caller has `writing`."""
        cdef BlockFile* file
        cdef CommitPoint stop
        cdef int answer
        pthread_mutex_lock(self.lock)
        stop = self.next_stop()
        self.reached = stop.position
        pthread_mutex_unlock(self.lock)
        file = _first_held(self) if stop.file != NULL else NULL
        while file != NULL:
            answer = _write_file(self, file, stop.stop if file == stop.file else file.submitted, is_early)
            if answer < 0:
                _next_held(self, file, file)
                return answer
            file = _next_held(self, file, stop.file)
        pthread_mutex_lock(self.lock)      # held files stay on the list: the walk has reached the last
        self.ready = stop.position
        self.ready_seq = stop.seq
        self.ready_last = stop.file
        self.ready_stop = stop.stop
        pthread_mutex_unlock(self.lock)
        return 0

    cdef int sync_files(self, BlockFile* last) noexcept nogil:
        """Sync the files up to `last`, as far as this commit covers them, and the directory of new ones."""
        cdef BlockFile* file = _first_held(self) if last != NULL else NULL
        cdef uint64_t entry = 0
        cdef int answer
        while file != NULL:
            entry = max(entry, file.entry)
            answer = _sync_file(self, file)
            if answer < 0:
                _next_held(self, file, file)
                return answer
            file = _next_held(self, file, last)
        self.needs_rewrite = False
        return self.sync_entries(entry)

    cdef int sync_entries(self, uint64_t entry) noexcept nogil:
        """Sync the directory unless it holds the first `entry` files that this log made; 0 or -errno."""
        cdef int answer = self.link(entry)
        if answer < 0:
            self.link_error = 0            # reported now; the next attempt syncs again
            return self.fail(answer, "sync", self.folder_path)
        return 0

    cdef int link(self, uint64_t entry) noexcept nogil:
        """As `sync_entries`, without reporting a failure: the system reports it once, so it is kept until a commit reports it."""
        cdef uint64_t created
        cdef int answer = 0
        if entry <= self.linked:
            return 0
        pthread_mutex_lock(self.linking)
        if self.link_error == 0 and entry > self.linked:     # else another thread has done it meanwhile
            pthread_mutex_lock(self.lock)
            created = self.created
            pthread_mutex_unlock(self.lock)
            self.link_error = self.disk.sync_dir(self.folder_path)
            if self.link_error == 0:
                self.linked = created
        answer = self.link_error
        pthread_mutex_unlock(self.linking)
        return answer

    cdef bint wants_early(self) noexcept nogil:
        """Whether so much was submitted since the running sync began that it is worth writing it now."""
        return (self.is_syncing and not self.is_early and self.submitted - self.reached >= EARLY_MIN
                and self.ready - self.synced < EARLY_MAX)

    cdef void write_early(self) noexcept nogil:
        """Write, during a sync, what the next one will cover; once, so that the next one gets its turn."""
        cdef uint64_t entry = 0
        pthread_mutex_lock(self.writing)
        if (self.is_syncing and not self.fail_errno and not self.needs_rewrite and self.write_files(True) == 0
                and self.ready_last != NULL):
            entry = self.ready_last.entry  # the file stays on the list while we write
        pthread_mutex_unlock(self.writing)
        # The directory entry of a new block is synced here, while the commit syncs its files. That is slow: `writing` is free
        # again, so no writer waits for it.
        self.link(entry)

    cdef bint is_ahead(self) noexcept nogil:
        """Whether so much is written already that it is synced while the rest is written. The caller has the lock."""
        return (not self.needs_rewrite and self.ready_last != NULL and self.ready >= self.synced + EARLY_MIN
                and self.ready - self.synced >= min(self.submitted - self.ready, <uint64_t>(COMMIT_MAX // 2)))

    cdef int flush_locked(self, bint sync) noexcept nogil:
        """One commit: of all that is submitted, or of the part that is written already; the caller has `io`."""
        cdef BlockFile* file
        cdef BlockFile* last
        cdef uint64_t target, target_seq
        cdef int answer = 0
        cdef bint is_written
        pthread_mutex_lock(self.lock)
        if self.fail_errno:
            answer = -self.fail_errno
        is_written = answer < 0 or self.submitted == (self.synced if sync else self.written)
        if is_written:
            pthread_mutex_unlock(self.lock)
            return answer
        is_written = sync and self.is_ahead()
        pthread_mutex_unlock(self.lock)
        if not is_written:
            pthread_mutex_lock(self.writing)
            if self.fail_errno:
                answer = -self.fail_errno
            elif not (sync and self.is_ahead()):   # an early writer may just have finished
                answer = self.write_files(False)
            pthread_mutex_unlock(self.writing)
            if answer < 0:
                return answer
        pthread_mutex_lock(self.lock)      # fixes what this commit covers: bytes that are written later do not count
        target = self.ready
        target_seq = self.ready_seq
        last = self.ready_last
        file = self.first if last != NULL else NULL
        while file != NULL:
            file.covered = self.ready_stop if file == last else file.submitted
            file = NULL if file == last else file.next
        if last != NULL:
            last.users += 1                # keeps it on the list until we are done
        self.is_syncing = sync
        pthread_mutex_unlock(self.lock)
        if sync:
            if self.is_busy and self.wants_early():
                self.committer.request_early(self)
            answer = self.sync_files(last)
            self.is_syncing = False
        pthread_mutex_lock(self.lock)
        if answer < 0:
            if last != NULL:
                last.users -= 1
            pthread_mutex_unlock(self.lock)
            return answer
        file = self.first if last != NULL and (sync or self.durability != DURABLE_DISK) else NULL
        while file != NULL:
            file.committed = file.covered
            if file == last:
                break
            file = file.next
        if sync:
            self.release_files(self.take_whole(last))
            self.synced = target
            self.synced_seq = target_seq
            self.dirty_since = 0 if self.submitted == target else monotonic_ns()
        self.written = target
        self.written_seq = target_seq
        if last != NULL:
            if sync or self.durability != DURABLE_DISK:
                self.store_head(last.id, last.committed, HEAD_OPEN)
            last.users -= 1
        pthread_cond_broadcast(self.moved)
        pthread_mutex_unlock(self.lock)
        if not self.is_quiet:
            self.announce()
        return 0

    cdef int write_now(self) noexcept nogil:
        """Write what is submitted, in this thread, unless another does: then 1, and a commit thread has to be asked. Else 0 or -errno."""
        cdef int answer
        if pthread_mutex_trylock(self.io) != 0:
            return 1
        self.is_quiet = True
        answer = self.flush_locked(False)
        self.is_quiet = False
        pthread_mutex_unlock(self.io)
        return answer

    cdef void begin(self) noexcept nogil:
        """Write a small commit in this thread and start its writeback: a commit thread takes as long to wake.

        Only when no other commit is running and the file has zeros there already: then nothing else has to be done for it. A
        failure is left to the commit thread, which tries again.
        """
        cdef BlockFile* file
        cdef uint64_t at
        cdef int answer
        if self.submitted - self.synced > BEGIN_MAX or pthread_mutex_trylock(self.io) != 0:
            return
        if pthread_mutex_trylock(self.writing) == 0:
            file = self.last
            at = file.written if file != NULL else 0
            if (file != NULL and file.is_created and file.fd >= 0 and file.submitted <= file.zeroed < AHEAD_NEVER
                    and file.submitted - at == self.submitted - max(self.ready, self.written)   # nothing in earlier files
                    and not self.fail_errno and not self.needs_rewrite and self.write_files(True) == 0 and file.written > at):
                answer = self.disk.begin_sync(file.fd, file.written - at, at)
                if answer == -EIO or answer == -ENOSPC:
                    self.needs_rewrite = True   # the kernel may have dropped the pages
            pthread_mutex_unlock(self.writing)
        pthread_mutex_unlock(self.io)

    cdef void write_more_zeros(self) noexcept nogil:
        """After a small commit: write zeros for the next ones, and start their writeback."""
        cdef BlockFile* file
        cdef uint64_t at
        pthread_mutex_lock(self.writing)
        pthread_mutex_lock(self.lock)
        file = self.last
        if file != NULL:
            file.users += 1                # keeps it on the list
        pthread_mutex_unlock(self.lock)
        if file != NULL:
            at = file.zeroed
            if (file.fd >= 0 and at > file.written and at - file.written < file.piece // 2 and not self.fail_errno
                    and not self.needs_rewrite and _write_zeros(self, file, at)):
                self.disk.begin_sync(file.fd, file.zeroed - at, at)   # a failure here costs space, not records
            _next_held(self, file, file)
        pthread_mutex_unlock(self.writing)

    cdef void request_sync(self, uint64_t position) noexcept nogil:
        """Ask a commit thread to sync up to `position`, which was submitted, whatever the durability."""
        pthread_mutex_lock(self.lock)
        if position > self.sync_wanted:
            self.sync_wanted = position
        pthread_mutex_unlock(self.lock)
        self.committer.ask(self)

    cdef BlockFile* take_whole(self, BlockFile* kept) noexcept nogil:
        """Take the files that are wholly on disk off the list, up to `kept`. The active file stays, the one that `ready` ends in,
        and those with users. The caller has the lock, and hands the result to `release_files`."""
        cdef BlockFile* whole = NULL
        cdef BlockFile* file = self.first
        while (file != NULL and file != kept and file != self.last and file != self.ready_last
               and file.synced == file.size and file.committed == file.size and file.entry <= self.linked and file.users == 0):
            self.first = file.next
            self.is_filling = True
            file.next = whole
            whole = file
            file = self.first
        return whole

    cdef void release_files(self, BlockFile* files) noexcept nogil:
        """Trim files that were taken off the list; only then may their owner free them. The caller has the lock, which is
        released meanwhile: the file system may be slow, and the owner's thread needs the lock."""
        cdef BlockFile* file = files
        if files == NULL:
            return
        pthread_mutex_unlock(self.lock)
        while file != NULL:
            self.trim_file(file)
            file = file.next
        pthread_mutex_lock(self.lock)
        while files != NULL:
            file = files.next
            files.next = NULL
            files.is_listed = False
            files = file

    cdef void free_file(self, BlockFile* file) noexcept nogil:
        """Free a file that is off the list, now or when the background sync that uses it has ended."""
        pthread_mutex_lock(self.lock)
        if file.users:
            file.is_orphan = True
        else:
            free_block_file(file)
        pthread_mutex_unlock(self.lock)

    cdef void trim_file(self, BlockFile* file) noexcept nogil:
        """Give back space that was reserved for a file and is not needed any more; a failure does no harm."""
        if (file.fd >= 0 and file.synced == file.size
                and (file.reserved > file.size + SLACK or file.zeroed > file.size)):
            self.disk.truncate_file(file.fd, file.size)
        file.reserved = 0
        file.zeroed = 0

    cdef int64_t write_again(self, BlockFile* file) noexcept nogil:
        """Write the un-synced bytes of a file once more, as the page cache still has them."""
        cdef uint8_t* chunk = <uint8_t*>malloc(CHUNK)
        cdef uint64_t at = file.synced
        cdef int64_t got = 0
        if chunk == NULL:
            return -ENOMEM
        while at < file.written:
            got = self.disk.pread(file.fd, chunk, min(<uint64_t>CHUNK, file.written - at), at)
            if got == 0:
                got = -EIO
            if got > 0:
                got = self.disk.pwrite(file.fd, chunk, got, at)
            if got < 0:
                break
            at += got
        free(chunk)
        return got

    cdef int sync_behind(self) noexcept nogil:
        """Sync what is written, while others write; 0 or -errno."""
        cdef BlockFile* file
        cdef BlockFile* files[64]
        cdef uint64_t stops[64]
        cdef int count = 0, n
        cdef int answer = 0, failed = 0
        cdef bint is_all = True, is_wanted
        cdef uint64_t entry = 0
        cdef uint64_t target, target_seq
        if self.needs_rewrite or self.fail_errno:
            return self.flush(True)
        pthread_mutex_lock(self.io)         # no commit is half done while the stops are read
        pthread_mutex_lock(self.lock)
        target = self.written
        target_seq = self.written_seq
        file = self.first
        while file != NULL:
            if file.is_created and (file.synced < file.written or file.entry > self.linked):
                if count == 64:
                    is_all = False
                    break
                files[count] = file
                stops[count] = file.written
                entry = max(entry, file.entry)
                file.users += 1
                count += 1
            file = file.next
        pthread_mutex_unlock(self.lock)
        pthread_mutex_unlock(self.io)
        for n in range(count):
            if failed == 0:
                answer = self.disk.sync_file(files[n].fd)
                if answer < 0:
                    failed = answer
                    self.fail(answer, "sync", files[n].path)
        if failed == 0:
            failed = self.sync_entries(entry)
        pthread_mutex_lock(self.lock)
        is_wanted = self.sync_wanted > self.synced
        for n in range(count):
            files[n].users -= 1
            if files[n].is_orphan:
                if files[n].users == 0:
                    free_block_file(files[n])
            elif failed == 0:              # a roll back may have made it shorter meanwhile
                files[n].synced = max(files[n].synced, min(stops[n], files[n].written))
        if failed:
            self.needs_rewrite = True
        self.release_files(self.take_whole(NULL))
        if failed == 0 and is_all:
            if target > self.synced:
                self.synced = target
                self.synced_seq = target_seq
            self.dirty_since = 0 if self.submitted == self.synced else monotonic_ns()
        pthread_cond_broadcast(self.moved)
        pthread_mutex_unlock(self.lock)
        if is_wanted and failed == 0:
            self.announce()
        return failed

    cdef void store_head(self, uint64_t block_id, uint64_t offset, uint64_t state) noexcept nogil:
        """Tell readers in other processes how far they may read. Layout: docs/format.md, "HEAD"."""
        cdef uint64_t* fields = <uint64_t*>self.head
        cdef uint64_t checksum
        if self.head_fd < 0:
            return
        self.head_counter += 1
        fields[1] = self.head_counter
        fields[7] = block_id
        fields[8] = offset
        fields[9] = self.written_seq if self.durability != DURABLE_DISK else self.synced_seq
        fields[10] = self.appended_seq
        fields[11] = self.synced_seq
        fields[12] = state
        fields[15] = xxh64(self.head, 120, 0)
        self.disk.store_mapped(self.head_fd, self.head_map, self.head, HEAD_SLOT_SIZE,
                               (self.head_counter & 1) * HEAD_SLOT_STRIDE)

    # What a commit thread does for this log.

    cdef int64_t due(self) noexcept nogil:
        if self.durability == DURABLE_DISK or self.dirty_since == 0:
            return 0
        if self.durability == DURABLE_LAZY and self.written != self.submitted:
            return self.dirty_since + LAZY_MS * 1000000
        return self.dirty_since + SYNC_INTERVAL_MS * <int64_t>1000000

    cdef void work(self, bint is_asked) noexcept nogil:
        """Do what is due: the commit that was asked for, the delayed write of `lazy`, or the background sync."""
        if is_asked and self.durability != DURABLE_DISK and self.sync_wanted > self.synced:
            if self.flush(False) == 0:
                self.sync_behind()         # while others write: they do not wait for it
        elif is_asked:
            if self.flush(self.durability == DURABLE_DISK) == 0 and self.durability == DURABLE_DISK:
                self.write_more_zeros()
        elif self.durability == DURABLE_LAZY and self.written != self.submitted:
            self.flush(False)
        elif self.sync_behind() < 0:
            self.dirty_since = monotonic_ns()   # tried again in a second
        if self.fail_errno and self.durability == DURABLE_LAZY:
            self.dirty_since = monotonic_ns()

    # Handling a failure: the owner's part.

    cdef void pause_flush(self) noexcept nogil:
        """Return when no commit is half done; none begins before `resume_flush`."""
        pthread_mutex_lock(self.io)
        pthread_mutex_lock(self.writing)

    cdef void resume_flush(self) noexcept nogil:
        pthread_mutex_unlock(self.writing)
        pthread_mutex_unlock(self.io)

    cdef void flush_wait(self) noexcept nogil:
        """Return when no commit is half done."""
        self.pause_flush()
        self.resume_flush()

    cdef void unlist(self, BlockFile* file) noexcept nogil:
        """Take `file` off the list of those that have bytes to commit."""
        cdef BlockFile* before = NULL
        cdef BlockFile* at
        pthread_mutex_lock(self.lock)
        at = self.first
        while at != NULL and at != file:
            before = at
            at = at.next
        if at != NULL:
            if before == NULL:
                self.first = file.next
            else:
                before.next = file.next
            if self.last == file:
                self.last = before
            self.point_count = 0           # the rest is committed in one piece: a commit point may be in this file
            if self.ready_last == file:
                self.forget_ready()
            file.next = NULL
            file.is_listed = False
        pthread_mutex_unlock(self.lock)

    cdef void forget_ready(self) noexcept nogil:
        """What was written early does not count any more: the next commit writes what it covers. The caller has the lock."""
        self.point_count = 0
        self.ready = self.synced
        self.ready_seq = self.synced_seq
        self.ready_last = NULL

    cdef void forget_files(self) noexcept nogil:
        """All files are about to be freed; the caller has paused commits."""
        pthread_mutex_lock(self.lock)
        self.first = self.last = NULL
        self.forget_ready()
        pthread_mutex_unlock(self.lock)

    cdef void skip_over(self) noexcept nogil:
        """After a roll back: count what was appended and not committed as done. Positions never go back."""
        pthread_mutex_lock(self.lock)
        self.appended_seq = self.submitted_seq = self.committed_seq()
        self.submitted = self.appended
        self.written = self.appended
        self.written_seq = self.appended_seq
        if self.durability == DURABLE_DISK:
            self.synced = self.appended
            self.synced_seq = self.appended_seq
            self.needs_rewrite = False
        self.forget_ready()
        self.fail_errno = 0
        self.fail_count += 1
        pthread_mutex_unlock(self.lock)

    # The owner's interface from Python.

    def start_at(self, uint64_t seq):
        """Everything up to `seq` is on disk already."""
        self.appended_seq = self.submitted_seq = self.ready_seq = self.written_seq = self.synced_seq = seq

    def open_head(self, path, bytes stream_id, bytes boot_id, epoch, counter):
        """Map HEAD, and create it if it is missing; every commit updates it from now on."""
        cdef bytes name = os.fsencode(path)
        cdef uint64_t* fields = <uint64_t*>self.head
        cdef int fd = self.disk.open_file(name, O_RDWR | O_CREAT)
        if fd < 0:
            raise OSError(-fd, os.strerror(-fd), path)
        try:
            if self.disk.file_size(fd) < HEAD_SIZE:
                self.disk.write(fd, bytes(HEAD_SIZE))
        except OSError:
            self.disk.close_file(fd)
            raise
        self.head_fd = fd
        self.head_map = self.disk.map_file(fd, HEAD_SIZE)
        memcpy(self.head, b"PSTKHED\x01", 8)
        memcpy(self.head + 16, <const char*>stream_id, 16)
        memcpy(self.head + 32, <const char*>boot_id, 16)
        fields[6] = epoch
        self.head_counter = counter

    def publish_head(self, block_id, offset, bint stopped):
        self.store_head(block_id, offset, HEAD_STOPPED if stopped else HEAD_OPEN)

    def sync_head(self):
        """Write HEAD through to the disk."""
        if self.head_fd >= 0:
            self.disk.write(self.head_fd, (<uint8_t*>self.head)[:HEAD_SLOT_SIZE],
                            (self.head_counter & 1) * HEAD_SLOT_STRIDE)
            self.disk.sync(self.head_fd)

    def close_head(self):
        if self.head_map != NULL:
            self.disk.unmap_file(self.head_map, HEAD_SIZE)
            self.head_map = NULL
        if self.head_fd >= 0:
            self.disk.close_file(self.head_fd)
            self.head_fd = -1

    def failure(self):
        """(errno, operation, path) of the commit that failed, or None."""
        cdef int code
        cdef const char* op
        cdef char* path = NULL
        if not self.fail_errno:
            return None
        pthread_mutex_lock(self.lock)      # a commit thread that fails again replaces the path
        code = self.fail_errno
        op = self.fail_op
        if code:
            path = strdup(self.fail_path)
        pthread_mutex_unlock(self.lock)
        if not code:
            return None
        if path == NULL:
            raise MemoryError
        try:
            return code, op.decode(), os.fsdecode(<bytes>path)
        finally:
            free(path)

    def clear_failure(self):
        self.fail_errno = 0

    def hold(self, int code, path, bint is_write=False):
        """Refuse writes until `retry`: what was rolled back could not be cut out of the file at `path`; with `is_write`, a write
        that has to come first failed."""
        self.fail(-code, "write" if is_write else "truncate", os.fsencode(path))

    @property
    def is_owing(self):
        """Bytes that were promised may not have reached the disk: a sync of them failed."""
        return self.needs_rewrite

    @property
    def has_uncommitted(self):
        return self.committed() != self.appended

    def attach(self):
        if self.committer is not None:
            self.committer.add(self, self.durability != DURABLE_DISK)

    def detach(self):
        if self.committer is not None:
            self.committer.remove(self)

    def add_notify(self, int fd):
        """Write to an eventfd whenever a commit has ended or failed; there may be several, one for each event loop."""
        for n in range(NOTIFY_MAX):
            if self.notify_fds[n] < 0:
                self.notify_fds[n] = fd
                return
        raise RuntimeError(f"{self.folder_path!r}: {NOTIFY_MAX} event loops wait for its commits already")

    def remove_notify(self, int fd):
        for n in range(NOTIFY_MAX):
            if self.notify_fds[n] == fd:
                self.notify_fds[n] = -1
