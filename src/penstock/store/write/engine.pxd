# One stream's log and index together: append, commit, read. Rules: ARCHITECTURE.md.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from penstock.store.write.batch cimport Batch, Incoming
from penstock.base.clock cimport Clock
from penstock.store.write.dedupe cimport DedupeWindow
from penstock.store.index.index cimport Block, Index, Matcher
from penstock.store.write.committer cimport Committer
from penstock.store.write.commit_log cimport BlockFile, CommitLog
from penstock.store.index.ids_and_expiries cimport IdsAndExpiries
from penstock.store.read.message cimport Message
from penstock.format.record cimport Record

cdef struct Ahead:
    const uint8_t* subject                 # NULL: nothing is known
    uint32_t hash
    uint32_t number                        # most likely
    Py_ssize_t block                       # where its first message is, most likely

cdef struct HashedId:
    const Incoming* item                   # NULL: nothing is known
    uint64_t low
    uint64_t high

cdef class StreamEngine:
    cdef readonly Index index
    cdef readonly CommitLog log
    cdef object store                      # our host: EngineHost in engine.pyi says what we call on it
    cdef public Clock clock                # of the times that come in as `now`; it converts them to the machine's clock
    cdef Matcher accepts                   # the stream's subjects
    cdef Block* active                     # NULL: the next append begins a block
    cdef BlockFile* file
    cdef Ahead ahead[128]                  # what is known of the next messages of a batch: four groups
    cdef HashedId hashed[16]               # the ids of the next messages of a batch
    cdef list spans                        # (offset, size) of the active block's control records
    cdef uint64_t block_size
    cdef int64_t max_msgs
    cdef int64_t max_bytes
    cdef int64_t max_per_subject
    cdef int64_t max_msg_size
    cdef bint discard_new
    cdef bint takes_names                  # of the batch that is being appended
    cdef bint discard_new_per_subject
    cdef public int64_t last_time        # the latest time given to a message: the machine's clock, but never less than before
    cdef readonly int64_t append_ns        # when the last batch was taken
    cdef public int64_t lead_ns            # how far message times were ahead of that, to within `lead_slack_ns`
    cdef int64_t lead_slack_ns
    cdef public uint64_t generation_count  # of forks: a handle from before one refuses to work
    cdef uint8_t* scratch
    cdef Py_ssize_t scratch_size
    cdef readonly uint64_t sealed_count
    cdef public bint is_closed
    cdef public uint32_t open_max          # block files that may be open for reading

    cdef int check(self) except -1
    cdef void fetch_ahead(self, Batch batch, Py_ssize_t n, Py_ssize_t start, Py_ssize_t stop) noexcept
    cdef void fetch_slots(self, Batch batch, Py_ssize_t start, Py_ssize_t stop) noexcept
    cdef void fetch_places(self, Py_ssize_t start, Py_ssize_t stop) noexcept
    cdef void fetch_rows(self, Py_ssize_t start, Py_ssize_t stop) noexcept
    cdef uint32_t look_up(self, Incoming* item, Py_ssize_t n) noexcept
    cdef void hash_ahead(self, Incoming* item, Py_ssize_t n, DedupeWindow ids) noexcept
    cdef int64_t time_for(self, int64_t now) except? -1
    cdef int store_new(self, Incoming* item, Py_ssize_t n, int64_t stamp, int64_t now, DedupeWindow ids,
                       IdsAndExpiries ids_and_expiries) except -1
    cdef int store_one(self, Incoming* item, Py_ssize_t n, int64_t stamp) except -1
    cdef uint8_t* control_space(self, uint64_t seq, int64_t time, uint64_t size) except NULL
    cdef int roll(self, uint64_t first_seq, int64_t time, uint64_t size) except -1
    cdef int enforce(self) except -1
    cdef tuple undo_held(self, told)
    cdef int log_changes(self, int64_t now) except -1
    cdef int log_deletes(self, uint64_t* seqs, Py_ssize_t count, uint8_t reason, int64_t now) except -1
    cdef int log_control(self, uint8_t kind, uint8_t reason, int64_t now, uint64_t value, const uint8_t* ranges,
                         Py_ssize_t size, uint64_t low, uint64_t high) except -1
    cdef const uint8_t* record_at(self, Block* block, uint32_t row, uint64_t seq, Record* record) except NULL
    cdef int row_time(self, Block* block, uint32_t row, int64_t* time) except -1
    cdef const uint8_t* bytes_at(self, Block* block, uint64_t start, uint64_t stop) except NULL
    cdef uint32_t size_of(self, uint64_t seq) except? 0xffffffff
