"""Sizes, rates and durations as people write them: ``"40MB/s"``, ``"2GiB"``, ``"1h30m"``.

Everything a person configures passes through here on its way in, and every number a person is shown on its way out.
Inside Penstock there are only bytes, bytes per second and seconds. Decimal prefixes are powers of ten (MB = 10**6),
binary ones powers of two (MiB = 2**20); a number without a unit means MB, MB/s or seconds.
"""

from __future__ import annotations

import math
import re

from penstock.errors import ConfigError

__all__ = [
    "format_count",
    "format_duration",
    "format_rate",
    "format_size",
    "parse_duration",
    "parse_rate",
    "parse_size",
]

_PREFIXES = "kMGTPE"
_DECIMAL_UNITS = ("B", *(prefix + "B" for prefix in _PREFIXES))

_BYTES_PER_UNIT = {"b": 1} | {
    spelling: base**power
    for power, prefix in enumerate(_PREFIXES.lower(), start=1)
    for spelling, base in ((prefix, 1000), (prefix + "b", 1000), (prefix + "i", 1024), (prefix + "ib", 1024))
}

# From large to small: the order in which the parts of a duration must come.
_SECONDS_PER_UNIT = {
    "d": 86400.0,
    "h": 3600.0,
    "m": 60.0,
    "min": 60.0,
    "s": 1.0,
    "ms": 1e-3,
    "us": 1e-6,
    "µs": 1e-6,
    "ns": 1e-9,
}

_NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
# Compiled at their first use, and kept by re: every program imports this, and few write units.
_QUANTITY = rf"(?a)\s*({_NUMBER})\s*([a-zA-Z]*)\s*"
_DURATION_PART = rf"(?a)\s*({_NUMBER})\s*([a-zµ]+)\s*"
# Bits to most readers (64Mb, 10Gb), a factor of eight away from what we would take it for.
_BITS = r"[KMGTPE]b"

_SIZE_FORMS = "a size such as 512MB, 1.5 GB or 2GiB"
_RATE_FORMS = "a rate such as 40MB/s or 12 GB/s"
_DURATION_FORMS = "a duration such as 90s, 250ms or 1h30m"


def parse_size(text: str | float, default_unit: str = "MB") -> int:
    """Return the number of bytes that ``text`` means; a number without a unit counts ``default_unit``."""
    return round(_bytes(text, str(text), default_unit, _SIZE_FORMS))


def parse_rate(text: str | float) -> float:
    """Return the bytes per second that ``text`` means; a number without a unit is MB/s."""
    if not isinstance(text, str):
        return _bytes(text, str(text), "MB", _RATE_FORMS)
    amount, slash, period = text.partition("/")
    if slash and period.strip() != "s":
        raise _unreadable(text, _RATE_FORMS)
    quantity = re.fullmatch(_QUANTITY, amount)
    # "40MB" may be a forgotten "/s" or a size in the wrong place, and "40/s" counts nothing: ask, do not guess.
    if quantity is None or bool(quantity[2]) != bool(slash):
        raise _unreadable(text, _RATE_FORMS)
    return float(_bytes(amount, text, "MB", _RATE_FORMS))


def parse_duration(text: str | float) -> float:
    """Return the seconds that ``text`` means; a number without a unit is seconds."""
    plain = _plain_number(text, _DURATION_FORMS)
    if plain is not None:
        return plain
    assert isinstance(text, str)
    seconds, position, previous = 0.0, 0, math.inf
    while position < len(text) or not position:
        part = re.compile(_DURATION_PART).match(text, position)
        unit = _SECONDS_PER_UNIT.get(part[2]) if part else None
        if part is None or unit is None or unit >= previous:
            raise _unreadable(text, _DURATION_FORMS)
        seconds += float(part[1]) * unit
        position, previous = part.end(), unit
    return _finite(seconds, text, _DURATION_FORMS)


def format_size(size: float) -> str:
    """Print a number of bytes with three significant digits: ``"1.5 GB"``."""
    value, power = float(size), 0
    # 999.6 prints as 1000, which belongs to the next unit.
    while abs(value) >= 999.5 and power < len(_DECIMAL_UNITS) - 1:
        value /= 1000
        power += 1
    return f"{_three_digits(value)} {_DECIMAL_UNITS[power]}"


def format_rate(rate: float) -> str:
    """Print bytes per second with three significant digits: ``"40 MB/s"``."""
    return f"{format_size(rate)}/s"


def format_duration(seconds: float) -> str:
    """Print a duration at the precision a reader wants: ``"250 ms"``, ``"12.3 s"``, ``"2m 05s"``, ``"1h 30m"``."""
    if seconds < 0:
        return f"-{format_duration(-seconds)}"
    for limit, unit in ((999.5e-9, "ns"), (999.5e-6, "µs"), (999.5e-3, "ms"), (59.95, "s")):
        if seconds < limit:
            return f"{_three_digits(seconds / _SECONDS_PER_UNIT[unit])} {unit}"
    minutes, second = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m {second:02d}s"
    hours, minute = divmod(round(seconds / 60), 60)
    if hours < 24:
        return f"{hours}h {minute:02d}m"
    days, hour = divmod(round(seconds / 3600), 24)
    return f"{days}d {hour:02d}h"


def format_count(count: float) -> str:
    """Print how many: ``"893,123"``; a fraction is kept only where it can be seen, ``"0.53"``."""
    return f"{count:,.0f}" if abs(count) >= 99.95 else _three_digits(count)


def _bytes(value: str | float, shown: str, default_unit: str, forms: str) -> float:
    """Read number and unit; ``shown`` is the whole text as the user wrote it, for the message."""
    if not isinstance(value, str):
        plain = _plain_number(value, forms)
        assert plain is not None
        return _finite(plain * _BYTES_PER_UNIT[default_unit.lower()], shown, forms)
    quantity = re.fullmatch(_QUANTITY, value)
    if quantity is None:
        raise _unreadable(shown, forms)
    number, unit = quantity.groups()
    if re.fullmatch(_BITS, unit):
        raise ConfigError(f"cannot read {shown!r}: {unit} reads as bits; write {unit[0]}B for bytes")
    factor = _BYTES_PER_UNIT.get((unit or default_unit).lower())
    if factor is None:
        raise _unreadable(shown, forms)
    value = _finite(float(number) * factor, shown, forms)
    # Whole numbers stay exact however large: a float would lose the last bytes of an exabyte.
    return int(number) * factor if number.isdigit() else value


def _plain_number(value: object, forms: str) -> float | None:
    """The value of a number, or of a text that is nothing but a number; None for any other text."""
    if isinstance(value, str):
        stripped = value.strip()
        return _finite(float(stripped), value, forms) if re.fullmatch(_NUMBER, stripped, re.ASCII) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise _unreadable(value, forms)
    return _finite(value, value, forms)


def _finite(value: float, shown: object, forms: str) -> float:
    if not math.isfinite(value):
        raise _unreadable(shown, forms)
    return value


def _three_digits(value: float) -> str:
    """Up to three significant digits, no trailing zeros, never an exponent."""
    text = f"{value:.0f}" if abs(value) >= 99.95 else f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.2f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _unreadable(shown: object, forms: str) -> ConfigError:
    return ConfigError(f"cannot read {shown!r} as {forms}")
