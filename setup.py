"""Builds the compiled kernels; everything else about the package stands in pyproject.toml."""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

# PENSTOCK_SANITIZE=1 builds with the address sanitizer (`make sanitize`).
SANITIZE = os.environ.get("PENSTOCK_SANITIZE") == "1"
FLAGS = ["-O1", "-g", "-fsanitize=address", "-fno-omit-frame-pointer"] if SANITIZE else ["-O3", "-g0"]
QUIET = ["-Wno-unused-function", "-Wno-unreachable-code", "-Wno-maybe-uninitialized"]

# PENSTOCK_KERNELS=0 leaves them out: `make` installs the package for its dependencies first, then compiles in place.
HAS_KERNELS = os.environ.get("PENSTOCK_KERNELS") != "0"

SOURCES = sorted(str(path) for path in Path("src/penstock").rglob("*.pyx"))

extensions = [
    Extension(
        source.removeprefix("src/").removesuffix(".pyx").replace("/", "."),
        [source],
        extra_compile_args=FLAGS + QUIET,
        extra_link_args=["-fsanitize=address"] if SANITIZE else [],
        libraries=["pthread"],
    )
    for source in SOURCES
]

setup(
    options={"build_ext": {"parallel": os.cpu_count() or 1}},
    ext_modules=cythonize(
        extensions,
        nthreads=os.cpu_count() or 1,
        include_path=["src"],
        build_dir="build/cython",
        compiler_directives={
            "language_level": "3",
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": False,
            "embedsignature": False,
            "freethreading_compatible": False,
        },
    )
    if HAS_KERNELS
    else [],
)
