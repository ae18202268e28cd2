# Every command of a contributor. Each target sets up what it needs; nothing outside this folder is touched.
#
#   make demo         one program, run I/O-unaware and I/O-aware, and what that saved
#   make test         the tests, without the long ones
#   make test-long    only the long ones
#   make check        ruff and mypy
#   make bench        our benchmarks, next to the peers that `make bench-peers` has installed
#   make papers       published experiments, replayed by the simulator at their published scale
#   make clean        remove all that the targets above made

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.penstock-ready

# Extra words for pytest: make test ARGS="-k wordcount -x"
ARGS   ?=

.PHONY: demo test test-long check bench bench-peers papers clean
.DEFAULT_GOAL := test

demo: $(READY)
	$(BIN)/python -m benchmarks.demo

test: $(READY)
	$(BIN)/python -m pytest -q -n 2 $(ARGS)

test-long: $(READY)
	$(BIN)/python -m pytest -q -m long $(ARGS)

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/python -m benchmarks

bench-peers: $(READY)
	bash benchmarks/install_peers.sh

papers: $(READY)
	$(BIN)/python -m benchmarks.papers

clean:
	rm -rf $(VENV) build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
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
