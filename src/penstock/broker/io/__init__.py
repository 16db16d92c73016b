"""Bytes in and out: the epoll set, sends through io_uring, what waits for a socket."""
