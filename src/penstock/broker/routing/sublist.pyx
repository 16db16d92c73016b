"""Sublist: the subscriptions of one account by subject. Clients, streams and services stand in it alike.

A node per token; `*` and `>` have their own branches. PubAckWriter are cached by subject until any subscription comes or goes.
A removed subscription stays in memory until `free_removed`, which the router calls when nobody walks a result.
"""
import logging

from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from penstock.broker.routing.origin cimport KIND_CLIENT, KIND_SERVICE, ORIGIN_DELIVERY, reaches
from penstock.base.subject cimport filter_is_valid
from penstock.base.xxh64 cimport xxh64

cdef extern from "string.h" nogil:
    void* memchr(const void* data, int byte, size_t size)

log = logging.getLogger("penstock")

cdef enum:
    SLOTS = 2048
    CACHED_MAX = 1024                      # subscribers: to find more costs less than to tell them


cdef inline uint32_t _hash(const uint8_t* token, uint32_t size) noexcept nogil:
    return <uint32_t>xxh64(token, size, 0)


cdef inline Node* _find(Node* node, const uint8_t* token, uint32_t size, uint32_t hash) noexcept nogil:
    cdef uint32_t at
    cdef Node* child
    if node.child_count == 0:
        return NULL
    at = hash & (node.child_capacity - 1)
    while node.children[at] != NULL:
        child = node.children[at]
        if child.hash == hash and child.token_size == size and memcmp(child.token, token, size) == 0:
            return child
        at = (at + 1) & (node.child_capacity - 1)
    return NULL


cdef inline uint32_t _token_end(const uint8_t* subject, uint32_t size, uint32_t at) noexcept nogil:
    cdef const uint8_t* dot = <const uint8_t*>memchr(subject + at, c".", size - at)
    return size if dot == NULL else <uint32_t>(dot - subject)


cdef inline bint _has_empty_token(const uint8_t* subject, uint32_t size) noexcept nogil:
    """Such a subject matches no subscription."""
    cdef uint32_t n
    cdef uint8_t found = 0
    if size == 0 or subject[0] == c"." or subject[size - 1] == c".":
        return True
    for n in range(1, size):               # to the end: so the compiler compares many at once
        found |= (subject[n] == c".") & (subject[n - 1] == c".")
    return found


cdef Node* _new_node(Node* parent, const uint8_t* token, uint32_t size, uint32_t hash) except NULL:
    cdef Node* node = <Node*>calloc(1, sizeof(Node) + size)
    if node == NULL:
        raise MemoryError
    node.parent = parent
    node.token = <uint8_t*>node + sizeof(Node)
    memcpy(node.token, token, size)
    node.token_size = size
    node.hash = hash
    return node


cdef void _free_tree(Node* node) noexcept:
    cdef uint32_t n, m
    for n in range(node.child_capacity):
        if node.children[n] != NULL:
            _free_tree(node.children[n])
    if node.star != NULL:
        _free_tree(node.star)
    if node.tail != NULL:
        _free_tree(node.tail)
    for n in range(node.plain_count):
        free(node.plain[n])
    for n in range(node.group_count):
        for m in range(node.groups[n].count):
            free(node.groups[n].members[m])
        free(node.groups[n].members)
        free(node.groups[n].name)
    free(node.children)
    free(node.plain)
    free(node.groups)
    free(node)


