"""format("penstock"), read and followed."""
