"""How much room streams may take, as the file and the command line write it: the same rule for both."""

from __future__ import annotations

import mmap

from penstock.errors import ConfigError
from penstock.streaming.language.reading import shown
from penstock.units import format_size, parse_size

__all__ = ["parse_limit"]

#: Room is taken by pages, and a write is cut into pieces of a quarter of the limit.
_LEAST = 4 * mmap.PAGESIZE
_MOST = 1 << 62


def parse_limit(given: object) -> int:
    """Bytes; ``"off"`` is 0, without limit. What no stream could keep to is a ConfigError that says what to write."""
    if given == "off":
        return 0
    size = 0
    if isinstance(given, (str, int, float)) and not isinstance(given, bool):
        try:
            size = parse_size(given)
        except ConfigError:
            pass
    if 0 < size < _LEAST:
        raise ConfigError(
            f"a limit of {format_size(size)} is less than streams can keep to; write {_LEAST // 1024}KiB or more "
            f"(a number without a unit is MB)"
        )
    if not 0 < size <= _MOST:
        raise ConfigError(f'expected a size such as "256MB", a number of MB above zero, or "off", not {shown(given)}')
    return size
