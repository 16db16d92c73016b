"""Builds the compiled kernels; everything else about the package stands in pyproject.toml."""

import os
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist
from setuptools.errors import SetupError

# PENSTOCK_SANITIZE=1 builds with the address sanitizer (`make sanitize`).
SANITIZE = os.environ.get("PENSTOCK_SANITIZE") == "1"
FLAGS = ["-O1", "-g", "-fsanitize=address", "-fno-omit-frame-pointer"] if SANITIZE else ["-O3", "-g0"]
QUIET = ["-Wno-unused-function", "-Wno-unreachable-code", "-Wno-maybe-uninitialized"]

# PENSTOCK_KERNELS=0 leaves them out of an editable install, which alone may be without: `make` installs the package for
# its dependencies, then compiles once, where they stay.
HAS_KERNELS = os.environ.get("PENSTOCK_KERNELS") != "0"

SOURCES = sorted(str(path) for path in Path("src/penstock").rglob("*.pyx"))
if not SOURCES:
    raise SetupError("src/penstock has no kernels (*.pyx): this source tree is not whole, and nothing would run")

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


class BuildKernels(build_ext):
    """Turns the kernels into C when they are built: who only asks for names and versions does not wait for it."""

    def run(self) -> None:
        if self.extensions:
            made = {one.name: one.sources for one in self.cythonized()}
            for extension in self.extensions:
                extension.sources = made[extension.name]
        super().run()

    def cythonized(self) -> Any:
        from Cython.Build import cythonize

        return cythonize(
            self.extensions,
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


class Wheel(bdist_wheel):
    def run(self) -> None:
        if not HAS_KERNELS:
            raise SetupError("PENSTOCK_KERNELS=0 is for an editable install: a wheel without its kernels cannot run")
        super().run()


class SourceDistribution(sdist):
    def run(self) -> None:
        if not HAS_KERNELS:
            raise SetupError("PENSTOCK_KERNELS=0 is for an editable install: unset it to make a source distribution")
        super().run()


setup(
    options={"build_ext": {"parallel": os.cpu_count() or 1}},
    ext_modules=extensions if HAS_KERNELS else [],
    cmdclass={"build_ext": BuildKernels, "bdist_wheel": Wheel, "sdist": SourceDistribution},
)
