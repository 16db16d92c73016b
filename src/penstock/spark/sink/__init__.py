"""format("penstock"), written exactly once."""
