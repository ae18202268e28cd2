"""The published JSON Schemas of the coordination file's two forms, for editors and for programs that write such files.

They say what is well formed. Whether the parts fit each other, only ``language`` knows.
"""

from __future__ import annotations

import importlib.resources

from penstock.errors import ConfigError, did_you_mean

__all__ = ["FORMS", "schema_text"]

FORMS = ("json", "toml")


def schema_text(form: str) -> str:
    """The schema of the JSON form or of the TOML form."""
    if form not in FORMS:
        raise ConfigError(f"there is no form {form!r}{did_you_mean(form, FORMS)} (known: {', '.join(FORMS)})")
    return importlib.resources.files(__package__).joinpath(f"schema_{form}_form.json").read_text(encoding="utf-8")
