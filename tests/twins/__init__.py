"""The kernels again in plain Python: the readable spec and the oracle of the tests, never used in production."""
