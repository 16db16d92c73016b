"""Ready jobs: verify, lake, state, migrate, replay, decode."""
