"""Bytes ⇄ commands of the NATS protocol; knows no socket."""
