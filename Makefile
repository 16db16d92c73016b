# Penstock's commands. `make help` lists them; each sets up what it needs in .venv.
SHELL := /bin/bash
PY ?= python3
BIN := .venv/bin
PYX := $(shell find src -name '*.pyx' -o -name '*.pxd' 2>/dev/null)
N ?=
SEED ?=
export PYTHONDONTWRITEBYTECODE ?=

.DEFAULT_GOAL := help
.PHONY: help build demo test check bench wheel sanitize crash flips faults model kill consumers machine fuzz lies clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

.venv/.installed: pyproject.toml setup.py
	@command -v cc >/dev/null || { echo "penstock needs a C compiler (cc): install gcc or clang"; exit 1; }
	@$(PY) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "penstock needs Python 3.11 or newer: make PY=python3.12 …"; exit 1; }
	@$(PY) -c 'import ensurepip' 2>/dev/null || { echo "this Python cannot make virtual environments: install python3-venv"; exit 1; }
	@test -x $(BIN)/python || $(PY) -m venv .venv
	@echo "installing into .venv …"
	@$(BIN)/python -m pip install -q --disable-pip-version-check "setuptools>=77" "Cython>=3.1" wheel
	@PENSTOCK_KERNELS=0 $(BIN)/python -m pip install -q --disable-pip-version-check --no-build-isolation -e '.[dev]'
	@touch $@

.venv/.built: .venv/.installed $(PYX)
	@echo "compiling the kernels …"
	@$(BIN)/python setup.py -q build_ext --inplace -j 2 > build.log 2>&1 || { cat build.log; exit 1; }
	@$(BIN)/python -m compileall -q src  # a server starts three times as fast
	@touch $@

build: .venv/.built ## make .venv and compile the kernels

demo: build ## a stream of orders, end to end: write, kill -9, verify, erase, export; the same on Spark; the server under load
	@$(BIN)/python examples/demo.py
	@$(BIN)/python examples/pipeline.py demo-out
	@$(BIN)/python examples/server.py demo-out --number 16

# A test that hangs ends its worker after five minutes and shows where every thread stood; the others go on.
test: build ## the whole suite, with a fifth of each campaign
	@$(BIN)/python -m pytest -n 2 --dist worksteal -o faulthandler_timeout=300 -o faulthandler_exit_on_timeout=true

check: build ## ruff, mypy strict, the architecture test
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check -q . || { echo "run: .venv/bin/ruff format ."; exit 1; }
	@$(BIN)/mypy
	@$(BIN)/python -m pytest tests/test_architecture.py

.venv/.bench: .venv/.built
	@PENSTOCK_KERNELS=0 $(BIN)/python -m pip install -q --disable-pip-version-check --no-build-isolation -e '.[bench]'
	@touch $@

bench: .venv/.bench ## the tables of the README, with ratios to the peers
	@$(BIN)/python -m bench

wheel: build ## dist/: the source distribution, and a manylinux wheel that is built from it and tried
	@rm -rf build/dist
	@$(BIN)/python -m build -q --no-isolation --outdir build/dist . > build.log 2>&1 || { cat build.log; exit 1; }
	@tools/finish_wheel build/dist dist

sanitize: build ## the kernel tests under the address sanitizer
	@tools/sanitize

crash: build ## crash images: N= states (5000), SEED=
	@N=$(or $(N),5000) SEED=$(SEED) $(BIN)/python -m pytest -n 2 tests/crash/test_crash_images.py tests/crash/test_early_writes.py tests/crash/test_begun_commits.py

flips: build ## bit flips over every kind of file: N= (20000), SEED=
	@N=$(or $(N),20000) SEED=$(SEED) $(BIN)/python -m pytest -n 2 tests/crash/test_bit_flips.py

faults: build ## every n-th I/O call failing
	@N=$(or $(N),0) SEED=$(SEED) $(BIN)/python -m pytest -n 2 tests/crash/test_faults.py

kill: build ## kill -9 of a writing process: N= cycles (100), SEED=
	@N=$(or $(N),100) SEED=$(SEED) $(BIN)/python -m pytest tests/crash/test_kill.py

consumers: build ## kill -9 of a server with twenty consumers under load: N= cycles (100), SEED=
	@N=$(or $(N),100) SEED=$(SEED) $(BIN)/python -m pytest tests/crash/test_consumer_kill.py

model: build ## the store against a simple model: N= operations (200000), SEED=
	@N=$(or $(N),200000) SEED=$(SEED) $(BIN)/python -m pytest -n 2 tests/crash/test_model.py

machine: build ## streams and their consumers against a simple model: N= runs (1000), SEED=
	@N=$(or $(N),1000) $(BIN)/python -m pytest -n 0 tests/consumer/test_machine.py $(if $(SEED),--hypothesis-seed=$(SEED))

fuzz: build ## mutated sessions through the protocol's parser: N= sessions (2000000), SEED=
	@N=$(or $(N),2000000) SEED=$(SEED) $(BIN)/python -m pytest -n 2 tests/fuzz --ignore tests/fuzz/test_file_fuzz.py

lies: build ## files that lie under right checksums: N= cases (20000), SEED=
	@N=$(or $(N),20000) SEED=$(SEED) $(BIN)/python -m pytest -n 2 tests/fuzz/test_file_fuzz.py

clean: ## remove what was built, keep .venv
	@rm -rf build dist build.log demo-out .venv/.built .venv/.bench
	@find src -name '*.so' -delete
