# What a stream holds: rows per block, totals per subject, counters. Rules: ARCHITECTURE.md, "Index".
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from penstock.store.index.block_names cimport BlockNames
from penstock.store.write.commit_log cimport BlockFile
from penstock.format.record cimport Base
from penstock.base.subject cimport Filters
from penstock.base.subject_dictionary cimport SubjectDictionary

cdef enum:
    SECTION_OFFSETS = 0
    SECTION_SIZES = 1
    SECTION_SUBJECTS = 2
    SECTION_SEQS = 3
    REUSED_MAX = 1024

cdef extern from *:
    """
    #define STALE 0x8000000000000000ULL
    """
    const uint64_t STALE                   # in a subject's first or last sequence: only a bound, to be made exact when asked

cdef struct Block:
    uint64_t id
    Base base
    uint64_t first_seq                     # the first sequence it may hold
    uint64_t last_seq                      # the highest it was given, skips included; first_seq - 1: none
    uint64_t seq_base                      # sequence of row 0
    uint64_t size                          # bytes of the file that count
    uint64_t bytes                         # of all rows, by the reference's formula
    uint64_t live_bytes
    int64_t time_min
    int64_t time_max
    uint64_t target_low                    # hull of the sequences that its delete, erase and floor records speak of
    uint64_t target_high
    uint64_t last_checksum
    uint32_t count                         # rows: message records
    uint32_t live
    uint32_t capacity
    uint32_t used                          # when its arrays were last wanted
    bint is_dense                          # row n has sequence seq_base + n
    bint is_sealed
    bint is_evictable                      # the arrays can be had again
    bint is_doubted                        # its summary does not tell what the block holds: they are had from the block
    uint32_t* arrays[4]                    # offsets, sizes, subjects, seqs; NULL: not in memory
    uint64_t* dead                         # a bit per row; NULL: none
    BlockFile* file

cdef struct SubjectStats:
    uint64_t total                         # live messages
    uint64_t first                         # lowest live sequence; bit 63: only a lower bound
    uint64_t last                          # highest live sequence; bit 63: only an upper bound
    uint32_t named_at                      # where it is listed in `names`, and …
    uint32_t named_in                      # … in which of its blocks

cdef struct Change:                        # what a roll back would undo
    uint64_t start                         # a row, or the floor before …
    uint64_t stop                          # … and after
    uint64_t position                      # the log's, once its record is appended; 0 before
    uint8_t reason
    bint is_floor

cdef class Matcher:
    cdef Filters filters
    cdef uint32_t number                   # of the one literal subject, or NO_NUMBER
    cdef uint64_t* known
    cdef uint64_t* wanted
    cdef Py_ssize_t words
    cdef uint64_t version
    cdef bint is_filled
    cdef int fit(self, Index index) except -1
    cdef bint test(self, Index index, uint32_t number) noexcept nogil
    cdef int fill(self, Index index) except -1
    cdef int refill(self, Index index) except -1
    cdef uint32_t filled_stop              # numbers below it are known …
    cdef uint64_t reused_seen              # … as of this many reuses of numbers

cdef class Watcher:                        # who wants to know of rows that go
    cdef int row_gone(self, uint64_t seq, uint32_t number) except -1
    cdef int rows_gone(self, uint64_t start, uint64_t stop) except -1    # all of them in [start, stop), told at once
    cdef void rolled_back(self, uint64_t seq) noexcept
    cdef uint64_t watched_from(self) noexcept   # nothing below it is of interest

