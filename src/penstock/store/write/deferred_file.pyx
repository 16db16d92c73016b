"""DeferredFile: a small file that need not be there at once, and is not worth a wait for the file system when it is handed over."""
import os

from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from penstock.base.disk import temporary_name

cdef extern from "fcntl.h" nogil:
    int O_RDWR, O_CREAT, O_TRUNC


cdef class DeferredFile:
    """The bytes that a file will have. It appears whole, under a temporary name until then, and is not synced."""

    def __init__(self, Disk disk not None, path, data):
        cdef const uint8_t[::1] view = data
        self.disk = disk
        self.path = os.fsencode(path)
        self.temporary = os.fsencode(temporary_name(path))
        self.path_text = self.path
        self.temporary_text = self.temporary
        self.size = len(view)
        self.data = <uint8_t*>malloc(max(self.size, 1))
        if self.data == NULL:
            raise MemoryError
        if self.size:
            memcpy(self.data, &view[0], self.size)

    def __dealloc__(self):
        free(self.data)

    cdef void write(self) noexcept nogil:
        """Once. Any thread; it is whole, or there is an error, after."""
        cdef int64_t answer
        cdef int fd = self.disk.open_file(self.temporary_text, O_RDWR | O_CREAT | O_TRUNC)
        if fd < 0:
            answer = fd
        else:
            answer = self.disk.pwrite(fd, self.data, self.size, 0)
            self.disk.close_file(fd)
            if answer >= 0:
                answer = self.disk.rename_file(self.temporary_text, self.path_text)
            if answer < 0:
                self.disk.unlink_file(self.temporary_text)
        if answer < 0:
            self.error = <int>-answer
        free(self.data)
        self.data = NULL

    def write_now(self):
        """Write it here, where no committer takes it."""
        self.write()
        self.state = DEFERRED_DONE

    @property
    def is_done(self):
        return self.state == DEFERRED_DONE

    def check(self):
        """Raise what the disk said, if it could not be written."""
        if self.error:
            raise OSError(self.error, os.strerror(self.error), os.fsdecode(self.path))
