"""A run that is made inside a worker, which may be killed at any time: all it leaves goes with our run."""

from __future__ import annotations

import os
from typing import Any

from penstock.executors.inside import folders_of_run, importing_in_worker

__all__ = ["settings_inside_worker"]


def settings_inside_worker() -> dict[str, Any]:
    """Its settings.

    If a module makes it that the worker imports, as the program did, it has no workers: they would import it as well.
    """
    folders = folders_of_run
    run_dir = os.path.join(folders.spill, f"inside-{os.getpid()}-{os.urandom(4).hex()}")
    places = {"memory_dir": folders.memory, "spill_dir": run_dir, "run_dir": run_dir}
    mode = {"mode": "inline"} if importing_in_worker() else {}
    return {**places, **mode, "log": False, "keep_run_dir": "never"}
