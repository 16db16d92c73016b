"""$JS.API requests and their JSON, one small module per noun."""
