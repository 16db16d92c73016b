# The write side of a consumer log. Rules: docs/format.md, "Consumer log".
from libc.stdint cimport int64_t, uint8_t, uint64_t

from penstock.store.write.commit_log cimport BlockFile, CommitLog


cdef class ConsumerLogWriter:
    cdef readonly CommitLog log
    cdef dict counts                       # the records that each consumer has had
    cdef BlockFile** files                 # those before the active one: until no commit needs them
    cdef Py_ssize_t file_count
    cdef BlockFile* file                   # the active one, or NULL
    cdef uint64_t salt
    cdef uint64_t fold_limit               # size at which a new file is worth it
    cdef uint64_t fold_stop                # position behind the fold of the active file
    cdef bint is_off                       # records are not written one by one: the next fold holds what they say
    cdef bint is_required                  # a fold is wanted, though nothing has changed
    cdef int64_t retry_at                  # monotonic ns: after a failure no fold is made before
    cdef readonly bint is_attached

    cdef void stop_writing(self) noexcept
    cdef retire(self)
    cdef void free_files(self) noexcept
    cdef int append(self, uint8_t kind, uint64_t number, uint64_t count, bytes meta, bytes body) except -1
