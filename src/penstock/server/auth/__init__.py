"""Who a connection is."""