cdef class Index:
    cdef list watchers
    cdef uint64_t watched_from             # at or below what any of them wants to know of
    cdef Block** blocks
    cdef uint64_t* firsts                  # the first_seq of each, side by side to be searched
    cdef readonly Py_ssize_t block_count
    cdef Py_ssize_t block_capacity
    cdef SubjectDictionary tree
    cdef SubjectStats* stats               # per subject number
    cdef BlockNames names                  # of the active block
    cdef uint32_t number_capacity
    cdef readonly uint64_t version         # rises when a number changes its subject
    cdef readonly uint32_t subject_count   # with live messages
    cdef uint32_t* unused_numbers          # numbers without live messages
    cdef Py_ssize_t unused_count
    cdef Py_ssize_t unused_capacity
    cdef readonly uint64_t messages
    cdef readonly uint64_t bytes
    cdef readonly uint64_t floor           # everything below is gone
    cdef readonly uint64_t first_seq       # lowest live, or last_seq + 1
    cdef readonly uint64_t last_seq
    cdef public object loader              # loader(block_id, section, from the block itself) -> bytes
    cdef uint64_t resident                 # bytes of evictable arrays in memory
    cdef public uint64_t resident_max
    cdef uint32_t tick
    cdef Change* changes
    cdef Py_ssize_t change_start
    cdef Py_ssize_t change_stop
    cdef Py_ssize_t change_capacity
    cdef bint in_memory
    cdef uint32_t* scratch
    cdef uint32_t reused[1024]             # the last numbers that were given out again
    cdef uint64_t reused_count
    cdef readonly uint64_t gil_yields         # how often others could have the GIL in the middle of something long
    cdef public bint emptied               # some block has lost its last live row

    cdef Block* find_block(self, uint64_t block_id) except NULL
    cdef Block* add_block(self, uint64_t block_id, uint64_t first_seq) except NULL
    cdef void drop_block(self, Py_ssize_t at) noexcept
    cdef int grow_rows(self, Block* block, uint32_t rows) except -1
    cdef int add_row(self, Block* block, uint64_t seq, int64_t time, uint32_t offset, uint32_t size,
                     uint32_t number) except -1
    cdef int count_row(self, uint64_t seq, uint32_t size, uint32_t number) except -1
    cdef uint32_t number_of(self, const uint8_t* name, Py_ssize_t size) except? 0xffffffff
    cdef int fit_numbers(self) except -1
    cdef int reserve_numbers(self, uint32_t capacity) except -1
    cdef uint32_t* zeros(self) except NULL
    cdef uint32_t* section(self, Block* block, int which) except? NULL
    cdef bint load_rows(self, Block* block, int which) except -1
    cdef object rows_fault(self, Block* block, int which, const uint32_t* rows, bint is_told)
    cdef bint doubt(self, Block* block) except -1
    cdef Py_ssize_t block_of(self, uint64_t seq) noexcept nogil
    cdef int64_t row_of(self, Block* block, uint64_t seq) except -2
    cdef int64_t row_from(self, Block* block, uint64_t seq) except -2
    cdef uint64_t seq_of(self, Block* block, uint32_t row) except? 0
    cdef bint is_dead(self, Block* block, uint32_t row) noexcept nogil
    cdef int set_dead(self, Block* block, uint32_t row) except -1
    cdef int drop_row(self, Block* block, uint32_t row, uint64_t seq, uint32_t number) except -1
    cdef int restore_row(self, Block* block, uint32_t row, uint64_t seq) except -1
    cdef bint remove(self, uint64_t seq, uint8_t reason) except -1
    cdef bint remove_near(self, uint64_t seq, uint8_t reason, Py_ssize_t at, uint32_t number) except -1
    cdef void hint_stats(self, uint32_t number) noexcept nogil
    cdef Py_ssize_t hint_first(self, uint32_t number, uint64_t limit) noexcept nogil
    cdef int raise_floor(self, uint64_t floor, uint8_t reason) except -1
    cdef int drop_below(self, uint64_t seq, uint64_t floor) except -1
    cdef int keep_from(self, uint64_t floor) except -1
    cdef int reserve_unused(self, Py_ssize_t count) except -1
    cdef int yield_gil(self) except -1
    cdef int note(self, uint64_t start, uint64_t stop, uint8_t reason, bint is_floor) except -1
    cdef int find_first(self) except -1
    cdef uint64_t first_of(self, uint32_t number) except? 0
    cdef uint64_t last_of(self, uint32_t number) except? 0
    cdef uint64_t next_live(self, uint64_t start, uint64_t stop, Matcher matcher) except? 0
    cdef uint64_t prev_live(self, uint64_t start, uint64_t low, Matcher matcher) except? 0
    cdef uint64_t count_between(self, uint64_t start, uint64_t stop, Matcher matcher) except? 0xffffffffffffffff
    cdef int rollback(self, uint64_t seq) except -1
    cdef int drop_committed_changes(self, uint64_t position) except -1
    cdef int release(self) except -1
    cdef int tell_gone(self, uint64_t seq, uint32_t number) except -1
    cdef int tell_all_gone(self, uint64_t start, uint64_t stop) except -1
    cdef int watch(self, Watcher watcher) except -1
    cdef int unwatch(self, Watcher watcher) except -1
