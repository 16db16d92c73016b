"""Disk: every call that the store makes on files. Compiled, so that threads without the GIL can make them.

Each `cdef` method is one call (`pread` and `pwrite` go on after a short answer); the doors below raise OSError with the path.
Overriding the `cdef` methods changes the doors too.
"""
import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport EINTR, ENOSPC, errno
from libc.string cimport memcpy


cdef extern from "fcntl.h" nogil:
    int c_open "open"(const char* path, int flags, ...)
    int O_RDONLY, O_RDWR, O_CREAT, O_EXCL, O_TRUNC, O_CLOEXEC, O_DIRECTORY
    int c_fallocate "fallocate"(int fd, int mode, long offset, long size)
    int FALLOC_FL_KEEP_SIZE
    int c_sync_file_range "sync_file_range"(int fd, long offset, long size, unsigned int flags)
    unsigned int SYNC_FILE_RANGE_WRITE

cdef extern from "unistd.h" nogil:
    int c_close "close"(int fd)
    ssize_t c_pread "pread"(int fd, void* buf, size_t count, long offset)
    ssize_t c_pwrite "pwrite"(int fd, const void* buf, size_t count, long offset)
    int c_fdatasync "fdatasync"(int fd)
    int c_fsync "fsync"(int fd)
    int c_ftruncate "ftruncate"(int fd, long size)
    int c_unlink "unlink"(const char* path)
    int c_rmdir "rmdir"(const char* path)
    long c_lseek "lseek"(int fd, long offset, int whence)
    int SEEK_END

cdef extern from "stdio.h" nogil:
    int c_rename "rename"(const char* old, const char* new)

cdef extern from "sys/stat.h" nogil:
    int c_mkdir "mkdir"(const char* path, int mode)

cdef extern from "sys/mman.h" nogil:
    void* mmap(void* addr, size_t size, int prot, int flags, int fd, long offset)
    int munmap(void* addr, size_t size)
    int PROT_READ, PROT_WRITE, MAP_SHARED
    void* MAP_FAILED


cdef enum:
    # Larger writes get huge pages of the page cache. On a virtual machine whose host takes free memory back those are the
    # ones that it has to find again: a copy at 300 MB/s instead of 3,500.
    WRITE_SIZE = 262144


