"""What lies below a folder while others make and remove things there: ``Path.rglob`` fails on a folder that is gone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["everything_below"]


def everything_below(folder: Path | str) -> Iterator[Path]:
    """Each file and folder that is found; what vanishes meanwhile is not."""
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            yield Path(place, name)
