"""The setting ``setup``: the function that it names or is."""

from __future__ import annotations

from collections.abc import Callable

from penstock.errors import ConfigError
from penstock.runtime.config import Config
from penstock.runtime.shipping import import_attribute

__all__ = ["setup_of"]


def setup_of(config: Config) -> Callable[[], object] | None:
    """What is called in each worker; a place that is wrong is an error at the start, not in the workers."""
    given = config.setup
    if given is None or not isinstance(given, str):
        return given
    module, _, path = given.partition(":")
    try:
        found = import_attribute(module.strip(), path.strip())
    except (ImportError, AttributeError, KeyError) as error:
        raise ConfigError(f"setup = {given!r}: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise ConfigError(f"setup = {given!r} is {found!r:.60}, which cannot be called")
    return found  # type: ignore[no-any-return]
