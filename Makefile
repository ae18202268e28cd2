# Every command of a contributor. Each target sets up what it needs; nothing outside this folder is touched.
#
#   make demo         one program, run I/O-unaware and I/O-aware, and what that saved
#   make test         the tests, without the long ones
#   make test-long    only the long ones
#   make check        ruff and mypy
#   make native       the C half of streaming, compiled in place (the targets above do it as needed)
#   make bench        our benchmarks, next to the peers that `make bench-peers` has installed
#   make papers       published experiments, replayed by the simulator at their published scale
#   make clean        remove all that the targets above made

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.penstock-ready

# The C libraries and the supervisor, in the source folder, where an editable install finds them. CMakeLists.txt makes the
# same three for the wheel, from the same lists of sources and flags.
CC            ?= cc
STREAMING     := src/penstock/streaming
TABLE_LIB     := $(STREAMING)/libpenstock_table.so
INTERPOSE_LIB := $(STREAMING)/libpenstock_interpose.so
SUPERVISOR    := $(STREAMING)/penstock_supervisor
NATIVE        := $(TABLE_LIB) $(INTERPOSE_LIB) $(SUPERVISOR)
FLAGS         := $(shell cat native/flags)
TABLE_C       := $(addprefix native/,$(shell cat native/table.sources))
INTERPOSE_C   := $(addprefix native/,$(shell cat native/interpose.sources))
SUPERVISOR_C  := $(addprefix native/,$(shell cat native/supervisor.sources))
INTERPOSE_LD  := $(shell cat native/interpose.link)
NATIVE_FILES  := native/flags native/interpose.link $(wildcard native/*.sources native/interpose/*)

# Extra words for pytest: make test ARGS="-k wordcount -x"
ARGS   ?=

.PHONY: demo test test-long check native bench bench-peers papers clean
.DEFAULT_GOAL := test

demo: $(READY) $(NATIVE)
	$(BIN)/python -m benchmarks.demo

# Many tests start programs that import Penstock: compiled once, here, also where Python is told to write no bytecode.
# Each worker begins with one half of the tests, in order, so that what a module sets up is mostly set up once.
test: $(READY) $(NATIVE)
	@$(BIN)/python -m compileall -q src tests benchmarks
	$(BIN)/python -m pytest -q -n 2 --dist worksteal --hypothesis-profile repeatable $(ARGS)

test-long: $(READY) $(NATIVE)
	@$(BIN)/python -m compileall -q src tests benchmarks
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m long $(ARGS)

check: $(READY) $(NATIVE)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY) $(NATIVE)
	$(BIN)/python -m benchmarks

bench-peers: $(READY)
	bash benchmarks/install_peers.sh

papers: $(READY)
	$(BIN)/python -m benchmarks.papers

native: $(NATIVE)

# Written beside and renamed: a program that has the old one mapped keeps it.
$(TABLE_LIB): $(NATIVE_FILES)
	$(CC) $(FLAGS) -DPS_EXPORT -shared -o $@.new $(TABLE_C) native/interpose/table_export.c -ldl
	@mv $@.new $@

$(INTERPOSE_LIB): $(NATIVE_FILES)
	$(CC) $(FLAGS) -shared $(INTERPOSE_LD) -o $@.new $(INTERPOSE_C) $(TABLE_C) -ldl
	@mv $@.new $@

$(SUPERVISOR): $(NATIVE_FILES)
	$(CC) $(FLAGS) -DPS_SUPERVISOR_PROGRAM -o $@.new $(SUPERVISOR_C) $(INTERPOSE_C) $(TABLE_C) -ldl
	@mv $@.new $@

clean:
	rm -f $(NATIVE)
	rm -rf $(VENV) build dist __pycache__ .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find src tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# The virtual environment, made or repaired on demand. It is built again from nothing when its own Python or pip does
# not answer (an interpreter that was removed, a half-made folder); else the install adds only what is missing.
# The stamp is written last, so an interrupted set-up is taken up again.
$(READY): pyproject.toml CMakeLists.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit("Penstock needs Python 3.11 or later; $(PYTHON) is %d.%d. Try: make PYTHON=python3.12" % v[:2])'
	@echo "setting up $(VENV) (once)"
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-input --editable '.[test,dev,plot]'
	@touch $@
