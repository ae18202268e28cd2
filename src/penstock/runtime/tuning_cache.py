"""What auto constraints have learned, kept between runs: a run loads it when it starts and saves when it ends.

``penstock tuning`` shows and clears it.
"""

from __future__ import annotations

from penstock.runtime.cache_file import CacheFile, default_path
from penstock.tuning.registry import Learned

__all__ = ["tuning_cache"]


def tuning_cache(path: str | None = None) -> CacheFile[Learned]:
    """The file at this path, or the user's."""
    return CacheFile(path or default_path("tuning.json"), Learned, "what was learned about storage")