cdef class Disk:
    """The real disk."""

    cdef int open_file(self, const char* path, int flags) noexcept nogil:
        cdef int fd = c_open(path, flags | O_CLOEXEC, 0o600)
        while fd < 0 and errno == EINTR:
            fd = c_open(path, flags | O_CLOEXEC, 0o600)
        return fd if fd >= 0 else -errno

    cdef int close_file(self, int fd) noexcept nogil:
        return 0 if c_close(fd) == 0 else -errno

    cdef int64_t pread(self, int fd, uint8_t* out, int64_t size, int64_t offset) noexcept nogil:
        cdef int64_t done = 0
        cdef ssize_t got
        while done < size:
            got = c_pread(fd, out + done, size - done, offset + done)
            if got < 0:
                if errno == EINTR:
                    continue
                return -errno
            if got == 0:
                break
            done += got
        return done

    cdef int64_t pwrite(self, int fd, const uint8_t* data, int64_t size, int64_t offset) noexcept nogil:
        cdef int64_t done = 0
        cdef ssize_t put
        while done < size:
            put = c_pwrite(fd, data + done, min(size - done, <int64_t>WRITE_SIZE), offset + done)
            if put < 0:
                if errno == EINTR:
                    continue
                return -errno
            if put == 0:
                return -ENOSPC
            done += put
        return done

    cdef int sync_file(self, int fd) noexcept nogil:
        return 0 if c_fdatasync(fd) == 0 else -errno

    cdef int begin_sync(self, int fd, int64_t size, int64_t offset) noexcept nogil:
        """Have the disk begin with what was written. It promises nothing: `sync_file` waits for it and tells what failed."""
        return 0 if c_sync_file_range(fd, offset, size, SYNC_FILE_RANGE_WRITE) == 0 else -errno

    cdef int sync_dir(self, const char* path) noexcept nogil:
        cdef int fd = c_open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        cdef int answer
        if fd < 0:
            return -errno
        answer = 0 if c_fsync(fd) == 0 else -errno
        c_close(fd)
        return answer

    cdef int truncate_file(self, int fd, int64_t size) noexcept nogil:
        return 0 if c_ftruncate(fd, size) == 0 else -errno

    cdef int reserve(self, int fd, int64_t size) noexcept nogil:
        """Have the file system set `size` bytes of space aside; the file stays as long as it is."""
        return 0 if c_fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, size) == 0 else -errno

    cdef int64_t file_size(self, int fd) noexcept nogil:
        cdef long size = c_lseek(fd, 0, SEEK_END)
        return size if size >= 0 else -errno

    cdef int rename_file(self, const char* old, const char* new) noexcept nogil:
        return 0 if c_rename(old, new) == 0 else -errno

    cdef int unlink_file(self, const char* path) noexcept nogil:
        return 0 if c_unlink(path) == 0 else -errno

    cdef int make_dir(self, const char* path) noexcept nogil:
        return 0 if c_mkdir(path, 0o700) == 0 else -errno

    cdef int remove_dir(self, const char* path) noexcept nogil:
        return 0 if c_rmdir(path) == 0 else -errno

    cdef uint8_t* map_file(self, int fd, int64_t size) noexcept nogil:
        """The file's first `size` bytes as shared memory, or NULL where the file system has none."""
        cdef void* map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
        return NULL if map == MAP_FAILED else <uint8_t*>map

    cdef void unmap_file(self, uint8_t* map, int64_t size) noexcept nogil:
        munmap(map, size)

    cdef int store_mapped(self, int fd, uint8_t* map, const uint8_t* data, int64_t size, int64_t offset) noexcept nogil:
        """Put `data` into the shared memory of a mapped file: a store costs 0.05 us where a pwrite costs 2."""
        if map == NULL:
            return <int>self.pwrite(fd, data, size, offset)
        memcpy(map + offset, data, size)
        return <int>size

    # The doors.

    def open(self, path, mode="r"):
        """A descriptor: "r" to read, "w" to read and write, "c" to create or empty."""
        cdef bytes name = os.fsencode(path)
        flags = {"r": O_RDONLY, "w": O_RDWR, "c": O_RDWR | O_CREAT | O_TRUNC}[mode]
        return _checked(self.open_file(name, flags), path)

    def close(self, int fd):
        _checked(self.close_file(fd), None)

    def read(self, int fd, Py_ssize_t size, offset=0):
        """Up to `size` bytes from `offset`; fewer only at the end of the file."""
        cdef int64_t at = offset, got
        cdef bytes out = PyBytes_FromStringAndSize(NULL, size)
        cdef uint8_t* buffer = <uint8_t*>PyBytes_AS_STRING(out)
        with nogil:
            got = self.pread(fd, buffer, size, at)
        _checked(got, None)
        return out if got == size else out[:got]

    def read_into(self, int fd, unsigned char[::1] out not None, offset=0):
        """Fill `out` from `offset`; how many bytes there were."""
        cdef int64_t at = offset, got
        cdef Py_ssize_t size = out.shape[0]
        if size == 0:
            return 0
        with nogil:
            got = self.pread(fd, &out[0], size, at)
        return _checked(got, None)

    def write(self, int fd, const unsigned char[::1] data not None, offset=0):
        cdef int64_t at = offset, put
        if data.shape[0] == 0:
            return
        with nogil:
            put = self.pwrite(fd, &data[0], data.shape[0], at)
        _checked(put, None)

    def sync(self, int fd):
        cdef int answer
        with nogil:
            answer = self.sync_file(fd)
        _checked(answer, None)

    def sync_folder(self, path):
        cdef bytes name = os.fsencode(path)
        cdef const char* text = name
        cdef int answer
        with nogil:
            answer = self.sync_dir(text)
        _checked(answer, path)

    def truncate(self, int fd, size):
        cdef int64_t new_size = size
        cdef int answer
        with nogil:
            answer = self.truncate_file(fd, new_size)
        _checked(answer, None)

    def size(self, int fd):
        return _checked(self.file_size(fd), None)

    def rename(self, old, new):
        cdef bytes a = os.fsencode(old), b = os.fsencode(new)
        cdef const char* a_text = a
        cdef const char* b_text = b
        cdef int answer
        with nogil:
            answer = self.rename_file(a_text, b_text)
        _checked(answer, old)

    def unlink(self, path):
        cdef bytes name = os.fsencode(path)
        cdef const char* text = name
        cdef int answer
        with nogil:                        # of a large file it takes milliseconds
            answer = self.unlink_file(text)
        _checked(answer, path)

    def mkdir(self, path):
        """Make a directory; True if it was not there."""
        cdef bytes name = os.fsencode(path)
        cdef int answer = self.make_dir(name)
        if answer < 0 and os.path.isdir(path):
            return False
        _checked(answer, path)
        return True

    def rmdir(self, path):
        cdef bytes name = os.fsencode(path)
        _checked(self.remove_dir(name), path)

    def read_file(self, path):
        """The whole file."""
        fd = self.open(path)
        try:
            return self.read(fd, self.size(fd))
        finally:
            self.close_file(fd)

    def write_file(self, path, data, sync=True):
        """Replace the file at `path`: a temporary file with a name of its own, sync, rename, directory sync."""
        folder = os.path.dirname(path)
        temporary = temporary_name(path)
        fd = self.open(temporary, "c")
        try:
            try:
                self.write(fd, data)
                if sync:
                    self.sync(fd)
            finally:
                self.close_file(fd)
            self.rename(temporary, path)
        except BaseException:
            self.unlink_file(os.fsencode(temporary))
            raise
        if sync:
            self.sync_folder(folder)


def temporary_name(path):
    """What a file is called until it is whole; nobody else calls one so. Those that a crash leaves go at the next open."""
    return f"{path}.{os.getpid()}-{os.urandom(4).hex()}.tmp"


cdef int64_t _checked(int64_t answer, path) except -1:
    if answer < 0:
        code = -answer
        raise OSError(code, os.strerror(code), path if path is None else os.fspath(path))
    return answer
