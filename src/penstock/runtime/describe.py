"""Write a storage layer into ``penstock.toml`` and change nothing else in it.

``penstock probe`` calls this with what it measured. The file is the user's: comments, order, spelling and line ends
stay as they are. ``toml_text`` finds the lines to change; the result is parsed again and must differ from
the old content by this one layer and nothing more, or it is not written.

    settings_file ──▶ plan_edit (reads, decides, checks) ──▶ the user agrees ──▶ Edit.write (temp, fsync, rename)
"""

from __future__ import annotations

import contextlib
import copy
import os
import re
import shutil
import tempfile
import tomllib
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from penstock.errors import ConfigError, InternalError
from penstock.runtime.toml_text import TomlText
from penstock.units import parse_rate

__all__ = ["Edit", "MeasuredLayer", "default_name", "layer_table", "plan_edit", "settings_file"]

_STORAGE = ("resources", "storage")
#: comment lines with this mark are ours, and give way to newer ones
_MARK = "# probe:"


class MeasuredLayer(Struct, frozen=True):
    """A layer as it will stand in the file."""

    name: str
    mount: str
    #: with unit, as the file has it: ``"450MB/s"``
    bandwidth: str
    capacity: str
    #: the measured points, a line each
    notes: tuple[str, ...] = ()
    #: write bandwidth by number of streams, ``"1: 180MB/s, 2: 340MB/s"``
    measured: str = ""

    @property
    def values(self) -> dict[str, str]:
        values = {"name": self.name, "mount": self.mount, "bandwidth": self.bandwidth, "capacity": self.capacity}
        return {**values, "measured": self.measured} if self.measured else values


class Edit(Struct, frozen=True):
    """A change to a settings file that was checked and not made yet."""

    path: str
    layer: MeasuredLayer
    #: content of the file now; None if there is no file
    before: str | None
    after: str
    #: the entry that gives way, if there is one
    replaced: dict[str, Any] | None

    def write(self) -> None:
        """Make the change: the file is the old one or the new one at every moment."""
        path = os.path.realpath(self.path)  # a link to the file stays a link
        if _read(path) != self.before:
            raise ConfigError(f"{self.path} has changed meanwhile; nothing was written")
        descriptor, temporary = tempfile.mkstemp(prefix=".penstock-", suffix=".toml", dir=os.path.dirname(path))
        try:
            with open(descriptor, "w", encoding="utf-8", newline="") as file:
                file.write(self.after)
                file.flush()
                os.fsync(file.fileno())
            if self.before is None:
                os.chmod(temporary, 0o666 & ~_umask())
            else:
                shutil.copymode(path, temporary)
            os.rename(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        _sync_folder(os.path.dirname(path))


# --- which file, which name -------------------------------------------------------------------------------------------


def settings_file(given: str | None, here: str) -> str:
    """The file to write to: the one named, else the one that settings come from, else a new one in ``here``."""
    path = _found_file(here) if given is None else os.path.abspath(os.path.join(here, os.path.expanduser(given)))
    if os.path.basename(path) == "pyproject.toml":
        raise ConfigError(
            f"{path} is not written to: move the settings of [tool.penstock] to a penstock.toml, "
            "or use --no-write and add the layer by hand"
        )
    folder = os.path.dirname(os.path.realpath(path))
    is_other = os.path.exists(path) and not os.path.isfile(path)  # a folder, or a device, which is not to be replaced
    if is_other or not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"cannot write {path}; name another file with --file, or use --no-write")
    return path


def _found_file(here: str) -> str:
    """The nearest file with settings, by the rule of ``runtime.config``: one further down would hide those above."""
    folder = os.path.abspath(here)
    while True:
        for name in ("penstock.toml", "pyproject.toml"):
            path = os.path.join(folder, name)
            if os.path.isfile(path) and (name == "penstock.toml" or _configures_penstock(path)):
                return path
        parent = os.path.dirname(folder)
        if parent == folder:
            return os.path.join(os.path.abspath(here), "penstock.toml")
        folder = parent


def _configures_penstock(path: str) -> bool:
    text = _read(path) or ""
    return "penstock" in text and "penstock" in _parse(text, path).get("tool", {})


def default_name(directory: str) -> str:
    """A name for the layer at ``directory``: that of its mount point, or ``"work"`` for the root."""
    point = os.path.realpath(directory)
    while not os.path.ismount(point):
        point = os.path.dirname(point)
    return re.sub(r"[^A-Za-z0-9_-]+", "-", os.path.basename(point)).strip("-") or "work"


# --- the change -------------------------------------------------------------------------------------------------------


