"""The way in: batches, the stream engine, the commit log and the threads that write and sync it."""
