"""Stream files to Arrow batches, pruned by sequence, time, subject and column. Read-only; pyarrow waits until asked."""

from penstock.scan.rows import Damage, Scan, scan, to_table

__all__ = ["Damage", "Scan", "scan", "to_table"]
