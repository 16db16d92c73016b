# Sublist: finds the subscriptions that match a subject: a tree of tokens with subscriptions at its nodes, and a cache of results.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef enum:
    NEAR_MAX = 128

cdef struct Group:                         # a queue group at one node
    uint8_t* name
    uint32_t name_size
    uint32_t hash
    uint32_t count
    uint32_t capacity
    Sub** members
    Group* next                            # of its name, in the match under way …
    Group* last                            # … and the last of those

cdef struct Node:
    Node* parent
    uint8_t* token
    uint32_t token_size
    uint32_t hash
    Node** children                        # open addressing, a power of two; NULL: none
    uint32_t child_count
    uint32_t child_capacity
    Node* star
    Node* tail
    Sub** plain
    uint32_t plain_count
    uint32_t plain_capacity
    Group* groups
    uint32_t group_count

cdef struct Sub:
    int kind                               # KIND_… of origin.pxd
    bint is_dead                           # removed; freed once nobody walks a result
    bint is_checked                        # the client's permissions say something about each delivery
    void* target                           # Client, Ingest, a callable or a Subscriber; its owner removes the subscription first
    uint8_t* subject                       # subject, queue and sid lie one after the other
    uint8_t* queue
    uint8_t* sid
    uint32_t subject_size
    uint32_t queue_size
    uint32_t sid_size
    uint32_t at                            # its place among its node's, or its group's
    int64_t max_msgs                       # 0: no end
    int64_t msgs
    Node* node
    Sub* next_dead

cdef struct MatchResult:
    Sub** subs                             # plain ones first, then group by group
    uint32_t capacity
    uint32_t plain_count
    uint32_t group_count
    uint32_t group_capacity
    uint32_t* group_ends                   # where each group ends in `subs`

cdef struct Slot:
    uint64_t generation
    uint64_t hash
    uint8_t* subject
    uint32_t subject_size
    MatchResult result

cdef class Sublist:
    cdef Node* root
    cdef Slot* slots
    cdef MatchResult scratch
    cdef Sub* dead
    cdef Group** found                     # groups of the match under way
    cdef uint32_t found_count
    cdef uint32_t found_capacity
    cdef uint32_t* places                  # found groups by name, of a result with many: open addressing, 0: empty
    cdef uint32_t place_capacity
    cdef Node* near                        # where the last token of subjects that begin with `near_prefix` is looked up, …
    cdef uint8_t near_prefix[NEAR_MAX]
    cdef uint32_t near_size                # … 0: nothing is remembered, …
    cdef uint64_t near_generation          # … as of this generation
    cdef bint is_cached
    cdef readonly uint64_t generation
    cdef readonly uint64_t count           # subscriptions
    cdef readonly uint64_t inserts
    cdef readonly uint64_t removes
    cdef readonly uint64_t matches
    cdef readonly uint64_t cache_hits
    cdef public uint64_t in_msgs           # of the whole account
    cdef public uint64_t in_bytes
    cdef public uint64_t out_msgs
    cdef public uint64_t out_bytes
    cdef set keep                          # services
    cdef dict watched                      # literal subjects → callbacks for changes of their subscriptions; None: none

    cdef Sub* insert(self, int kind, void* target, const uint8_t* subject, uint32_t subject_size, const uint8_t* queue,
                     uint32_t queue_size, const uint8_t* sid, uint32_t sid_size) except NULL
    cdef void remove(self, Sub* sub) noexcept
    cdef MatchResult* match(self, const uint8_t* subject, uint32_t size, bint cached) except NULL
    cdef void notify_watchers(self, const uint8_t* subject, uint32_t size) noexcept
    cdef bint has_literal(self, bytes subject, bytes queue) noexcept
    cdef void free_removed(self) noexcept
    cdef int walk(self, Node* node, const uint8_t* subject, uint32_t size, uint32_t at, MatchResult* result) except -1
    cdef int take(self, Node* node, MatchResult* result) except -1
    cdef Node* child(self, Node* node, const uint8_t* token, uint32_t size) except NULL
    cdef Sub* only_near(self, const uint8_t* subject, uint32_t size) noexcept
    cdef bint is_near(self, const uint8_t* subject, uint32_t size) noexcept
    cdef void go_near(self, const uint8_t* subject, uint32_t size) noexcept
    cdef int merge_groups(self, MatchResult* result) except -1
    cdef void prune(self, Node* node) noexcept
