"""Compiled hot loops and structures; each is a family: NAME.pyx, NAME.pxd, NAME.pyi and its twin in reference/."""
