"""Checks every checksum of a store and repairs damage. `penstock verify` and its Spark pipeline plan and print."""
