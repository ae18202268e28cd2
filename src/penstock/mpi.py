"""``penstock.mpi``, also for those who import it as a module: the decorator and what belongs to it are one object."""

from __future__ import annotations

import sys
from typing import Any

from penstock.api.mpi import mpi

__all__ = ["comm", "discard_world"]

comm = mpi.comm
discard_world = mpi.discard_world

# `import penstock.mpi` also sets the attribute of that name, which must go on being the decorator.
modules: dict[str, Any] = sys.modules
modules[__name__] = mpi
