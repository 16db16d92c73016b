# The numbers of docs/format.md. tests/test_format_page.py compares the page with them; `cpdef` shows them to Python, too.
cpdef enum:
    FORMAT_VERSION = 1
    HEADER_SIZE = 256
    HEADER_STRIDE = 4096
    RECORDS_START = 8192

    KIND_MESSAGE = 0
    KIND_SKIP = 1
    KIND_DELETE = 2
    KIND_ERASE = 3
    KIND_FLOOR = 4
    KIND_MASK = 7
    FLAG_HEADERS = 8
    FLAG_ERASED = 16
    FLAG_TTL = 32
    FLAG_MSG_ID = 64
    FLAGS_UNUSED = 128

    REASON_USER = 0
    REASON_PURGE = 1
    REASON_ROLLUP = 2
    REASON_MAX_MSGS = 3
    REASON_MAX_BYTES = 4
    REASON_MAX_MSGS_PER_SUBJECT = 5
    REASON_MAX_AGE = 6
    REASON_TTL = 7
    REASON_ACK = 8
    REASON_INTEREST = 9
    REASON_LOST = 10
    REASON_COMPACT = 11
    REASON_SKIPPED = 12

    BODY_SIZE_MIN = 11                     # flags, seq, time and checksum
    RECORD_SIZE_MAX = 67174400             # 64 MiB + 64 KiB
    DELETE_RANGES_MAX = 4096
    SUBJECT_SIZE_MAX = 65535

    HEAD_SIZE = 4096
    HEAD_SLOT_SIZE = 128
    HEAD_SLOT_STRIDE = 2048
    HEAD_OPEN = 1
    HEAD_STOPPED = 2

    SUMMARY_FIXED_SIZE = 512
    SUMMARY_SECTIONS = 10
    CHECKPOINT_FIXED_SIZE = 208
    CHECKPOINT_SECTIONS = 6
