"""CrashDisk: a Disk that works in a real directory, remembers every change, and fails when told to.

Each call is done for real, except that a sync asks nothing of the real disk: the log is what remembers it. The log of
changes is kept in C behind a mutex, because the calls come from several threads that do not hold the GIL. What a power
cut could leave behind is worked out from the log by `crash_images`.

A change and its entry in the log happen under one lock, so the log has the order in which the files changed. A sync
enters the log when it is done and says where it began: what changed in between is not covered by it.
"""
import os
import threading
from contextlib import contextmanager
from dataclasses import dataclass

from libc.errno cimport EBADF, EEXIST, errno
from libc.stdlib cimport abort, calloc, free, malloc, realloc
from libc.string cimport memcpy, memmove, memset, strdup
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from penstock.base.threads cimport (
    pthread_cond_broadcast, pthread_cond_destroy, pthread_cond_timedwait, pthread_cond_wait, pthread_mutex_destroy, pthread_mutex_init,
    pthread_mutex_lock, pthread_mutex_unlock, timed_cond_init,
)


cdef extern from "fcntl.h" nogil:
    int c_open "open"(const char* path, int flags, ...)
    int O_RDONLY, O_CREAT, O_EXCL, O_TRUNC, O_CLOEXEC, O_DIRECTORY

cdef extern from "unistd.h" nogil:
    int c_close "close"(int fd)
    int usleep(unsigned int us)

cdef extern from "sys/stat.h" nogil:
    struct c_stat "stat":
        unsigned long st_ino
    int fstat(int fd, c_stat* out)

cdef enum Kind:
    CREATE_FILE, OPEN_FILE, CLOSE_FILE, PREAD, PWRITE, SYNC_FILE, SYNC_DIR, TRUNCATE_FILE, FILE_SIZE
    RENAME_FILE, UNLINK_FILE, MAKE_DIR, REMOVE_DIR, MAP_FILE, STORE_MAPPED

# In the order of Kind. An open that may create or empty a file counts as create_file.
KINDS = (
    "create_file", "open_file", "close_file", "pread", "pwrite", "sync_file", "sync_dir", "truncate_file", "file_size",
    "rename_file", "unlink_file", "make_dir", "remove_dir", "map_file", "store_mapped",
)
SYNC_KINDS = frozenset({"sync_file", "sync_dir"})
# Calls that a full disk refuses.
SPACE_KINDS = frozenset({"create_file", "pwrite", "truncate_file", "rename_file", "make_dir"})
READ_KINDS = frozenset({"open_file", "pread", "file_size"})
# What fails when no kinds are named: a close and a store into mapped memory have no error that a caller could act on.
FAULT_KINDS = frozenset(KINDS) - {"close_file", "store_mapped"}
# Calls that can be made to wait: the others change a file and the log in one step.
HELD_KINDS = frozenset({"sync_file", "sync_dir", "truncate_file"})
assert len(KINDS) == KIND_COUNT


@dataclass(frozen=True, slots=True)
class Op:
    """One change or sync, as Python sees it; crash_disk.pyi says what the fields are."""

    index: int
    kind: str
    file: int
    path: str | None
    new_path: str | None
    offset: int
    size: int
    data: bytes
    start: int
    error: int


cdef void* grown(void* items, int64_t count, int64_t* room, size_t item_size) noexcept nogil:
    """`items` with room for one more than `count`."""
    if count < room[0]:
        return items
    room[0] = 64 if room[0] == 0 else room[0] * 2
    items = realloc(items, room[0] * item_size)
    if items == NULL:
        abort()                            # a test that has eaten all memory has nothing left to prove
    return items


