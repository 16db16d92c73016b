"""XXH64 of any buffer: the door around the inline loop in xxh64.pxd."""


def xxh64_of(const unsigned char[::1] data not None, seed=0):
    """The XXH64 of `data`."""
    cdef uint64_t start = seed
    if data.shape[0] == 0:
        return xxh64(NULL, 0, start)
    return xxh64(&data[0], data.shape[0], start)
