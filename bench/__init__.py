"""The benches: one file per question. `python -m bench` asks them all; docs/bench.md says what each means."""
