"""LateFile: a small file that need not be there at once, and is not worth a wait for the file system when it is handed over."""
import os

cdef extern from "fcntl.h" nogil:
    int O_RDWR, O_CREAT, O_TRUNC


cdef class LateFile:
    """The bytes that a file will have. It appears whole, under a temporary name until then, and is not synced."""

    def __init__(self, Disk disk not None, path, data):
        self.disk = disk
        self.path = os.fsencode(path)
        self.temporary = os.fsencode(f"{path}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
        self.path_text = self.path
        self.temporary_text = self.temporary
        self.data = data
        self.size = self.data.shape[0]
        self.start = &self.data[0] if self.size else NULL

    cdef void write(self) noexcept nogil:
        cdef int64_t answer
        cdef int fd = self.disk.open_file(self.temporary_text, O_RDWR | O_CREAT | O_TRUNC)
        if fd < 0:
            self.error = -fd
            return
        answer = self.disk.pwrite(fd, self.start, self.size, 0)
        self.disk.close_file(fd)
        if answer >= 0:
            answer = self.disk.rename_file(self.temporary_text, self.path_text)
        if answer < 0:
            self.error = <int>-answer
            self.disk.unlink_file(self.temporary_text)

    @property
    def is_done(self):
        return self.state == LATE_DONE

    def check(self):
        """Raise what the disk said, if it could not be written."""
        if self.error:
            raise OSError(self.error, os.strerror(self.error), os.fsdecode(self.path))
