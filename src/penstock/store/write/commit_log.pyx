"""CommitLog: how appended bytes become durable. Rules: ARCHITECTURE.md, "Commit".

The owner (the thread that holds the GIL) appends to the active file's image and submits; whoever commits, the caller itself or a
commit thread, writes and syncs what was submitted meanwhile. No code here that a commit runs takes the GIL.
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
    SLACK = 131072                         # what an image has above the size of a block
    AHEAD_MIN = 16384                      # zeros that are written ahead of small commits: as many as the file has bytes, …
    AHEAD_MAX = 262144                     # … between these two, …
    AHEAD_COMMITS = 256                    # … but for so many commits of the size: large ones that come between pay for them
    AHEAD_COMMIT_MAX = 16384               # what a small commit is
    AHEAD_AFTER = 4                        # the first small commit of a block that gets them
    BEGIN_MAX = 65536                      # what is begun with before a commit thread is awake
    COMMIT_MAX = 2097152                   # of what was submitted in pieces; one that is larger goes at once
    EARLY_MIN = 524288                     # so much is worth a thread that writes it while what came before is synced
    EARLY_MAX = 4194304                    # so much of it may wait for its sync
    AHEAD_NEVER = 4611686018427387904      # `zeroed` of a file for which there was no space


cdef void free_block_file(BlockFile* file) noexcept nogil:
    """Let go of a file that no commit needs any more."""
    if file.image != NULL:
        munmap(file.image, file.capacity)
    if file.fd >= 0:
        c_close(file.fd)
    free(file.path)
    free(file)


# The steps of a commit. A background sync beside it takes files off the list: those that are held stay.


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
    """Let go of `file`: the one behind it, or NULL behind `last`."""
    pthread_mutex_lock(log.lock)
    file.users -= 1
    file = NULL if file == last else file.next
    if file != NULL:
        file.users += 1
    pthread_mutex_unlock(log.lock)
    return file


cdef uint8_t[AHEAD_MAX] ZEROS


cdef void _write_ahead(CommitLog log, BlockFile* file, uint64_t stop) noexcept nogil:
    """Zeros behind what a small commit is about to write: the sync of a commit that does not make its file longer is one
    write to the disk, without the file system's journal. Where there is no space for them the commit goes on as ever."""
    file.piece = 0
    if log.durability != DURABLE_DISK or stop - file.written > AHEAD_COMMIT_MAX:
        return
    if stop > file.zeroed:
        file.small_count += 1
        if file.small_count < AHEAD_AFTER:
            return                         # who commits now and then need not write more than it has to say
    file.piece = min(stop, AHEAD_COMMITS * (stop - file.written))
    file.piece = min(max(file.piece, <uint64_t>AHEAD_MIN), <uint64_t>AHEAD_MAX)
    if stop > file.zeroed:
        _write_zeros(log, file, stop)


cdef bint _write_zeros(CommitLog log, BlockFile* file, uint64_t at) noexcept nogil:
    """A piece of zeros from `at` on, at most up to where the block ends: whether there are some now."""
    cdef uint64_t size
    if at + SLACK >= file.capacity:
        return False
    size = min(file.piece, file.capacity - SLACK - at)
    if log.disk.pwrite(file.fd, ZEROS, size, at) < 0:
        log.disk.truncate_file(file.fd, file.written)       # what space there is belongs to the records
        file.zeroed = AHEAD_NEVER
        return False
    file.zeroed = at + size
    return True


