"""The constants of docs/format.md. The numbers are in constants.pxd, where compiled modules have them too."""

BLOCK_MAGIC = b"PSTKBLK\x01"
SUMMARY_MAGIC = b"PSTKSUM\x01"
HEAD_MAGIC = b"PSTKHED\x01"
CHECKPOINT_MAGIC = b"PSTKCHK\x01"

FLAGS = {"headers": FLAG_HEADERS, "erased": FLAG_ERASED, "ttl": FLAG_TTL, "msg_id": FLAG_MSG_ID}
KINDS = ("message", "skip", "delete", "erase", "floor")
REASONS = ("user", "purge", "rollup", "max_msgs", "max_bytes", "max_msgs_per_subject", "max_age", "ttl", "ack",
           "interest", "lost", "compact", "skipped")
