"""The block files of a StreamEngine: added, taken up again, read, overwritten and removed as wholes.

What happens per message is in engine.pyx; everything here happens once per block, or once per open.
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from penstock.store.index.index cimport SECTION_OFFSETS, Block, Index
from penstock.store.write.commit_log cimport BlockFile, free_block_file
from penstock.store.write.engine cimport StreamEngine


def place_block(StreamEngine engine, block_id, path, first_seq, base_seq, base_time, salt, size):
    """Add a block that lies on disk, without rows. Blocks come in order."""
    cdef Block* block = engine.index.add_block(block_id, first_seq)
    cdef BlockFile* file = engine.log.new_file(block_id, path, 0)
    file.is_created = True
    file.size = file.submitted = file.written = file.synced = file.committed = size
    block.file = file
    block.last_seq = first_seq - 1
    block.seq_base = first_seq
    block.base.seq = base_seq
    block.base.time = base_time
    block.base.salt = salt
    block.size = size
    block.is_sealed = True


def remove_block(StreamEngine engine, block_id):
    """Forget a block whose rows are all dead; its path."""
    cdef Index index = engine.index
    cdef Py_ssize_t at
    cdef bytes path
    cdef BlockFile* file
    for at in range(index.block_count):
        if index.blocks[at].id == block_id:
            file = index.blocks[at].file
            path = file.path
            assert file != engine.file and not file.is_listed
            index.blocks[at].file = NULL
            index.drop_block(at)
            with nogil:                    # its image goes back to the system: that takes a millisecond
                free_block_file(file)
            return path
    raise KeyError(block_id)


def dead_blocks(StreamEngine engine):
    """Ids of sealed blocks that hold nothing alive and whose bytes are all committed to disk."""
    cdef Py_ssize_t at
    cdef Block* block
    cdef Index index = engine.index
    found = []
    for at in range(index.block_count):
        block = index.blocks[at]
        if block.is_sealed and block.live == 0 and not block.file.is_listed and block.file.users == 0:
            found.append(block.id)
    return found


def drop_images(StreamEngine engine):
    """Give back the images of sealed blocks whose bytes are all on disk: how many sealed blocks still have theirs."""
    cdef Py_ssize_t at, kept = 0
    cdef Block* block
    for at in range(engine.index.block_count):
        block = engine.index.blocks[at]
        if block.file.image == NULL or not block.is_sealed:
            continue
        if not block.file.is_listed:
            engine.log.drop_image(block.file)
        elif not engine.log.drop_written(block.file):
            kept += 1
    return kept


def parts_of(StreamEngine engine, block_id, spans):
    """The bytes of (offset, size) spans of a block that is in memory, joined."""
    cdef Block* block = engine.index.find_block(block_id)
    cdef uint64_t start, size
    parts = []
    for start, size in spans:
        assert block.file.image != NULL and start + size <= block.size
        parts.append(PyBytes_FromStringAndSize(<char*>block.file.image + start, size))
    return b"".join(parts)


def overwrite(StreamEngine engine, uint64_t seq, random):
    """Secure erase, in memory and on disk: erased bit, random bytes for headers and payload, a valid checksum.

    The message is deleted already. Returns (descriptor, offset, bytes) to be written through the disk, or None when there is no
    record of it.
    """
    from penstock.format.record import RecordError, decode, encode_message
    cdef Py_ssize_t at = engine.index.block_of(seq)
    cdef Block* block
    cdef int64_t row
    cdef uint64_t start, stop
    cdef uint32_t* offsets
    cdef const uint8_t* found
    cdef bytes raw, new
    if at < 0:
        return None
    block = engine.index.blocks[at]
    row = engine.index.row_of(block, seq)
    if row < 0:
        return None
    offsets = engine.index.section(block, SECTION_OFFSETS)
    start = offsets[row]
    stop = offsets[row + 1] if row + 1 < block.count else block.size
    found = engine.bytes_at(block, start, stop)
    raw = found[:stop - start]
    bases = {"base_seq": block.base.seq, "base_time": block.base.time, "salt": block.base.salt}
    try:
        old = decode(raw, 0, **bases)
    except RecordError:
        return None                        # damaged: what is left of it is not to be read either
    if old["erased"]:
        return None
    headers = old["headers"]
    new = encode_message(
        old["seq"], old["time"], old["subject"], None if headers is None else random(len(headers)),
        random(len(old["payload"])), erased=True, has_ttl=old["has_ttl"], has_msg_id=old["has_msg_id"], **bases)
    assert len(new) == old["stop"], "an erased record keeps its size"
    if block.file.image != NULL:
        memcpy(block.file.image + start, <const char*>new, len(new))
    if row == block.count - 1 and <uint64_t>(start + len(new)) == block.size:
        memcpy(&block.last_checksum, <const char*>new + len(new) - 8, 8)
    return (block.id, start, new) if block.file.is_created else (block.id, -1, new)


def descriptor(StreamEngine engine, block_id):
    """An open descriptor of a block's file."""
    cdef Block* block = engine.index.find_block(block_id)
    cdef int fd = engine.log.open_for_read(block.file)
    if fd < 0:
        raise OSError(-fd, "cannot open", (<bytes>block.file.path).decode())
    return fd