cdef class CrashDisk(Disk):
    """A real directory, the log of its changes, and the faults to come.

    Always true: `base` and `ops` together give the directory as it is now; `ops` only grows. Changes made behind its
    back (by `os` calls) are not in the log.
    """

    def __cinit__(self, root):
        pthread_mutex_init(&self.mutex, NULL)
        timed_cond_init(&self.turned)
        self.next_file = 1
        self._ops, self._marks, self._names = [], [], {}
        self._ops_lock = threading.Lock()

    def __init__(self, root):
        """Begin at the directory `root` as it is now; all of it counts as durable."""
        self.root = os.path.abspath(root)
        self.base, self.base_files = {}, {}
        for folder, folders, files in os.walk(self.root, onerror=_raise):
            for name in sorted(folders):
                self.base[os.path.relpath(os.path.join(folder, name), self.root)] = None
            for name in sorted(files):
                path = os.path.join(folder, name)
                short = os.path.relpath(path, self.root)
                with open(path, "rb") as file:
                    self.base[short] = file.read()
                    self.base_files[short] = self.identify(file.fileno(), False)
                self._names[self.base_files[short]] = path

    def __dealloc__(self):
        cdef int64_t i
        for i in range(self.entry_count):
            free_entry(&self.entries[i])
        for i in range(self.map_count):
            free(self.maps[i].memory)
        free(self.entries)
        free(self.known)
        free(self.file_of_fd)
        free(self.maps)
        pthread_cond_destroy(&self.turned)
        pthread_mutex_destroy(&self.mutex)

    # What Python sees.

    @property
    def position(self):
        """How many changes the log holds."""
        pthread_mutex_lock(&self.mutex)
        count = self.taken_count + self.entry_count
        pthread_mutex_unlock(&self.mutex)
        return count

    @property
    def ops(self):
        """The log so far, as a list of Op."""
        return list(self.take_ops())

    @property
    def marks(self):
        """All marks as (position, value)."""
        return list(self._marks)

    @property
    def calls(self):
        """How many calls of each kind were made, failed ones included."""
        return {kind: self.call_counts[i] for i, kind in enumerate(KINDS)}

    @property
    def fired(self):
        """How many calls a fault plan has failed."""
        return self.fired_count

    def mark(self, value):
        """Note `value` at this point of the log: every image cut here or later carries it."""
        self._marks.append((self.position, value))

    def fail_at(self, n, error, *, kinds=None, persistent=False, object short=False):
        """Let the n-th call from now (the next is 1) among `kinds` fail with the errno `error`.

        Persistent: all of them from there on, until `clear_faults`. Short: a pwrite writes half of its bytes first.
        Several plans may run side by side, each with a count of its own.
        """
        cdef Plan plan
        cdef uint64_t mask = 0
        if n < 1 or error < 1:
            raise ValueError(f"n counts from 1 and error is an errno, not {n} and {error}")
        for kind in FAULT_KINDS if kinds is None else {kinds} if isinstance(kinds, str) else kinds:
            mask |= <uint64_t>1 << <int>KINDS.index(kind)
        plan.kinds, plan.nth, plan.seen, plan.error = mask, n, 0, error
        plan.is_persistent, plan.is_short = persistent, short
        if self.plan_count == PLAN_COUNT_MAX:
            raise ValueError(f"at most {PLAN_COUNT_MAX} faults at a time")
        pthread_mutex_lock(&self.mutex)
        self.plans[self.plan_count] = plan
        self.plan_count += 1
        pthread_mutex_unlock(&self.mutex)

    def clear_faults(self):
        """Forget all fault plans; `fired` stays."""
        pthread_mutex_lock(&self.mutex)
        self.plan_count = 0
        pthread_mutex_unlock(&self.mutex)

    def hold(self, *kinds):
        """Let every call of `kinds` wait, from now until `release`."""
        cdef uint64_t mask = 0
        for kind in kinds:
            if kind not in HELD_KINDS:
                raise ValueError(f"{kind}: only {', '.join(sorted(HELD_KINDS))} can be held")
            mask |= <uint64_t>1 << <int>KINDS.index(kind)
        pthread_mutex_lock(&self.mutex)
        self.held_kinds = mask
        pthread_mutex_unlock(&self.mutex)

    @contextmanager
    def holding(self, *kinds):
        """`hold`, and `release` at the end of the `with` at the latest."""
        self.hold(*kinds)
        try:
            yield
        finally:
            self.release()

    def wait_held(self, int count=1, int timeout_s=30):
        """Return once so many calls wait."""
        cdef timespec until
        cdef int answer = 0, held
        clock_gettime(CLOCK_MONOTONIC, &until)
        until.tv_sec += timeout_s
        with nogil:
            pthread_mutex_lock(&self.mutex)
            while self.held_count < count and answer == 0:
                answer = pthread_cond_timedwait(&self.turned, &self.mutex, &until)
            held = self.held_count
            pthread_mutex_unlock(&self.mutex)
        if held < count:
            raise TimeoutError(f"{held} calls wait after {timeout_s} s, not {count}")

    def release(self):
        """Let all go on that were held, and hold no more."""
        pthread_mutex_lock(&self.mutex)
        self.held_kinds = 0
        self.held_count = 0
        self.release_count += 1
        pthread_cond_broadcast(&self.turned)
        pthread_mutex_unlock(&self.mutex)

    # The log and the tables; all but take_ops are called with the mutex held.

    cdef int enter(self, int kind, bint* is_short) noexcept nogil:
        """Count a call; the errno with which it must fail, or 0."""
        cdef int i, error = 0
        cdef Plan* plan
        self.call_counts[kind] += 1
        for i in range(self.plan_count):
            plan = &self.plans[i]
            if not (plan.kinds >> kind) & 1:
                continue
            plan.seen += 1
            if error == 0 and (plan.seen == plan.nth or (plan.is_persistent and plan.seen > plan.nth)):
                error = plan.error
                is_short[0] = plan.is_short
        if error:
            self.fired_count += 1
        return error

    cdef void stay(self, int kind) noexcept nogil:
        """Wait, without the mutex, while such a call is held."""
        cdef int64_t before = self.release_count
        if not (self.held_kinds >> kind) & 1:
            return
        self.held_count += 1
        pthread_cond_broadcast(&self.turned)
        while self.release_count == before:
            pthread_cond_wait(&self.turned, &self.mutex)

    cdef Entry* log(self, int kind) noexcept nogil:
        """A new entry at the end of the log, empty but for its kind."""
        self.entries = <Entry*>grown(self.entries, self.entry_count, &self.entry_room, sizeof(Entry))
        cdef Entry* entry = &self.entries[self.entry_count]
        memset(entry, 0, sizeof(Entry))
        entry.kind = kind
        self.entry_count += 1
        return entry

    cdef int64_t identify(self, int fd, bint is_new) noexcept nogil:
        """The number of an open file. An inode is used again after its file is gone, so a new file gets a new one."""
        cdef c_stat answer
        cdef int64_t i
        if fstat(fd, &answer) != 0:
            return 0
        for i in range(self.known_count):
            if self.known[i].inode == answer.st_ino:
                if not is_new:
                    return self.known[i].file
                break
        else:
            i = self.known_count
            self.known = <KnownFile*>grown(self.known, self.known_count, &self.known_room, sizeof(KnownFile))
            self.known[i].inode = answer.st_ino
            self.known_count += 1
        self.known[i].file = self.next_file
        self.next_file += 1
        return self.known[i].file

    cdef int64_t file_of(self, int fd) noexcept nogil:
        return self.file_of_fd[fd] if 0 <= fd < self.fd_room else 0

    cdef int64_t write_and_log(
        self, int kind, int fd, const uint8_t* data, int64_t size, int64_t offset, int error) noexcept nogil:
        """Write to the file and to the memory of those who have mapped it."""
        cdef int64_t put = Disk.pwrite(self, fd, data, size, offset)
        cdef int64_t file = self.file_of(fd)
        cdef int64_t i, stop
        cdef Entry* entry
        if put <= 0:
            return put
        entry = self.log(kind)
        entry.file, entry.offset, entry.size, entry.error = file, offset, put, error
        entry.data = <uint8_t*>malloc(put)
        if entry.data == NULL:
            abort()
        memcpy(entry.data, data, put)
        for i in range(self.map_count):
            stop = min(offset + put, self.maps[i].size)
            if self.maps[i].file == file and offset < stop:
                memmove(self.maps[i].memory + offset, data, stop - offset)
        return put

    cdef int change_name(self, int kind, const char* path, const char* new_path) noexcept nogil:
        """One call on names: done, and logged if it worked."""
        cdef bint is_short
        cdef Entry* entry
        pthread_mutex_lock(&self.mutex)
        cdef int answer = -self.enter(kind, &is_short)
        if answer == 0:
            if kind == RENAME_FILE:
                answer = Disk.rename_file(self, path, new_path)
            elif kind == UNLINK_FILE:
                answer = Disk.unlink_file(self, path)
            elif kind == MAKE_DIR:
                answer = Disk.make_dir(self, path)
            else:
                answer = Disk.remove_dir(self, path)
            if answer == 0:
                entry = self.log(kind)
                entry.path = strdup(path)
                entry.new_path = NULL if new_path == NULL else strdup(new_path)
        pthread_mutex_unlock(&self.mutex)
        return answer

    cdef list take_ops(self):
        """Move the C entries to Python; the mutex is free again before the first Python object is made."""
        cdef Entry* entries
        cdef Entry* entry
        cdef int64_t count, i
        with self._ops_lock:
            pthread_mutex_lock(&self.mutex)
            entries, count = self.entries, self.entry_count
            self.entries, self.entry_count, self.entry_room = NULL, 0, 0
            self.taken_count += count
            pthread_mutex_unlock(&self.mutex)
            for i in range(count):
                entry = &entries[i]
                path = None if entry.path == NULL else os.fsdecode(<bytes>entry.path)
                new_path = None if entry.new_path == NULL else os.fsdecode(<bytes>entry.new_path)
                if entry.kind == CREATE_FILE:
                    self._names[entry.file] = path
                elif entry.kind == RENAME_FILE:
                    for file, name in self._names.items():
                        if name == path:
                            self._names[file] = new_path
                elif path is None:
                    path = self._names.get(entry.file)
                self._ops.append(Op(
                    len(self._ops), KINDS[entry.kind], entry.file, path, new_path, entry.offset, entry.size,
                    b"" if entry.data == NULL else entry.data[:entry.size], entry.start, entry.error,
                ))
                free_entry(entry)
            free(entries)
            return self._ops

    # The calls of a Disk.

    cdef int open_file(self, const char* path, int flags) noexcept nogil:
        cdef bint is_short, is_new = False
        cdef int64_t file, room
        cdef Entry* entry
        pthread_mutex_lock(&self.mutex)
        cdef int fd = -self.enter(CREATE_FILE if flags & (O_CREAT | O_TRUNC) else OPEN_FILE, &is_short)
        if fd == 0:
            if flags & O_CREAT:
                fd = Disk.open_file(self, path, flags | O_EXCL)
                is_new = fd >= 0
            if not flags & O_CREAT or (fd == -EEXIST and not flags & O_EXCL):
                fd = Disk.open_file(self, path, flags & ~O_CREAT)
        if fd >= 0:
            file = self.identify(fd, is_new)
            while fd >= self.fd_room:
                room = self.fd_room
                self.file_of_fd = <int64_t*>grown(self.file_of_fd, room, &self.fd_room, sizeof(int64_t))
                memset(self.file_of_fd + room, 0, (self.fd_room - room) * sizeof(int64_t))
            self.file_of_fd[fd] = file
            if is_new:
                entry = self.log(CREATE_FILE)
                entry.file, entry.path = file, strdup(path)
            elif flags & O_TRUNC:
                entry = self.log(TRUNCATE_FILE)
                entry.file = file
        pthread_mutex_unlock(&self.mutex)
        return fd

    cdef int close_file(self, int fd) noexcept nogil:
        """Closes the file even when a fault makes it answer with an error, as Linux does."""
        cdef bint is_short
        pthread_mutex_lock(&self.mutex)
        cdef int error = self.enter(CLOSE_FILE, &is_short)
        if 0 <= fd < self.fd_room:
            self.file_of_fd[fd] = 0
        cdef int answer = Disk.close_file(self, fd)
        pthread_mutex_unlock(&self.mutex)
        return -error if error else answer

    cdef int64_t pread(self, int fd, uint8_t* out, int64_t size, int64_t offset) noexcept nogil:
        cdef bint is_short
        pthread_mutex_lock(&self.mutex)
        cdef int error = self.enter(PREAD, &is_short)
        pthread_mutex_unlock(&self.mutex)
        return -error if error else Disk.pread(self, fd, out, size, offset)

    cdef int64_t pwrite(self, int fd, const uint8_t* data, int64_t size, int64_t offset) noexcept nogil:
        cdef bint is_short = False
        cdef int64_t put
        pthread_mutex_lock(&self.mutex)
        cdef int error = self.enter(PWRITE, &is_short)
        if error == 0:
            put = self.write_and_log(PWRITE, fd, data, size, offset, 0)
        else:
            if is_short:
                self.write_and_log(PWRITE, fd, data, size // 2, offset, error)
            put = -error
        pthread_mutex_unlock(&self.mutex)
        return put

    cdef int sync_file(self, int fd) noexcept nogil:
        cdef bint is_short
        cdef Entry* entry
        pthread_mutex_lock(&self.mutex)
        cdef int error = self.enter(SYNC_FILE, &is_short)
        cdef int64_t file = self.file_of(fd), start = self.taken_count + self.entry_count
        self.stay(SYNC_FILE)
        pthread_mutex_unlock(&self.mutex)
        if file == 0:
            return -EBADF
        if self.sync_delay_us:
            usleep(self.sync_delay_us)
        pthread_mutex_lock(&self.mutex)
        entry = self.log(SYNC_FILE)
        entry.file, entry.start, entry.error = file, start, error
        pthread_mutex_unlock(&self.mutex)
        return -error

    cdef int sync_dir(self, const char* path) noexcept nogil:
        cdef bint is_short
        cdef Entry* entry
        pthread_mutex_lock(&self.mutex)
        cdef int error = self.enter(SYNC_DIR, &is_short)
        cdef int64_t start = self.taken_count + self.entry_count
        self.stay(SYNC_DIR)
        pthread_mutex_unlock(&self.mutex)
        cdef int fd = c_open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        if fd < 0:
            return -errno
        c_close(fd)
        if self.sync_delay_us:
            usleep(self.sync_delay_us)
        pthread_mutex_lock(&self.mutex)
        entry = self.log(SYNC_DIR)
        entry.path, entry.start, entry.error = strdup(path), start, error
        pthread_mutex_unlock(&self.mutex)
        return -error

    cdef int truncate_file(self, int fd, int64_t size) noexcept nogil:
        cdef bint is_short
        cdef Entry* entry
        pthread_mutex_lock(&self.mutex)
        cdef int answer = -self.enter(TRUNCATE_FILE, &is_short)
        self.stay(TRUNCATE_FILE)
        if answer == 0:
            answer = Disk.truncate_file(self, fd, size)
            if answer == 0:
                entry = self.log(TRUNCATE_FILE)
                entry.file, entry.size = self.file_of(fd), size
        pthread_mutex_unlock(&self.mutex)
        return answer

    cdef int64_t file_size(self, int fd) noexcept nogil:
        cdef bint is_short
        pthread_mutex_lock(&self.mutex)
        cdef int error = self.enter(FILE_SIZE, &is_short)
        pthread_mutex_unlock(&self.mutex)
        return -error if error else Disk.file_size(self, fd)

    cdef int rename_file(self, const char* old, const char* new) noexcept nogil:
        return self.change_name(RENAME_FILE, old, new)

    cdef int unlink_file(self, const char* path) noexcept nogil:
        return self.change_name(UNLINK_FILE, path, NULL)

    cdef int make_dir(self, const char* path) noexcept nogil:
        return self.change_name(MAKE_DIR, path, NULL)

    cdef int remove_dir(self, const char* path) noexcept nogil:
        return self.change_name(REMOVE_DIR, path, NULL)

    cdef uint8_t* map_file(self, int fd, int64_t size) noexcept nogil:
        """A copy of the file in plain memory: a store that goes around `store_mapped` never reaches the file."""
        cdef bint is_short
        cdef uint8_t* memory = NULL
        pthread_mutex_lock(&self.mutex)
        if self.enter(MAP_FILE, &is_short) == 0 and size > 0:
            memory = <uint8_t*>calloc(size, 1)
            if memory == NULL:
                abort()
            if Disk.pread(self, fd, memory, size, 0) < 0:
                free(memory)
                memory = NULL
            else:
                self.maps = <Map*>grown(self.maps, self.map_count, &self.map_room, sizeof(Map))
                self.maps[self.map_count].memory = memory
                self.maps[self.map_count].size = size
                self.maps[self.map_count].file = self.file_of(fd)
                self.map_count += 1
        pthread_mutex_unlock(&self.mutex)
        return memory

    cdef void unmap_file(self, uint8_t* map, int64_t size) noexcept nogil:
        cdef int64_t i
        pthread_mutex_lock(&self.mutex)
        for i in range(self.map_count):
            if self.maps[i].memory == map:
                free(map)
                self.map_count -= 1
                self.maps[i] = self.maps[self.map_count]
                break
        pthread_mutex_unlock(&self.mutex)

    cdef int store_mapped(self, int fd, uint8_t* map, const uint8_t* data, int64_t size, int64_t offset) noexcept nogil:
        cdef bint is_short
        cdef int64_t put
        if map == NULL:
            return <int>self.pwrite(fd, data, size, offset)
        pthread_mutex_lock(&self.mutex)
        put = -self.enter(STORE_MAPPED, &is_short)
        if put == 0:
            put = self.write_and_log(STORE_MAPPED, fd, data, size, offset, 0)
        pthread_mutex_unlock(&self.mutex)
        return <int>put

    # Doors to the two calls that Disk has none for; for tests of this class.

    def map(self, int fd, int64_t size):
        """The address of the mapped memory, or 0."""
        return <size_t>self.map_file(fd, size)

    def unmap(self, size_t address, int64_t size):
        self.unmap_file(<uint8_t*>address, size)

    def mapped(self, size_t address, Py_ssize_t size):
        """What stands in the mapped memory."""
        return (<const char*>address)[:size]

    def store(self, int fd, size_t address, const unsigned char[::1] data not None, offset=0):
        cdef int answer = self.store_mapped(fd, <uint8_t*>address, &data[0], data.shape[0], offset)
        if answer < 0:
            raise OSError(-answer, os.strerror(-answer))


cdef void free_entry(Entry* entry) noexcept nogil:
    free(entry.data)
    free(entry.path)
    free(entry.new_path)


def _raise(error):
    raise error
