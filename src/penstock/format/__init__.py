"""The bytes of every file of a store: encode, decode, bounds. No policy. Layouts: docs/format.md."""
