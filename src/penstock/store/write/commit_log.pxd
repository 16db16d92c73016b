# The write side of a stream: block images in memory, what of them is written and synced, and HEAD.
# Rules: docs/format.md ("Block", "HEAD"), ARCHITECTURE.md ("Commit").
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from penstock.store.write.committer cimport Committable, Committer
from penstock.base.disk cimport Disk
from penstock.base.threads cimport pthread_cond_t, pthread_mutex_t

cdef enum:
    DURABLE_DISK = 0                       # committed means synced
    DURABLE_OS = 1                         # committed means written
    DURABLE_LAZY = 2                       # committed means appended
    DURABLE_MEMORY = 3                     # there are no files
    POINTS_MAX = 64
    NOTIFY_MAX = 8                         # event loops that wait for the commits of one log

cdef struct BlockFile:
    uint64_t id
    int fd                                 # -1: not open (or not created yet)
    bint is_created                        # the file exists
    uint64_t entry                         # its number among the files that this log made; 0: it existed before, and its directory is synced
    bint is_listed                         # on the log's list of files that have bytes to commit
    char* path
    uint8_t* image                         # the file's bytes [0, size) as they will be; NULL once dropped
    uint64_t capacity
    uint64_t reserved                      # space that the file system has set aside
    uint64_t zeroed                        # the file is that long: zeros were written ahead of its records
    uint64_t piece                         # so many at a time; 0: its last commit was not small
    uint32_t small_count                   # small commits that made the file longer
    uint64_t size                          # appended; only the owner moves it
    uint64_t submitted                     # may be written
    uint64_t written
    uint64_t covered                       # what the commit that is under way makes durable
    uint64_t synced
    uint64_t committed                     # what a whole commit has covered: below `synced` and `written` after one that failed
    int users                              # threads in a sync of this file
    bint is_orphan                         # its owner does not need it any more: the last user frees it
    BlockFile* next

cdef struct CommitPoint:                   # where a commit may end: up to here was submitted at once
    uint64_t position
    uint64_t seq
    BlockFile* file                        # on the list while `position` is not written
    uint64_t stop

cdef void free_block_file(BlockFile* file) noexcept nogil

cdef class CommitLog(Committable):
    cdef Disk disk
    cdef object file_owner                   # the index whose blocks own our files
    cdef bytes folder                      # of the block files
    cdef const char* folder_path
    cdef readonly int durability
    cdef pthread_mutex_t* lock             # the fields below; held for moments
    cdef pthread_mutex_t* io               # one commit at a time
    cdef pthread_mutex_t* writing          # one writer at a time; taken after `io`
    cdef pthread_mutex_t* linking          # one sync of the directory at a time; taken after `writing`
    cdef uint64_t created                  # files so far
    cdef uint64_t linked                   # the directory was synced after so many of them
    cdef int link_error                    # -errno of one that failed, until a commit tells it
    cdef pthread_cond_t* moved             # something was committed, or failed
    cdef BlockFile* first                  # oldest file with bytes to commit
    cdef BlockFile* last                   # the active one
    cdef bint is_filling                   # blocks get full: the next is reserved whole
    cdef uint64_t appended                 # byte positions over all blocks: what a commit is counted in
    cdef uint64_t submitted
    cdef uint64_t ready                    # written to its files, by a commit or beside one; what the next sync covers
    cdef uint64_t written                  # covered by a whole commit
    cdef uint64_t synced
    cdef BlockFile* ready_last             # the file that `ready` ends in …
    cdef uint64_t ready_stop               # … and how far it goes there; those before it are whole
    cdef uint64_t appended_seq             # last sequence given out at that position
    cdef uint64_t submitted_seq
    cdef uint64_t ready_seq
    cdef uint64_t written_seq
    cdef uint64_t synced_seq
    cdef int fail_errno                    # a commit failed: nothing is written until the owner has dealt with it
    cdef readonly uint64_t fail_count      # roll backs so far
    cdef const char* fail_op
    cdef char* fail_path
    cdef bint is_flushing
    cdef bint is_syncing                   # the commit under way has written what it writes
    cdef uint64_t reached                  # up to where the last writer was to write
    cdef CommitPoint points[POINTS_MAX]             # of what is submitted and not written, the oldest first
    cdef int point_count
    cdef uint64_t sync_wanted              # a sync up to here was requested, earlier than `os` would sync by itself
    cdef bint is_quiet                     # the committing thread checks by itself: no notification
    cdef bint needs_rewrite                # a sync failed: what it covered is written again before the next one
    cdef int64_t dirty_since               # monotonic ns of the first byte not yet synced, 0 when clean
    cdef Committer committer
    cdef uint32_t opened                   # files opened to be read, since idle ones were closed
    cdef int notify_fds[NOTIFY_MAX]        # eventfds on which every commit is announced, -1: none
    cdef int head_fd
    cdef uint8_t* head_map
    cdef uint64_t head_counter
    cdef uint8_t head[128]

    cdef BlockFile* new_file(self, uint64_t block_id, bytes path, uint64_t capacity) except NULL
    cdef void start_file(self, BlockFile* file) noexcept nogil
    cdef void submit(self) noexcept nogil
    cdef int flush(self, bint sync) noexcept nogil
    cdef int flush_locked(self, bint sync) noexcept nogil
    cdef CommitPoint next_stop(self) noexcept nogil
    cdef int write_files(self, bint is_early) noexcept nogil
    cdef bint is_ahead(self) noexcept nogil
    cdef int sync_files(self, BlockFile* last) noexcept nogil
    cdef int write_now(self) noexcept nogil
    cdef void begin(self) noexcept nogil
    cdef void write_more_zeros(self) noexcept nogil
    cdef void request_sync(self, uint64_t position) noexcept nogil
    cdef int sync_behind(self) noexcept nogil
    cdef BlockFile* take_whole(self, BlockFile* kept) noexcept nogil
    cdef void release_files(self, BlockFile* files) noexcept nogil
    cdef void trim_file(self, BlockFile* file) noexcept nogil
    cdef void free_file(self, BlockFile* file) noexcept nogil
    cdef int64_t write_again(self, BlockFile* file) noexcept nogil
    cdef void announce(self) noexcept nogil
    cdef int fail(self, int code, const char* op, const char* path) noexcept nogil
    cdef void store_head(self, uint64_t block_id, uint64_t offset, uint64_t state) noexcept nogil
    cdef uint64_t committed(self) noexcept nogil
    cdef uint64_t committed_seq(self) noexcept nogil
    cdef void flush_wait(self) noexcept nogil
    cdef void pause_flush(self) noexcept nogil
    cdef void resume_flush(self) noexcept nogil
    cdef void unlist(self, BlockFile* file) noexcept nogil
    cdef void forget_ready(self) noexcept nogil
    cdef void forget_files(self) noexcept nogil
    cdef int sync_entries(self, uint64_t entry) noexcept nogil
    cdef int link(self, uint64_t entry) noexcept nogil
    cdef void skip_over(self) noexcept nogil
    cdef void drop_image(self, BlockFile* file) noexcept nogil
    cdef bint drop_written(self, BlockFile* file) noexcept nogil
    cdef int open_for_read(self, BlockFile* file) noexcept nogil
