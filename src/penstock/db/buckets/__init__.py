"""Key-value buckets and object stores, in the NATS clients' layout."""