cdef class Sublist:
    """Subscriptions by subject."""

    def __cinit__(self, bint is_cached=True):
        self.root = <Node*>calloc(1, sizeof(Node))
        self.slots = <Slot*>calloc(SLOTS, sizeof(Slot))
        if self.root == NULL or self.slots == NULL:
            raise MemoryError
        self.is_cached = is_cached
        self.generation = 1
        self.keep = set()

    def __dealloc__(self):
        cdef int n
        if self.root != NULL:
            _free_tree(self.root)
        self.free_removed()
        if self.slots != NULL:
            for n in range(SLOTS):
                free(self.slots[n].subject)
                free(self.slots[n].result.subs)
                free(self.slots[n].result.group_ends)
        free(self.slots)
        free(self.scratch.subs)
        free(self.scratch.group_ends)
        free(self.found)
        free(self.places)

    # In and out.

    cdef Node* child(self, Node* node, const uint8_t* token, uint32_t size) except NULL:
        """The node of a token below `node`, made when it is not there."""
        cdef uint32_t hash, at, n, capacity
        cdef Node** grown
        cdef Node* found
        if size == 1 and token[0] == c"*":
            if node.star == NULL:
                node.star = _new_node(node, token, 1, 0)
            return node.star
        if size == 1 and token[0] == c">":
            if node.tail == NULL:
                node.tail = _new_node(node, token, 1, 0)
            return node.tail
        hash = _hash(token, size)
        found = _find(node, token, size, hash)
        if found != NULL:
            return found
        if (node.child_count + 1) * 4 > node.child_capacity * 3:
            capacity = max(node.child_capacity * 2, 2)
            grown = <Node**>calloc(capacity, sizeof(Node*))
            if grown == NULL:
                raise MemoryError
            for n in range(node.child_capacity):
                if node.children[n] != NULL:
                    at = node.children[n].hash & (capacity - 1)
                    while grown[at] != NULL:
                        at = (at + 1) & (capacity - 1)
                    grown[at] = node.children[n]
            free(node.children)
            node.children = grown
            node.child_capacity = capacity
        found = _new_node(node, token, size, hash)
        at = hash & (node.child_capacity - 1)
        while node.children[at] != NULL:
            at = (at + 1) & (node.child_capacity - 1)
        node.children[at] = found
        node.child_count += 1
        return found

    cdef Sub* insert(self, int kind, void* target, const uint8_t* subject, uint32_t subject_size, const uint8_t* queue,
                     uint32_t queue_size, const uint8_t* sid, uint32_t sid_size) except NULL:
        """Add a subscription; `subject` is valid. It is the caller's until `remove`."""
        cdef Sub* sub
        cdef Node* node = self.root
        cdef Group* group = NULL
        cdef uint32_t at = 0, end, n, hash
        cdef void* grown
        sub = <Sub*>calloc(1, sizeof(Sub) + subject_size + queue_size + sid_size)
        if sub == NULL:
            raise MemoryError
        sub.kind = kind
        sub.target = target
        sub.subject = <uint8_t*>sub + sizeof(Sub)
        memcpy(sub.subject, subject, subject_size)
        sub.subject_size = subject_size
        sub.queue = sub.subject + subject_size
        sub.queue_size = queue_size
        if queue_size:
            memcpy(sub.queue, queue, queue_size)
        sub.sid = sub.queue + queue_size
        sub.sid_size = sid_size
        if sid_size:
            memcpy(sub.sid, sid, sid_size)
        try:
            while True:
                end = _token_end(subject, subject_size, at)
                node = self.child(node, subject + at, end - at)
                if end >= subject_size:
                    break
                at = end + 1
            sub.node = node
            if queue_size == 0:
                if node.plain_count == node.plain_capacity:
                    grown = realloc(node.plain, max(node.plain_capacity * 2, 1) * sizeof(Sub*))
                    if grown == NULL:
                        raise MemoryError
                    node.plain = <Sub**>grown
                    node.plain_capacity = max(node.plain_capacity * 2, 1)
                sub.at = node.plain_count
                node.plain[node.plain_count] = sub
                node.plain_count += 1
            else:
                hash = _hash(queue, queue_size)
                for n in range(node.group_count):
                    if (node.groups[n].hash == hash and node.groups[n].name_size == queue_size
                            and memcmp(node.groups[n].name, queue, queue_size) == 0):
                        group = &node.groups[n]
                        break
                if group == NULL:
                    grown = realloc(node.groups, (node.group_count + 1) * sizeof(Group))
                    if grown == NULL:
                        raise MemoryError
                    node.groups = <Group*>grown
                    group = &node.groups[node.group_count]
                    memset(group, 0, sizeof(Group))
                    group.name = <uint8_t*>malloc(queue_size)
                    if group.name == NULL:
                        raise MemoryError
                    memcpy(group.name, queue, queue_size)
                    group.name_size = queue_size
                    group.hash = hash
                    node.group_count += 1
                if group.count == group.capacity:
                    grown = realloc(group.members, max(group.capacity * 2, 1) * sizeof(Sub*))
                    if grown == NULL:
                        raise MemoryError
                    group.members = <Sub**>grown
                    group.capacity = max(group.capacity * 2, 1)
                sub.at = group.count
                group.members[group.count] = sub
                group.count += 1
        except MemoryError:
            free(sub)
            raise
        self.generation += 1
        self.count += 1
        self.inserts += 1
        if self.watched is not None:
            self.notify_watchers(subject, subject_size)
        return sub

    cdef void remove(self, Sub* sub) noexcept:
        """Take a subscription out; its memory goes with the next `free_removed`."""
        cdef Node* node = sub.node
        cdef Group* group
        cdef uint32_t n, hash
        if sub.is_dead:
            return
        if sub.queue_size == 0:
            node.plain_count -= 1
            node.plain[sub.at] = node.plain[node.plain_count]
            node.plain[sub.at].at = sub.at
        else:
            hash = _hash(sub.queue, sub.queue_size)
            for n in range(node.group_count):
                group = &node.groups[n]
                if group.hash == hash and group.name_size == sub.queue_size and memcmp(group.name, sub.queue, sub.queue_size) == 0:
                    group.count -= 1
                    group.members[sub.at] = group.members[group.count]
                    group.members[sub.at].at = sub.at
                    if group.count == 0:
                        free(group.members)
                        free(group.name)
                        node.group_count -= 1
                        node.groups[n] = node.groups[node.group_count]
                    break
        sub.is_dead = True
        sub.node = NULL
        sub.next_dead = self.dead
        self.dead = sub
        self.generation += 1
        self.count -= 1
        self.removes += 1
        self.prune(node)
        if self.watched is not None:
            self.notify_watchers(sub.subject, sub.subject_size)

    cdef void prune(self, Node* node) noexcept:
        """Free the nodes that nothing is left below."""
        cdef Node* parent
        cdef uint32_t at, hole, home, mask
        while node.parent != NULL and not (node.plain_count or node.group_count or node.child_count or node.star != NULL
                                           or node.tail != NULL):
            parent = node.parent
            if parent.star == node:
                parent.star = NULL
            elif parent.tail == node:
                parent.tail = NULL
            else:
                mask = parent.child_capacity - 1
                at = node.hash & mask
                while parent.children[at] != node:
                    at = (at + 1) & mask
                parent.children[at] = NULL
                parent.child_count -= 1
                # Those behind it move up, so that a search does not stop at the hole.
                hole = at
                at = (at + 1) & mask
                while parent.children[at] != NULL:
                    home = parent.children[at].hash & mask
                    if ((at - home) & mask) >= ((at - hole) & mask):
                        parent.children[hole] = parent.children[at]
                        parent.children[at] = NULL
                        hole = at
                    at = (at + 1) & mask
                if parent.child_count == 0:
                    free(parent.children)
                    parent.children = NULL
                    parent.child_capacity = 0
            free(node.children)
            free(node.plain)
            free(node.groups)
            free(node)
            node = parent

    cdef void free_removed(self) noexcept:
        """Free what was removed. Nobody may hold a result."""
        cdef Sub* sub
        while self.dead != NULL:
            sub = self.dead
            self.dead = sub.next_dead
            free(sub)

    # Watchers.

    def watch(self, bytes subject not None, callback not None):
        """Call back when a subscription to exactly this subject comes or goes."""
        if self.watched is None:
            self.watched = {}
        self.watched.setdefault(subject, []).append(callback)

    def unwatch(self, bytes subject not None, callback not None):
        """Undo `watch`; a second time is harmless."""
        callbacks = self.watched.get(subject, []) if self.watched is not None else []
        if callback in callbacks:
            callbacks.remove(callback)
            if not callbacks:
                del self.watched[subject]
                if not self.watched:
                    self.watched = None

    cdef void notify_watchers(self, const uint8_t* subject, uint32_t size) noexcept:
        for callback in tuple(self.watched.get(subject[:size], ())):
            try:
                callback()
            except Exception:              # noqa: it must not fail the client that subscribes
                log.exception("a watcher of %r failed", subject[:size])

    cdef bint has_literal(self, bytes subject, bytes queue) noexcept:
        """Whether somebody whom deliveries reach has subscribed to exactly this subject, in this queue group or in none."""
        cdef const uint8_t* text = <const uint8_t*>(<char*>subject)
        cdef uint32_t size = <uint32_t>len(subject), at = 0, end, n, m
        cdef Node* node = self.root
        while True:
            end = _token_end(text, size, at)
            node = _find(node, text + at, end - at, _hash(text + at, end - at))
            if node == NULL:
                return False
            if end >= size:
                break
            at = end + 1
        if not queue:
            for n in range(node.plain_count):
                if reaches(ORIGIN_DELIVERY, node.plain[n].kind):
                    return True
            return False
        for n in range(node.group_count):
            if (node.groups[n].name_size == <uint32_t>len(queue)
                    and memcmp(node.groups[n].name, <char*>queue, node.groups[n].name_size) == 0):
                for m in range(node.groups[n].count):
                    if reaches(ORIGIN_DELIVERY, node.groups[n].members[m].kind):
                        return True
                return False
        return False

    def has_exactly(self, bytes subject not None, bytes queue=b""):
        """The same for Python."""
        return self.has_literal(subject, queue)

    # Matching.

    cdef int take(self, Node* node, MatchResult* result) except -1:
        """Everyone at a node."""
        cdef uint32_t n, capacity
        cdef void* grown
        if node.plain_count:
            if result.plain_count + node.plain_count > result.capacity:
                capacity = max(result.capacity * 2, result.plain_count + node.plain_count)
                grown = realloc(result.subs, capacity * sizeof(Sub*))
                if grown == NULL:
                    raise MemoryError
                result.subs = <Sub**>grown
                result.capacity = capacity
            memcpy(result.subs + result.plain_count, node.plain, node.plain_count * sizeof(Sub*))
            result.plain_count += node.plain_count
        for n in range(node.group_count):
            if self.found_count == self.found_capacity:
                grown = realloc(self.found, (self.found_capacity * 2 + 8) * sizeof(Group*))
                if grown == NULL:
                    raise MemoryError
                self.found = <Group**>grown
                self.found_capacity = self.found_capacity * 2 + 8
            self.found[self.found_count] = &node.groups[n]
            self.found_count += 1
        return 0

    cdef int walk(self, Node* node, const uint8_t* subject, uint32_t size, uint32_t at, MatchResult* result) except -1:
        """Collect from `node` on; the subject's next token begins at `at`. A node is met once: its way there is its name."""
        cdef uint32_t end
        cdef Node* child
        while True:
            if node.tail != NULL:
                self.take(node.tail, result)
            end = _token_end(subject, size, at)
            child = NULL
            if node.child_count:
                child = _find(node, subject + at, end - at, _hash(subject + at, end - at))
            if end >= size:                # the order is nats-server's
                if child != NULL:
                    self.take(child, result)
                if node.star != NULL:
                    self.take(node.star, result)
                return 0
            if node.star != NULL:
                self.walk(node.star, subject, size, end + 1, result)
            if child == NULL:
                return 0
            node = child
            at = end + 1

    cdef MatchResult* match(self, const uint8_t* subject, uint32_t size, bint cached) except NULL:
        """The subscriptions that match `subject`. The result holds until the next match or change."""
        cdef Slot* slot = NULL
        cdef MatchResult* result = &self.scratch
        cdef uint64_t hash
        cdef MatchResult swapped
        cdef void* grown
        self.matches += 1
        if cached and self.is_cached:
            hash = xxh64(subject, size, 0)
            slot = &self.slots[hash & (SLOTS - 1)]
            if (slot.generation == self.generation and slot.hash == hash and slot.subject_size == size
                    and memcmp(slot.subject, subject, size) == 0):
                self.cache_hits += 1
                return &slot.result
            slot.generation = 0            # not valid until it is whole
            if slot.subject_size != size or slot.subject == NULL:
                grown = realloc(slot.subject, max(size, 1))
                if grown == NULL:
                    raise MemoryError
                slot.subject = <uint8_t*>grown
            memcpy(slot.subject, subject, size)
            slot.subject_size = size
            slot.hash = hash
            result = &slot.result
        result.plain_count = 0
        result.group_count = 0
        self.found_count = 0
        if self.is_near(subject, size):
            self.walk(self.near, subject, size, self.near_size, result)
        elif not _has_empty_token(subject, size):
            self.walk(self.root, subject, size, 0, result)
            if self.near_generation == self.generation:      # nobody comes or goes just now
                self.go_near(subject, size)
            else:
                self.near_generation = self.generation
                self.near_size = 0
        if self.found_count:
            self.merge_groups(result)
        if slot != NULL:
            if result.capacity > CACHED_MAX:
                swapped = self.scratch
                self.scratch = slot.result
                free(swapped.subs)
                free(swapped.group_ends)
                memset(&slot.result, 0, sizeof(MatchResult))
                return &self.scratch
            slot.generation = self.generation
        return result

    # Answers go to subjects that differ in their last token, thousands in a row: each would be led from the root to one node.

    cdef bint is_near(self, const uint8_t* subject, uint32_t size) noexcept:
        """Whether `subject` is the remembered one but for its last token."""
        return (self.near_size and self.near_generation == self.generation and size > self.near_size
                and memcmp(subject, self.near_prefix, self.near_size) == 0
                and memchr(subject + self.near_size, c".", size - self.near_size) == NULL)

    cdef Sub* only_near(self, const uint8_t* subject, uint32_t size) noexcept:
        """The subscription that matches `subject`, if there is one only, whatever the last token is; else NULL: call `match`.
        Whoever takes its word counts the match."""
        cdef Node* node
        if not self.is_near(subject, size):
            return NULL
        node = self.near.star
        if (node == NULL or node.plain_count != 1 or node.group_count or self.near.child_count
                or self.near.tail != NULL):
            return NULL
        return node.plain[0]

    cdef void go_near(self, const uint8_t* subject, uint32_t size) noexcept:
        """Remember the way to the last token, if there is but one."""
        cdef Node* node = self.root
        cdef uint32_t at = 0, end = _token_end(subject, size, 0)
        self.near_size = 0
        while end < size:
            if node.tail != NULL or node.star != NULL or node.child_count == 0:
                return
            node = _find(node, subject + at, end - at, _hash(subject + at, end - at))
            if node == NULL:
                return
            at = end + 1
            end = _token_end(subject, size, at)
        if at <= NEAR_MAX:
            memcpy(self.near_prefix, subject, at)
            self.near_size = at
            self.near = node

    cdef int merge_groups(self, MatchResult* result) except -1:
        """The found groups behind the plain ones: a queue group is one group, whichever of its members' subjects match."""
        cdef uint32_t n, at, end, mask, total = result.plain_count, capacity = 8
        cdef Group* group
        cdef Group* other
        cdef void* grown
        for n in range(self.found_count):
            total += self.found[n].count
        if total > result.capacity:
            grown = realloc(result.subs, total * sizeof(Sub*))
            if grown == NULL:
                raise MemoryError
            result.subs = <Sub**>grown
            result.capacity = total
        if self.found_count > result.group_capacity:
            grown = realloc(result.group_ends, self.found_count * sizeof(uint32_t))
            if grown == NULL:
                raise MemoryError
            result.group_ends = <uint32_t*>grown
            result.group_capacity = self.found_count
        while capacity < self.found_count * 2:
            capacity *= 2
        if capacity > self.place_capacity:
            grown = realloc(self.places, capacity * sizeof(uint32_t))
            if grown == NULL:
                raise MemoryError
            self.places = <uint32_t*>grown
            self.place_capacity = capacity
        memset(self.places, 0, capacity * sizeof(uint32_t))
        mask = capacity - 1
        # Those of one name are chained: the first one's place in the table, the next ones' in `next`.
        for n in range(self.found_count):
            group = self.found[n]
            group.next = NULL
            at = group.hash & mask
            while self.places[at]:
                other = self.found[self.places[at] - 1]
                if (other.hash == group.hash and other.name_size == group.name_size
                        and memcmp(other.name, group.name, group.name_size) == 0):
                    other.last.next = group
                    other.last = group
                    self.found[n] = NULL
                    break
                at = (at + 1) & mask
            else:
                self.places[at] = n + 1
                group.last = group
        end = result.plain_count
        for n in range(self.found_count):
            group = self.found[n]
            if group == NULL:
                continue
            while group != NULL:
                memcpy(result.subs + end, group.members, group.count * sizeof(Sub*))
                end += group.count
                group = group.next
            result.group_ends[result.group_count] = end
            result.group_count += 1
        return 0

    # Doors.

    def add_service(self, object service not None, bytes subject not None, bytes queue=b""):
        """Subscribe `service` to a subject or filter: a token for `remove_service`. The router calls service(...)."""
        cdef Sub* sub
        if not filter_is_valid(<const uint8_t*>(<char*>subject), len(subject)):
            raise ValueError(f"subject {subject!r} cannot be subscribed to")
        sub = self.insert(KIND_SERVICE, <void*>service, <const uint8_t*>(<char*>subject), len(subject),
                          <const uint8_t*>(<char*>queue), len(queue), NULL, 0)
        token = (<size_t>sub, service)
        self.keep.add(token)
        return token

    def remove_service(self, object token not None):
        """Undo `add_service`; a second time is harmless."""
        cdef size_t at
        if token in self.keep:
            at = token[0]
            self.remove(<Sub*>at)
            self.keep.discard(token)

    def subscribers(self, bytes subject not None, bint cached=True):
        """(plain, groups): the services and other subscribers of a subject; for tests and listings."""
        cdef MatchResult* result = self.match(<const uint8_t*>(<char*>subject), len(subject), cached)
        cdef uint32_t n, start = result.plain_count
        plain = [<object>result.subs[n].target for n in range(result.plain_count)]
        groups = []
        for n in range(result.group_count):
            groups.append([<object>result.subs[m].target for m in range(start, result.group_ends[n])])
            start = result.group_ends[n]
        return plain, groups

    def subscriber_count(self, bytes subject not None):
        """How many subscriptions match, every member of a group counted."""
        cdef MatchResult* result = self.match(<const uint8_t*>(<char*>subject), len(subject), False)
        return result.group_ends[result.group_count - 1] if result.group_count else result.plain_count

    def cached_count(self):
        """How many answers are cached and still hold."""
        cdef int n
        return sum(1 for n in range(SLOTS) if self.slots[n].generation == self.generation)

    def fanout(self):
        """(answers, subscribers, most) over the cached answers that still hold."""
        cdef int n
        cdef MatchResult* result
        cdef uint64_t answers = 0, subscribers = 0, most = 0, count
        for n in range(SLOTS):
            if self.slots[n].generation == self.generation:
                result = &self.slots[n].result
                count = result.group_ends[result.group_count - 1] if result.group_count else result.plain_count
                answers += 1
                subscribers += count
                most = max(most, count)
        return answers, subscribers, most

    def listing(self, bint has_clients=True):
        """(subject, queue, sid, msgs, max_msgs, kind, target) of every subscription, or of those that are no clients'."""
        found = []
        _list(self.root, found, has_clients)
        return found


cdef object _list_sub(Sub* sub):
    return (sub.subject[:sub.subject_size], sub.queue[:sub.queue_size], sub.sid[:sub.sid_size], sub.msgs, sub.max_msgs,
            sub.kind, <object>sub.target)


cdef int _list(Node* node, list found, bint has_clients) except -1:
    cdef uint32_t n, m
    for n in range(node.plain_count):
        if has_clients or node.plain[n].kind != KIND_CLIENT:
            found.append(_list_sub(node.plain[n]))
    for n in range(node.group_count):
        for m in range(node.groups[n].count):
            if has_clients or node.groups[n].members[m].kind != KIND_CLIENT:
                found.append(_list_sub(node.groups[n].members[m]))
    for n in range(node.child_capacity):
        if node.children[n] != NULL:
            _list(node.children[n], found, has_clients)
    if node.star != NULL:
        _list(node.star, found, has_clients)
    if node.tail != NULL:
        _list(node.tail, found, has_clients)
    return 0
