"""What auto constraints have learned, kept between runs: a run loads it when it starts and saves when it ends.

``penstock tuning`` shows and clears it.
"""

from __future__ import annotations

from penstock.runtime.cache_file import CacheFile, default_path
from penstock.tuning.registry import Delivery, Learned

__all__ = ["Entry", "tuning_cache"]

#: what devices were seen to deliver, and what functions found in epochs
Entry = Delivery | Learned


def tuning_cache(path: str | None = None) -> CacheFile[Entry]:
    """The file at this path, or the user's."""
    return CacheFile(path or default_path("tuning.json"), Entry, "what was learned about storage")  # type: ignore[arg-type]