cdef int _write_file(CommitLog log, BlockFile* file, uint64_t stop, bint is_early) noexcept nogil:
    """Write a file up to `stop`, making it when it is not there. Early, a failure is left to the commit that comes."""
    cdef int64_t answer
    if not file.is_created:
        answer = log.disk.open_file(file.path, O_RDWR | O_CREAT | O_TRUNC)
        if answer < 0:
            return <int>answer if is_early else log.fail(<int>answer, "create", file.path)
        file.fd = <int>answer
        pthread_mutex_lock(log.lock)
        log.created += 1                   # now that it is there: a sync of the directory that begins after this covers it
        file.entry = log.created
        file.is_created = True
        pthread_mutex_unlock(log.lock)
        if log.is_filling and file.capacity > SLACK and log.disk.reserve(file.fd, file.capacity - SLACK) == 0:
            # One extent instead of one per commit. Where it cannot be had, the writes find their space as ever.
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
    """Sync what this commit covers of a file; what is written beside it may not be on the disk after."""
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
        self.notify_fd = -1
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
        """Drop the image of a sealed file that is written, where nobody was promised a sync: one that fails is made good from the
        file. Not while somebody walks over it, who may be about to write it again from there. Whether it is gone."""
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
        """Its descriptor, opened if it is not; -errno."""
        cdef int fd
        if file.fd < 0:
            fd = self.disk.open_file(file.path, O_RDWR | O_NOATIME)   # a read need not write down when it was
            if fd == -EPERM:               # only its owner may ask for that
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
        """Hand over all that was appended. Between two of these nothing is: a commit never ends within a batch."""
        cdef CommitPoint* point
        cdef BlockFile* file
        pthread_mutex_lock(self.lock)
        file = self.first
        while file != NULL:
            file.submitted = file.size
            file = file.next
        if self.appended > self.submitted:
            if self.point_count < POINTS_MAX:
                self.point_count += 1       # else the newest makes way: a commit may be larger, never smaller
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

    cdef int fail(self, int code, const char* op, const char* path) noexcept nogil:
        cdef uint64_t one = 1
        pthread_mutex_lock(self.lock)
        self.fail_errno = -code
        self.fail_op = op
        free(self.fail_path)
        self.fail_path = strdup(path)
        pthread_cond_broadcast(self.moved)
        pthread_mutex_unlock(self.lock)
        if self.notify_fd >= 0:
            c_write(self.notify_fd, &one, 8)
        return code

    cdef int flush(self, bint sync) noexcept nogil:
        """Write, and sync, all that is submitted. 0, or -errno once anything failed."""
        cdef int answer = 0
        cdef uint64_t target
        pthread_mutex_lock(self.lock)
        target = self.submitted
        while answer == 0:
            while self.is_flushing and not self.fail_errno and (self.synced if sync else self.written) < target:
                # Somebody commits: what we submitted meanwhile goes with the next one, whoever makes it.
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
        """How far to write now. Much is written and synced piece by piece: whoever published the first of it need not wait
        for the last, and says more meanwhile. The caller has the lock."""
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
        else:                              # nothing new: what failed is tried again, or what is written is synced
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
        """Write what is submitted, or a good piece of it, then note how far that is; the caller has `writing`."""
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
        pthread_mutex_lock(self.lock)      # nobody takes a file off the list that we hold: the walk has come to the last
        self.ready = stop.position
        self.ready_seq = stop.seq
        self.ready_last = stop.file
        self.ready_stop = stop.stop
        pthread_mutex_unlock(self.lock)
        return 0

    cdef int sync_files(self, BlockFile* last) noexcept nogil:
        """Sync what the files up to `last` were found to have when the commit began, and the directory of new ones."""
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
        """Have the directory hold the files up to the one that was made as the `entry`-th; 0 or -errno."""
        cdef int answer = self.link(entry)
        if answer < 0:
            self.link_error = 0            # told now; who tries again syncs it again
            return self.fail(answer, "sync", self.folder_path)
        return 0

    cdef int link(self, uint64_t entry) noexcept nogil:
        """The same, without telling: the system tells of a failure once, and no commit passes it before it is told on."""
        cdef uint64_t created
        cdef int answer = 0
        if entry <= self.linked:
            return 0
        pthread_mutex_lock(self.linking)
        if self.link_error == 0 and entry > self.linked:     # else another has done it meanwhile
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
        """Much was submitted since the sync under way began: the disk need not wait while that is written."""
        return (self.is_syncing and not self.is_early and self.submitted - self.reached >= EARLY_MIN
                and self.ready - self.synced < EARLY_MAX)

    cdef void write_early(self) noexcept nogil:
        """Write, beside a sync, what the next one will cover; once, so that the next one gets its turn."""
        cdef uint64_t entry = 0
        pthread_mutex_lock(self.writing)
        if (self.is_syncing and not self.fail_errno and not self.needs_rewrite and self.write_files(True) == 0
                and self.ready_last != NULL):
            entry = self.ready_last.entry  # nobody takes the file away while we write
        pthread_mutex_unlock(self.writing)
        # Of a new block the entry is synced here, together with what the commit syncs. That takes its time: nobody who wants
        # to write waits for it.
        self.link(entry)

    cdef bint is_ahead(self) noexcept nogil:
        """Much is written already: it is synced while the rest is written, not after. The caller has the lock."""
        return (not self.needs_rewrite and self.ready_last != NULL and self.ready >= self.synced + EARLY_MIN
                and self.ready - self.synced >= min(self.submitted - self.ready, <uint64_t>(COMMIT_MAX // 2)))

    cdef int flush_locked(self, bint sync) noexcept nogil:
        """One commit, of all that is submitted or of what is written of it; the caller has `io`."""
        cdef BlockFile* file
        cdef BlockFile* last
        cdef uint64_t target, target_seq
        cdef uint64_t one = 1
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
            elif not (sync and self.is_ahead()):   # an early writer may just have ended
                answer = self.write_files(False)
            pthread_mutex_unlock(self.writing)
            if answer < 0:
                return answer
        pthread_mutex_lock(self.lock)      # what it covers is settled here: more may be written, none of it counts
        target = self.ready
        target_seq = self.ready_seq
        last = self.ready_last
        file = self.first if last != NULL else NULL
        while file != NULL:
            file.covered = self.ready_stop if file == last else file.submitted
            file = NULL if file == last else file.next
        if last != NULL:
            last.users += 1                # it stays on the list until we are done
        self.is_syncing = sync
        pthread_mutex_unlock(self.lock)
        if sync:
            if self.is_busy and self.wants_early():
                self.committer.ask_early(self)
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
            self.let_go(self.take_whole(last))
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
        if self.notify_fd >= 0 and not self.is_quiet:
            c_write(self.notify_fd, &one, 8)
        return 0

    cdef int write_now(self) noexcept nogil:
        """Write what is submitted, in this thread, unless another is at it: 1, and a commit thread is to be asked. Else 0 or -errno."""
        cdef int answer
        if pthread_mutex_trylock(self.io) != 0:
            return 1
        self.is_quiet = True
        answer = self.flush_locked(False)
        self.is_quiet = False
        pthread_mutex_unlock(self.io)
        return answer

    cdef void begin(self) noexcept nogil:
        """Write a small commit in this thread, and have the disk begin with it: a commit thread takes as long to wake.

        Only where no other is under way, and the file has its zeros there: then nothing else is to be done for it. What fails
        is left to the commit thread, which tries again.
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
                    and file.submitted - at == self.submitted - max(self.ready, self.written)   # nothing in those before
                    and not self.fail_errno and not self.needs_rewrite and self.write_files(True) == 0 and file.written > at):
                answer = self.disk.begin_sync(file.fd, file.written - at, at)
                if answer == -EIO or answer == -ENOSPC:
                    self.needs_rewrite = True   # the kernel may have forgotten it
            pthread_mutex_unlock(self.writing)
        pthread_mutex_unlock(self.io)

    cdef void write_more_zeros(self) noexcept nogil:
        """After a small commit: the next ones find their zeros, and the disk has them before they come."""
        cdef BlockFile* file
        cdef uint64_t at
        pthread_mutex_lock(self.writing)
        pthread_mutex_lock(self.lock)
        file = self.last
        if file != NULL:
            file.users += 1                # it stays on the list
        pthread_mutex_unlock(self.lock)
        if file != NULL:
            at = file.zeroed
            if (file.fd >= 0 and at > file.written and at - file.written < file.piece // 2 and not self.fail_errno
                    and not self.needs_rewrite and _write_zeros(self, file, at)):
                self.disk.begin_sync(file.fd, file.zeroed - at, at)   # what fails here is room, not records
            _next_held(self, file, file)
        pthread_mutex_unlock(self.writing)

    cdef void request_sync(self, uint64_t position) noexcept nogil:
        """Have a commit thread sync up to `position`, which was submitted, whatever the durability."""
        pthread_mutex_lock(self.lock)
        if position > self.sync_wanted:
            self.sync_wanted = position
        pthread_mutex_unlock(self.lock)
        self.committer.ask(self)

    cdef BlockFile* take_whole(self, BlockFile* kept) noexcept nogil:
        """Take those that are whole on disk off the list, up to `kept`. The active one stays, that which `ready` ends in, and
        those that somebody walks over. The caller has the lock, and lets go of them."""
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

    cdef void let_go(self, BlockFile* files) noexcept nogil:
        """Give back the space of files that were taken off the list; only then their owner may have them. The caller has the
        lock, but not meanwhile: the file system may take its time, and the owner's thread wants it."""
        cdef BlockFile* file = files
        if files == NULL:
            return
        pthread_mutex_unlock(self.lock)
        while file != NULL:
            self.give_back(file)
            file = file.next
        pthread_mutex_lock(self.lock)
        while files != NULL:
            file = files.next
            files.next = NULL
            files.is_listed = False
            files = file

    cdef void free_file(self, BlockFile* file) noexcept nogil:
        """Free a file that is off the list, now or when the background sync that is at it has ended."""
        pthread_mutex_lock(self.lock)
        if file.users:
            file.is_orphan = True
        else:
            free_block_file(file)
        pthread_mutex_unlock(self.lock)

    cdef void give_back(self, BlockFile* file) noexcept nogil:
        """The space that was set aside for a file and is not needed any more. It is only space: a failure harms nobody."""
        if (file.fd >= 0 and file.synced == file.size
                and (file.reserved > file.size + SLACK or file.zeroed > file.size)):
            self.disk.truncate_file(file.fd, file.size)
        file.reserved = 0
        file.zeroed = 0

    cdef int64_t write_again(self, BlockFile* file) noexcept nogil:
        """Make the un-synced bytes of a file dirty once more, from what the kernel still has of them."""
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
        """Sync what is written, beside the writers; 0 or -errno."""
        cdef BlockFile* file
        cdef BlockFile* files[64]
        cdef uint64_t stops[64]
        cdef int count = 0, n
        cdef int answer = 0, failed = 0
        cdef bint is_all = True, is_wanted
        cdef uint64_t entry = 0
        cdef uint64_t target, target_seq
        cdef uint64_t one = 1
        if self.needs_rewrite or self.fail_errno:
            return self.flush(True)
        pthread_mutex_lock(self.io)         # no write is half done while the stops are taken
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
        self.let_go(self.take_whole(NULL))
        if failed == 0 and is_all:
            if target > self.synced:
                self.synced = target
                self.synced_seq = target_seq
            self.dirty_since = 0 if self.submitted == self.synced else monotonic_ns()
        pthread_cond_broadcast(self.moved)
        pthread_mutex_unlock(self.lock)
        if is_wanted and failed == 0 and self.notify_fd >= 0:
            c_write(self.notify_fd, &one, 8)
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

    # What a commit thread does for it.

    cdef int64_t due(self) noexcept nogil:
        if self.durability == DURABLE_DISK or self.dirty_since == 0:
            return 0
        if self.durability == DURABLE_LAZY and self.written != self.submitted:
            return self.dirty_since + LAZY_MS * 1000000
        return self.dirty_since + SYNC_INTERVAL_MS * <int64_t>1000000

    cdef void work(self, bint is_asked) noexcept nogil:
        """What is due: the commit that was asked for, the late write of `lazy`, or the background sync."""
        if is_asked and self.durability != DURABLE_DISK and self.sync_wanted > self.synced:
            if self.flush(False) == 0:
                self.sync_behind()         # beside the writers: they do not wait for it
        elif is_asked:
            if self.flush(self.durability == DURABLE_DISK) == 0 and self.durability == DURABLE_DISK:
                self.write_more_zeros()
        elif self.durability == DURABLE_LAZY and self.written != self.submitted:
            self.flush(False)
        elif self.sync_behind() < 0:
            self.dirty_since = monotonic_ns()   # tried again in a second
        if self.fail_errno and self.durability == DURABLE_LAZY:
            self.dirty_since = monotonic_ns()

    # Dealing with a failure: the owner's part.

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
            self.point_count = 0            # what is submitted goes in one piece: an end of one may be in this file
            if self.ready_last == file:
                self.forget_ready()
            file.next = NULL
            file.is_listed = False
        pthread_mutex_unlock(self.lock)

    cdef void forget_ready(self) noexcept nogil:
        """What was written beside commits counts no more: the next one writes what it covers. The caller has the lock."""
        self.point_count = 0
        self.ready = self.synced
        self.ready_seq = self.synced_seq
        self.ready_last = NULL

    cdef void forget_files(self) noexcept nogil:
        """They are about to be freed; the caller lets nobody commit."""
        pthread_mutex_lock(self.lock)
        self.first = self.last = NULL
        self.forget_ready()
        pthread_mutex_unlock(self.lock)

    cdef void skip_over(self) noexcept nogil:
        """After a roll back: what was appended and not committed is behind us. Positions never go back."""
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

    # Doors.

    def start_at(self, uint64_t seq):
        """Everything up to `seq` is on disk already."""
        self.appended_seq = self.submitted_seq = self.ready_seq = self.written_seq = self.synced_seq = seq

    def open_head(self, path, bytes stream_id, bytes boot_id, epoch, counter):
        """Map HEAD, making it when it is not there; it is told of every commit from now on."""
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
        pthread_mutex_lock(self.lock)      # a commit thread that fails again puts another path in its place
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
        """Take no writes before `retry`: what was rolled back could not be taken out of the file at `path`; with `is_write`,
        what has to be written there first could not be."""
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

    def set_notify(self, int fd):
        self.notify_fd = fd
