"""encode_maps: a column of header maps to header blocks. Rules: penstock/headers.py, whose `encode` is the twin.

A map is keys with lists of values, as Arrow lays them out: offsets per row, keys, offsets per key, values.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memchr, memcpy

from penstock.errors import BadHeader


cdef int _check(const int32_t[::1] offsets, Py_ssize_t low, Py_ssize_t high, Py_ssize_t size, str what) except -1:
    """Offsets low..high rise and stay within `size`."""
    cdef Py_ssize_t n
    if low < 0 or high >= offsets.shape[0] or offsets[low] < 0 or offsets[high] > size:
        raise ValueError(f"headers: the offsets of the {what} leave their buffer")
    for n in range(low, high):
        if offsets[n] > offsets[n + 1]:
            raise ValueError(f"headers: the offsets of the {what} go back")
    return 0


cdef bint _is_key(const uint8_t* key, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t n
    for n in range(size):
        if key[n] <= 0x20 or key[n] == c":" or key[n] == 0x7F:
            return False
    return size > 0


def encode_maps(Py_ssize_t count, bits, Py_ssize_t bit, const int32_t[::1] rows not None,
                const int32_t[::1] key_at not None, const unsigned char[::1] keys not None,
                const int32_t[::1] list_at not None, const int32_t[::1] value_at not None,
                const unsigned char[::1] values not None):
    """(offsets as int32 bytes, data): one header block per row, empty where the map is null or has no value."""
    cdef const unsigned char[::1] valid = bits
    cdef Py_ssize_t n, k, v, at = 0
    cdef int64_t capacity = 0
    cdef int32_t* out_at
    cdef char* out
    cdef bint is_open
    cdef Py_ssize_t key_size, value_size
    cdef const uint8_t* key
    cdef const uint8_t* value
    if valid is not None and valid.shape[0] * 8 < bit + count:
        raise ValueError("headers: the bitmap is shorter than the column")
    _check(rows, 0, count, key_at.shape[0] - 1, "maps")
    _check(key_at, rows[0], rows[count], keys.shape[0], "keys")
    _check(list_at, rows[0], rows[count], value_at.shape[0] - 1, "lists")
    _check(value_at, list_at[rows[0]], list_at[rows[count]], values.shape[0], "values")
    for k in range(rows[0], rows[count]):
        key_size = key_at[k + 1] - key_at[k]
        capacity += (list_at[k + 1] - list_at[k]) * (key_size + 4) + value_at[list_at[k + 1]] - value_at[list_at[k]]
    capacity += count * 12
    if capacity > 0x7FFFFFFF:
        raise ValueError(f"headers: {capacity} bytes of headers in one batch; make smaller batches")
    offsets = PyBytes_FromStringAndSize(NULL, (count + 1) * 4)
    out_at = <int32_t*>PyBytes_AS_STRING(offsets)
    data = PyBytes_FromStringAndSize(NULL, capacity)
    out = PyBytes_AS_STRING(data)
    out_at[0] = 0
    for n in range(count):
        is_open = False
        if valid is None or (valid[(bit + n) >> 3] >> ((bit + n) & 7)) & 1:
            for k in range(rows[n], rows[n + 1]):
                key_size = key_at[k + 1] - key_at[k]
                key = &keys[0] + key_at[k] if key_size else NULL
                if list_at[k + 1] > list_at[k] and not _is_key(key, key_size):
                    raise BadHeader(f"row {n}: header key {bytes(keys[key_at[k]:key_at[k + 1]])!r} is empty, or has a colon, "
                                    "a blank or a control character")
                for v in range(list_at[k], list_at[k + 1]):
                    value_size = value_at[v + 1] - value_at[v]
                    value = &values[0] + value_at[v] if value_size else NULL
                    if value_size and (memchr(value, c"\r", value_size) != NULL or memchr(value, c"\n", value_size) != NULL):
                        raise BadHeader(f"row {n}: header {bytes(keys[key_at[k]:key_at[k + 1]])!r}: a value cannot have line breaks")
                    if not is_open:
                        memcpy(out + at, b"NATS/1.0\r\n", 10)
                        at += 10
                        is_open = True
                    memcpy(out + at, key, key_size)
                    memcpy(out + at + key_size, b": ", 2)
                    at += key_size + 2
                    if value_size:
                        memcpy(out + at, value, value_size)
                    memcpy(out + at + value_size, b"\r\n", 2)
                    at += value_size + 2
        if is_open:
            memcpy(out + at, b"\r\n", 2)
            at += 2
        out_at[n + 1] = <int32_t>at
    return offsets, data[:at]
