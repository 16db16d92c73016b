"""Every checksum of a store's files, what does not hold, and the repair of it. The command line and Spark print it."""
