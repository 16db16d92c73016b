"""XXH64 of any buffer: the door around the inline loop in xxh64.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE


def xxh64_of(const unsigned char[::1] data not None, seed=0):
    """The XXH64 of `data`."""
    cdef uint64_t start = seed
    if data.shape[0] == 0:
        return xxh64(NULL, 0, start)
    return xxh64(&data[0], data.shape[0], start)


def hash_id(bytes msg_id not None):
    """The 16 bytes by which a message id is remembered: XXH64 with seed 0, then with seed 1."""
    cdef bytes out = PyBytes_FromStringAndSize(NULL, 16)
    cdef uint64_t* halves = <uint64_t*>PyBytes_AS_STRING(out)
    cdef const uint8_t* data = <const uint8_t*>PyBytes_AS_STRING(msg_id)
    halves[0] = xxh64(data, PyBytes_GET_SIZE(msg_id), 0)
    halves[1] = xxh64(data, PyBytes_GET_SIZE(msg_id), 1)
    return out
