"""The library: a directory of streams, its lock, the sync and async faces."""
