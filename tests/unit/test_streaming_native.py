"""Finding the C libraries, and what is said when they are not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.streaming import native


def test_both_libraries_lie_beside_the_module() -> None:
    assert Path(native.interposer_path()).parent == Path(native.__file__).parent
    assert native.table_library().ps_attach


def test_a_build_without_them_is_told_how_to_make_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "__file__", str(tmp_path / "native.py"))
    with pytest.raises(ConfigError, match="built without its native part: run `make native`"):
        native.interposer_path()


def test_a_path_that_cannot_be_preloaded_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "with blank"
    folder.mkdir()
    (folder / "libpenstock_interpose.so").touch()
    monkeypatch.setattr(native, "__file__", str(folder / "native.py"))
    with pytest.raises(ConfigError, match="cannot be preloaded"):
        native.interposer_path()


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("exit 0", ""),
        ("echo the kernel is too old; exit 1", "the kernel is too old"),
        ("exit 3", "its supervisor ended with 3"),
        ("", "its supervisor does not run: "),
        (None, "this penstock was built without its supervisor"),
    ],
)
def test_whether_programs_can_be_supervised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str | None, reason: str
) -> None:
    monkeypatch.setattr(native, "__file__", str(tmp_path / "native.py"))
    if program is not None:
        (tmp_path / "penstock_supervisor").write_text(f"#!/bin/sh\n{program}\n" if program else "\0")
        (tmp_path / "penstock_supervisor").chmod(0o755)
    found = native.why_not_supervised.__wrapped__()
    assert found.startswith(reason) and bool(found) == bool(reason)
