"""Messages kept: blocks, index, recovery, limits. Alone in writing stream files."""
