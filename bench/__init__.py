"""The benches: one file per question. `python -m bench` runs them all; docs/bench.md explains each."""
