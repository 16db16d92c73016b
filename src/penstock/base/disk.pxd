# The disk as the store sees it: calls that need no GIL and answer with a count, a descriptor or -errno.
# A second class, testing/crash_disk, records or fails the same calls; so production code runs in crash and fault tests.
from libc.stdint cimport int64_t, uint8_t


cdef class Disk:
    cdef int open_file(self, const char* path, int flags) noexcept nogil
    cdef int close_file(self, int fd) noexcept nogil
    cdef int64_t pread(self, int fd, uint8_t* out, int64_t size, int64_t offset) noexcept nogil
    cdef int64_t pwrite(self, int fd, const uint8_t* data, int64_t size, int64_t offset) noexcept nogil
    cdef int sync_file(self, int fd) noexcept nogil
    cdef int begin_sync(self, int fd, int64_t size, int64_t offset) noexcept nogil
    cdef int sync_dir(self, const char* path) noexcept nogil
    cdef int truncate_file(self, int fd, int64_t size) noexcept nogil
    cdef int reserve(self, int fd, int64_t size) noexcept nogil
    cdef int64_t file_size(self, int fd) noexcept nogil
    cdef int rename_file(self, const char* old, const char* new) noexcept nogil
    cdef int unlink_file(self, const char* path) noexcept nogil
    cdef int make_dir(self, const char* path) noexcept nogil
    cdef int remove_dir(self, const char* path) noexcept nogil
    cdef uint8_t* map_file(self, int fd, int64_t size) noexcept nogil
    cdef void unmap_file(self, uint8_t* map, int64_t size) noexcept nogil
    cdef int store_mapped(self, int fd, uint8_t* map, const uint8_t* data, int64_t size, int64_t offset) noexcept nogil