def idle_descriptors(StreamEngine engine, Py_ssize_t most):
    """Close descriptors of sealed blocks beyond the newest `most`."""
    cdef Py_ssize_t at
    cdef Block* block
    cdef Py_ssize_t open_count = 0
    at = engine.index.block_count - 1
    while at >= 0:
        block = engine.index.blocks[at]
        if block.file.fd >= 0 and block.is_sealed and not block.file.is_listed and block.file.users == 0:
            open_count += 1
            if open_count > most:
                engine.log.disk.close_file(block.file.fd)
                block.file.fd = -1
        at -= 1
    engine.log.opened = <uint32_t>min(open_count, most)


def cut_rows(StreamEngine engine, uint64_t seq):
    """In memory: forget every row above `seq` and the blocks that only held such."""
    cdef Index index = engine.index
    cdef Block* block
    index.change_start = index.change_stop = 0
    index.rollback(seq)
    index.floor = min(index.floor, seq + 1)
    index.first_seq = index.floor
    index.find_first()
    while index.block_count and index.blocks[index.block_count - 1].first_seq > seq:
        block = index.blocks[index.block_count - 1]
        engine.log.unlist(block.file)
        free_block_file(block.file)
        index.drop_block(index.block_count - 1)
    engine.log.start_at(seq)


def unlist(StreamEngine engine, block_id):
    """A block in memory has nothing to commit."""
    engine.log.unlist(engine.index.find_block(block_id).file)


def continue_block(StreamEngine engine, const unsigned char[::1] data not None, uint64_t capacity, spans):
    """Make the last block the active one again, with its bytes in an image."""
    cdef Index index = engine.index
    cdef Block* block = index.blocks[index.block_count - 1]
    cdef BlockFile* file
    cdef BlockFile* old = block.file
    file = engine.log.new_file(block.id, old.path, max(capacity, <uint64_t>data.shape[0]))
    memcpy(file.image, &data[0], data.shape[0])
    file.is_created = True
    file.size = file.submitted = file.written = file.synced = file.committed = data.shape[0]
    free_block_file(old)
    block.file = file
    block.is_sealed = False
    block.is_evictable = False
    engine.active = block
    engine.file = file
    engine.spans = list(spans)
    engine.log.start_file(file)


def last_position(StreamEngine engine):
    """(block id, bytes) where the stream's records end."""
    cdef Index index = engine.index
    if index.block_count == 0:
        return 0, 0
    return index.blocks[index.block_count - 1].id, index.blocks[index.block_count - 1].size


def set_size(StreamEngine engine, block_id, uint64_t size):
    """A reader has seen more of a block's bytes."""
    cdef Block* block = engine.index.find_block(block_id)
    block.size = size
    block.file.size = block.file.submitted = block.file.written = block.file.synced = size


def sealed_block_of(StreamEngine engine, uint64_t seq):
    """The id of the sealed block that holds a sequence; 0 when it is in the active one."""
    cdef Py_ssize_t at = engine.index.block_of(seq)
    if at < 0 or not engine.index.blocks[at].is_sealed:
        return 0
    return engine.index.blocks[at].id
