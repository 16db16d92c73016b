"""A stream as a table without a JVM: pyarrow.dataset, DuckDB, Polars."""
