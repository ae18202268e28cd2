"""``"auto"`` and ``"auto(min, max, delta)"``: what a user writes, read once, when the task is decorated.

The bounds are rates as ``penstock.units`` reads them (a plain number is MB/s); delta is a plain factor. What the words
mean is in ``epochs``.
"""

from __future__ import annotations

import math
import re

from penstock.errors import ConfigError
from penstock.model.resources import Auto
from penstock.units import format_rate, parse_rate

__all__ = ["is_auto", "parse", "shown"]

# Compiled when they are used, which in most programs is never: all of them import this.
_FORM = r"(?i)\s*auto\s*(?:\(([^()]*)\)\s*)?"
_WORD = r"(?i)\s*auto(?![a-z0-9_])"
_FACTOR = r"(?ai)[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?"


def is_auto(value: object) -> bool:
    """Whether a user means an auto constraint, well written or not; ``parse`` then says what is wrong with it."""
    return isinstance(value, str) and re.match(_WORD, value) is not None


def parse(text: str) -> Auto:
    """Read an auto constraint; anything malformed is a ConfigError that says what and why."""
    form = re.fullmatch(_FORM, text)
    if form is None:
        raise _refusal(text, 'expected "auto" or "auto(min, max, delta)"')
    if form[1] is None:
        return Auto()
    parts = [part.strip() for part in form[1].split(",")]
    if len(parts) != 3:
        count = len(parts) if form[1].strip() else 0
        raise _refusal(text, f"expected three values, min, max and delta, not {count}")
    least, most = _rate(text, "min", parts[0]), _rate(text, "max", parts[1])
    if least > most:
        raise _refusal(text, f"min ({parts[0]}) is above max ({parts[1]})")
    return Auto(least, most, _delta(text, parts[2]))


def shown(auto: Auto) -> str:
    """An auto constraint as a user would write it."""
    if not auto.bounded:
        return "auto"
    return f"auto({format_rate(auto.least)}, {format_rate(auto.most)}, {auto.delta:g})"


def _rate(text: str, name: str, part: str) -> float:
    if part.startswith("-"):
        raise _refusal(text, f"{name} must be above zero, not {part}")
    try:
        rate = parse_rate(part)
    except ConfigError as error:
        raise _refusal(text, f"{name}: {error}") from None
    if rate <= 0:
        raise _refusal(text, f"{name} must be above zero, not {part}")
    return rate


def _delta(text: str, part: str) -> float:
    if re.fullmatch(_FACTOR, part) is None or not math.isfinite(delta := float(part)):
        raise _refusal(text, f"delta must be a plain number above 1, not {part!r}")
    if delta <= 1:
        raise _refusal(text, f"delta multiplies the constraint from one epoch to the next: above 1, not {part}")
    return delta


def _refusal(text: str, reason: str) -> ConfigError:
    return ConfigError(f"cannot read the bandwidth constraint {text!r}: {reason}")
