# A Disk that remembers every change and fails on demand; see crash_disk.pyx.
from libc.stdint cimport int64_t, uint8_t, uint64_t

from penstock.base.disk cimport Disk
from penstock.base.threads cimport pthread_cond_t, pthread_mutex_t



cdef enum:
    KIND_COUNT = 15
    PLAN_COUNT_MAX = 16


cdef struct Entry:                  # one change, as it goes into the log
    int kind
    int error                       # of a failed sync or of a write cut short; else 0
    int64_t file
    int64_t offset
    int64_t size
    int64_t start                   # of a sync: how long the log was when it began
    uint8_t* data
    char* path
    char* new_path


cdef struct Plan:                   # one fault to come
    uint64_t kinds
    int64_t nth
    int64_t seen
    int error
    bint is_persistent
    bint is_short


cdef struct KnownFile:
    uint64_t inode
    int64_t file


cdef struct Map:                    # memory given out by map_file
    uint8_t* memory
    int64_t size
    int64_t file


cdef class CrashDisk(Disk):
    cdef pthread_mutex_t mutex      # guards all C fields below; never held while asking for the GIL
    cdef Entry* entries             # what `ops` has not taken yet
    cdef int64_t entry_count, entry_room, taken_count
    cdef KnownFile* known
    cdef int64_t known_count, known_room, next_file
    cdef int64_t* file_of_fd
    cdef int64_t fd_room
    cdef Map* maps
    cdef int64_t map_count, map_room
    cdef Plan plans[PLAN_COUNT_MAX]
    cdef int plan_count
    cdef int64_t call_counts[KIND_COUNT]
    cdef int64_t fired_count
    cdef pthread_cond_t turned      # a call was held, or all were let go
    cdef uint64_t held_kinds
    cdef int held_count             # calls that wait …
    cdef int64_t release_count      # … for this to rise
    cdef public int sync_delay_us
    cdef readonly str root
    cdef readonly dict base, base_files
    cdef list _ops, _marks
    cdef dict _names
    cdef object _ops_lock

    cdef int enter(self, int kind, bint* is_short) noexcept nogil
    cdef void stay(self, int kind) noexcept nogil
    cdef Entry* log(self, int kind) noexcept nogil
    cdef int64_t identify(self, int fd, bint is_new) noexcept nogil
    cdef int64_t file_of(self, int fd) noexcept nogil
    cdef int64_t write_and_log(
        self, int kind, int fd, const uint8_t* data, int64_t size, int64_t offset, int error) noexcept nogil
    cdef int change_name(self, int kind, const char* path, const char* new_path) noexcept nogil
    cdef list take_ops(self)

    cdef int open_file(self, const char* path, int flags) noexcept nogil
    cdef int close_file(self, int fd) noexcept nogil
    cdef int64_t pread(self, int fd, uint8_t* out, int64_t size, int64_t offset) noexcept nogil
    cdef int64_t pwrite(self, int fd, const uint8_t* data, int64_t size, int64_t offset) noexcept nogil
    cdef int sync_file(self, int fd) noexcept nogil
    cdef int sync_dir(self, const char* path) noexcept nogil
    cdef int truncate_file(self, int fd, int64_t size) noexcept nogil
    cdef int64_t file_size(self, int fd) noexcept nogil
    cdef int rename_file(self, const char* old, const char* new) noexcept nogil
    cdef int unlink_file(self, const char* path) noexcept nogil
    cdef int make_dir(self, const char* path) noexcept nogil
    cdef int remove_dir(self, const char* path) noexcept nogil
    cdef uint8_t* map_file(self, int fd, int64_t size) noexcept nogil
    cdef void unmap_file(self, uint8_t* map, int64_t size) noexcept nogil
    cdef int store_mapped(self, int fd, uint8_t* map, const uint8_t* data, int64_t size, int64_t offset) noexcept nogil
