"""Structures that know nothing of streams: hashes, varints, clocks, sets of sequences, subjects."""
