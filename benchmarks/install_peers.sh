#!/bin/sh
# One virtual environment per peer below build/peers/<name>, so that their dependencies never meet ours.
# Run again at will: an environment that already holds what is asked for is left alone.
# A peer that cannot be installed is reported and skipped; the benchmarks then leave its column empty.
# PYTHON=... chooses the interpreter; default is the project's own, so that all are compared on one Python.
set -u
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
peers="$root/build/peers"
if [ -z "${PYTHON:-}" ]; then
    if [ -x "$root/.venv/bin/python" ]; then PYTHON="$root/.venv/bin/python"; else PYTHON=python3; fi
fi
export PIP_DISABLE_PIP_VERSION_CHECK=1

install() {
    name=$1; shift
    env="$peers/$name"
    wanted="$("$PYTHON" -c 'import sys; print(sys.version_info[:2])') $*"
    if [ "$(cat "$env/.installed" 2>/dev/null)" != "$wanted" ]; then
        rm -rf "$env"
        if ! { "$PYTHON" -m venv "$env" && "$env/bin/python" -m pip install -q "$@"; } >"$peers/$name.log" 2>&1; then
            rm -rf "$env"
            printf '%-8s not installed: %s\n' "$name" "$(grep -i error "$peers/$name.log" | tail -n 1)"
            return
        fi
        printf '%s\n' "$wanted" >"$env/.installed"
    fi
    printf '%-8s %s\n' "$name" "$("$env/bin/python" -c \
        'import sys, importlib.metadata as m; print(m.version(sys.argv[1]))' "${1%%[*}")"
}

mkdir -p "$peers"
install ray ray numpy
install dask 'distributed' dask numpy
install parsl parsl numpy
install joblib joblib numpy
install mpire mpire numpy
