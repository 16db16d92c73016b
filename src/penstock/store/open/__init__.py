"""Opening: recovery of a stream's files, adoption of staged blocks, the marker of a store."""