def layer_table(layer: MeasuredLayer, newline: str = "\n") -> str:
    """The layer as a table to add to a file."""
    lines = [f"[[{'.'.join(_STORAGE)}]]", *_note_lines(layer)]
    lines += [f"{key} = {_quoted(value)}" for key, value in layer.values.items()]
    return newline.join(lines) + newline


def plan_edit(path: str, layer: MeasuredLayer, *, name_given: bool) -> Edit:
    """Decide how the file at ``path`` takes in ``layer``.

    The entry with its mount, or with its name, gives way. A name that nobody asked for gives way itself: to that of
    the entry with this mount, or to a free one.
    """
    before = _read(path)
    content = _parse(before or "", path)
    entries = _entries(content, path)
    folder = os.path.dirname(path)
    real = os.path.realpath(layer.mount)
    by_mount = [n for n, entry in enumerate(entries) if _mount(entry, folder) == real]
    if not name_given:
        taken = [str(entry.get("name")) for entry in entries]
        name = taken[by_mount[0]] if by_mount and entries[by_mount[0]].get("name") else _free_name(layer.name, taken)
        layer = replace(layer, name=name)
    by_name = [n for n, entry in enumerate(entries) if entry.get("name") == layer.name]
    matches = sorted({*by_mount, *by_name})
    if len(matches) > 1:
        raise ConfigError(
            f"{path}: several layers have the name {layer.name!r} or the mount {layer.mount}: "
            "remove all but one, or choose another --name"
        )
    index = matches[0] if matches else None
    if index is not None and "curve" in entries[index]:
        raise ConfigError(f"{path}: the layer {layer.name!r} is emulated (it has a curve); choose another --name")
    after = _with_layer(before or "", layer, entries, index)
    _check(content, after, layer, index, path)
    return Edit(path, layer, before, after, entries[index] if index is not None else None)


def _entries(content: dict[str, Any], path: str) -> list[dict[str, Any]]:
    resources = content.get("resources", {})
    entries = resources.get("storage", []) if isinstance(resources, dict) else None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ConfigError(f"{path}: storage layers must be written as [[resources.storage]] tables")
    return entries


def _mount(entry: dict[str, Any], folder: str) -> str | None:
    mount = entry.get("mount")
    return os.path.realpath(os.path.join(folder, os.path.expanduser(mount))) if isinstance(mount, str) else None


def _free_name(wanted: str, taken: list[str]) -> str:
    number, name = 1, wanted
    while name in taken:
        number += 1
        name = f"{wanted}-{number}"
    return name


def _with_layer(text: str, layer: MeasuredLayer, entries: list[dict[str, Any]], index: int | None) -> str:
    toml = TomlText(text)
    if index is None:
        return toml.with_table(_STORAGE, layer_table(layer, toml.newline), _place(layer, entries))
    for key, value in layer.values.items():
        if entries[index].get(key) != value:
            toml = toml.with_value(_STORAGE, index, key, _quoted(value))
    return toml.with_comments(_STORAGE, index, _MARK, _note_lines(layer))


def _place(layer: MeasuredLayer, entries: list[dict[str, Any]]) -> int:
    """Where the new entry stands: layers are listed fastest first."""
    for index, entry in enumerate(entries):
        with contextlib.suppress(ConfigError):
            if parse_rate(entry.get("bandwidth", "")) < parse_rate(layer.bandwidth):
                return index
    return len(entries)


def _check(content: dict[str, Any], after: str, layer: MeasuredLayer, index: int | None, path: str) -> None:
    """Hold the new text to what it should say, worked out from the old content and not from the text."""
    expected = copy.deepcopy(content)
    entries = expected.setdefault("resources", {}).setdefault("storage", [])
    if index is None:
        entries.insert(_place(layer, entries), dict(layer.values))
    else:
        entries[index].update(layer.values)
    try:
        found = tomllib.loads(after)
    except tomllib.TOMLDecodeError:
        found = None
    if found is None:
        raise ConfigError(
            f"{path}: [resources] or its storage is written inline, which leaves no place for another table; "
            "write it as [resources] and [[resources.storage]], or use --no-write"
        )
    if found != expected:
        raise InternalError(f"adding a layer to {path} would have changed more than that; nothing was written")


def _note_lines(layer: MeasuredLayer) -> list[str]:
    return [f"{_MARK} {note}".rstrip() for note in layer.notes]


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda match: f"\\u{ord(match[0]):04x}", escaped) + '"'


# --- files ------------------------------------------------------------------------------------------------------------


def _read(path: str) -> str | None:
    """The text with its line ends as they are; None if there is no such file."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from None


def _parse(text: str, path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
