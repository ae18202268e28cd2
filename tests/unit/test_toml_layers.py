"""Writing a layer into a settings file: what is not the layer stays as it is, to the byte."""

from __future__ import annotations

import os
import stat
import tomllib
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from penstock.errors import ConfigError
from penstock.runtime.config import load_config
from penstock.runtime.describe import (
    Edit,
    MeasuredLayer,
    default_name,
    layer_table,
    plan_edit,
    settings_file,
)
from penstock.runtime.toml_text import TomlText

LAYER = MeasuredLayer("ssd", "/scratch", "450MB/s", "200GB", ("1 stream: 450MB/s",))
TABLE = """\
[[resources.storage]]
# probe: 1 stream: 450MB/s
name = "ssd"
mount = "/scratch"
bandwidth = "450MB/s"
capacity = "200GB"
"""


def edited(path: Path, before: str | None, layer: MeasuredLayer = LAYER, *, name_given: bool = True) -> str:
    if before is not None:
        path.write_bytes(before.encode())
    plan_edit(str(path), layer, name_given=name_given).write()
    return path.read_bytes().decode()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "penstock.toml"


# --- a new entry ------------------------------------------------------------------------------------------------------


def test_the_table_is_what_a_person_would_write() -> None:
    assert layer_table(LAYER) == TABLE


def test_a_file_is_made_where_there_is_none(file: Path) -> None:
    assert edited(file, None) == TABLE
    assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0o077 & ~current_umask() & 0o066
    assert os.listdir(file.parent) == [file.name]


def current_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_an_entry_is_added_at_the_end(file: Path) -> None:
    before = "# mine\n[runtime]\nstrict = true  # always\n\n\n"
    assert edited(file, before) == "# mine\n[runtime]\nstrict = true  # always\n\n" + TABLE + "\n\n"


@pytest.mark.parametrize("ending", ["", "\n"])
def test_a_last_line_without_an_end_gets_one(file: Path, ending: str) -> None:
    assert edited(file, "[resources]\ncpus = 4" + ending) == "[resources]\ncpus = 4\n\n" + TABLE


OTHERS = """\
# fast one
[[resources.storage]]
name = "nvme"
mount = "/nvme"
bandwidth = "{first}"

# the big one,
# shared by all
[[ resources . "storage" ]]
name = "gpfs"
mount = "/gpfs"
bandwidth = "{second}"
[resources.storage.note]
from = "IOR"

# and nodes
[[resources.node]]
name = "fat"
[[resources.node.storage]]
name = "ssd"
mount = "/scratch"
"""


def test_layers_stand_fastest_first_and_comments_stay_with_their_entries(file: Path) -> None:
    between = OTHERS.format(first="2GB/s", second="100MB/s")
    assert edited(file, between) == between.replace("# the big one", TABLE + "\n# the big one")
    slowest = OTHERS.format(first="12GB/s", second="1GB/s")
    assert edited(file, slowest) == slowest.replace('"IOR"\n\n# and', f'"IOR"\n\n{TABLE}\n# and')
    fastest = OTHERS.format(first="200MB/s", second="100MB/s")
    assert edited(file, fastest) == TABLE + "\n" + fastest


def test_an_entry_is_set_off_from_a_table_that_follows_closely(file: Path) -> None:
    head, tail = '[[resources.storage]]\nname = "nvme"\nmount = "/n"\nbandwidth = "9GB/s"\n', "[runtime]\nlog = true\n"
    assert edited(file, head + tail) == f"{head}\n{TABLE}\n{tail}"


def test_a_subtable_further_down_stays_with_its_entry(file: Path) -> None:
    before = '[[resources.storage]]\nname = "b"\n[runtime]\nlog = true\n[resources.storage.note]\nfrom = "IOR"\n'
    assert edited(file, before) == before + "\n" + TABLE


def test_line_ends_stay_what_they_are(file: Path) -> None:
    before = "[runtime]\r\nlog = true\r\n"
    after = edited(file, before)
    assert after == before + "\r\n" + TABLE.replace("\n", "\r\n")


def test_headers_inside_strings_and_arrays_are_no_headers(file: Path) -> None:
    before = (
        '[runtime]\nscheduler = """\n[[resources.storage]]\nname = "ssd"\n"""\n'
        "run_dir = '''\n[[resources.storage]]'''\nlist = [\n  '[[resources.storage]]', # [[resources.storage]]\n  ]\n"
    )
    assert edited(file, before) == before + "\n" + TABLE


def test_strange_names_are_escaped(file: Path) -> None:
    layer = MeasuredLayer('a"b\\c\n', "/é\x7f/\t", "1MB/s", "1MB")
    content = tomllib.loads(edited(file, None, layer))
    assert content["resources"]["storage"] == [layer.values]


# --- an entry that exists ---------------------------------------------------------------------------------------------

OLD = """\
[resources]
cpus = 4

[[resources.storage]]   # the local disk
# probe: 1 stream: 300MB/s
# probe: 2 streams: 310MB/s
name = 'ssd'
"mount" = "/scratch"
bandwidth = "310MB/s" # "as measured"
# not all of it is ours
shared = false

# below
[runtime]
log = true
"""


def test_only_what_was_measured_changes_in_an_entry(file: Path) -> None:
    assert edited(file, OLD) == OLD.replace(
        "# probe: 1 stream: 300MB/s\n# probe: 2 streams: 310MB/s\n", "# probe: 1 stream: 450MB/s\n"
    ).replace('"310MB/s" #', '"450MB/s" #').replace("shared = false\n", 'shared = false\ncapacity = "200GB"\n')


def test_an_entry_at_the_very_end_without_a_line_end(file: Path) -> None:
    before = '[[resources.storage]]\nname = "ssd"\nmount = "/scratch"\nbandwidth = 10'
    assert edited(file, before) == TABLE


def test_a_header_that_is_all_there_is(file: Path) -> None:
    layer = MeasuredLayer("ssd", "/scratch", "1MB/s", "2MB")
    before = '[[resources.storage]]\nmount = "/scratch"'
    content = tomllib.loads(edited(file, before, layer))
    assert content["resources"]["storage"] == [layer.values]


def test_writing_again_changes_nothing(file: Path) -> None:
    once = edited(file, OLD)
    assert edited(file, None) == once


def test_the_replaced_entry_is_told(file: Path) -> None:
    file.write_text(OLD)
    edit = plan_edit(str(file), LAYER, name_given=True)
    assert edit.replaced == {"name": "ssd", "mount": "/scratch", "bandwidth": "310MB/s", "shared": False}
    assert file.read_text() == OLD
    assert plan_edit(str(file), MeasuredLayer("x", "/x", "1MB/s", "1MB"), name_given=True).replaced is None


def entry(name: str, mount: str, more: str = "") -> str:
    return f'[[resources.storage]]\nname = "{name}"\nmount = "{mount}"\n{more}'


@pytest.mark.parametrize(
    ("before", "name_given", "names"),
    [
        (entry("disk", "/scratch"), False, ["disk"]),  # the mount knows its name
        (entry("disk", "/scratch"), True, ["ssd"]),  # the user knows better
        (entry("ssd", "/other"), False, ["ssd", "ssd-2"]),
        (entry("ssd", "/a") + entry("ssd-2", "/b"), False, ["ssd", "ssd-2", "ssd-3"]),
        (entry("ssd", "/other"), True, ["ssd"]),
        (entry("disk", "../../../../../../../../../../scratch"), False, ["disk"]),  # from where the file is
    ],
)
def test_which_entry_is_meant(file: Path, before: str, name_given: bool, names: list[str]) -> None:
    entries = tomllib.loads(edited(file, before, name_given=name_given))["resources"]["storage"]
    assert sorted(one["name"] for one in entries) == names
    assert [one["mount"] for one in entries].count("/scratch") == 1


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "message"),
    [
        ("[resources", "not valid TOML"),
        ("resources = 3\n", "must be written as"),
        ("[resources]\nstorage = 'ssd'\n", "must be written as"),
        ("resources = {cpus = 4}\n", "inline"),
        ('[resources]\nstorage = [{name = "x", mount = "/x"}]\n', "inline"),
        ('[resources]\nstorage = [{name = "ssd", mount = "/x"}]\n', "inline"),
        (entry("a", "/scratch") + entry("ssd", "/b"), "several layers"),
        (entry("ssd", "/a") + entry("ssd", "/b"), "several layers"),
        (entry("ssd", "/scratch", "curve = [[1, 100]]\n"), "emulated"),
        (entry("ssd", "/scratch", "bandwidth = '''\n1MB/s'''\n"), "plain string"),
    ],
)
def test_files_that_are_refused_stay_as_they_are(file: Path, before: str, message: str) -> None:
    file.write_text(before)
    with pytest.raises(ConfigError, match=message):
        plan_edit(str(file), LAYER, name_given=True)
    assert file.read_text() == before


def test_a_file_that_changed_meanwhile_is_not_overwritten(file: Path) -> None:
    edit = plan_edit(str(file), LAYER, name_given=True)
    file.write_text("# somebody was faster\n")
    with pytest.raises(ConfigError, match="changed meanwhile"):
        edit.write()
    assert file.read_text() == "# somebody was faster\n"


def test_a_failed_write_leaves_the_old_file_and_nothing_else(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text(OLD)
    edit = plan_edit(str(file), LAYER, name_given=True)
    for name in ("fsync", "rename"):
        with monkeypatch.context() as patch:

            def fail(*arguments: object) -> None:
                raise OSError(28, "No space left on device")

            patch.setattr(os, name, fail)
            with pytest.raises(OSError):
                edit.write()
        assert file.read_text() == OLD
        assert os.listdir(file.parent) == [file.name]


def test_mode_and_link_are_kept(file: Path, tmp_path: Path) -> None:
    real = tmp_path / "elsewhere.toml"
    real.write_text(OLD)
    real.chmod(0o640)
    file.symlink_to(real)
    edited(file, None)
    assert file.is_symlink()
    assert "450MB/s" in real.read_text()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


# --- which file, which name -------------------------------------------------------------------------------------------


def test_the_file_is_the_one_that_settings_come_from(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert settings_file(None, str(inner)) == str(inner / "penstock.toml")
    (tmp_path / "a" / "pyproject.toml").write_text('[project]\nname = "penstock-user"\n')
    (tmp_path / "penstock.toml").write_text("[runtime]\nlog = true\n")
    assert settings_file(None, str(inner)) == str(tmp_path / "penstock.toml")
    assert load_config({}, environ={}, cwd=str(inner)).origins["log"] == str(tmp_path / "penstock.toml")
    assert settings_file("mine.toml", str(inner)) == str(inner / "mine.toml")


def test_settings_in_pyproject_are_refused(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.penstock.runtime]\nlog = true\n")
    inner = tmp_path / "inner"
    inner.mkdir()
    assert load_config({}, environ={}, cwd=str(inner)).origins["log"] == str(tmp_path / "pyproject.toml")
    with pytest.raises(ConfigError, match=r"\[tool.penstock\]"):
        settings_file(None, str(inner))
    with pytest.raises(ConfigError, match="not written to"):
        settings_file("../pyproject.toml", str(inner))
    assert settings_file("penstock.toml", str(inner)) == str(inner / "penstock.toml")


@pytest.mark.parametrize("given", ["missing/penstock.toml", ".", "pipe", "link"])
def test_files_that_cannot_be_written_are_refused_early(tmp_path: Path, given: str) -> None:
    """A pipe, or a device, would be waited for, and then replaced."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    with pytest.raises(ConfigError, match="cannot write"):
        settings_file(given, str(tmp_path))


def test_a_link_to_a_file_that_is_not_there_yet_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("penstock.toml")
    assert settings_file("link", str(tmp_path)) == str(tmp_path / "link")


def test_a_layer_is_named_after_its_mount_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / "big disk!" / "me" / "data"
    deep.mkdir(parents=True)
    monkeypatch.setattr(os.path, "ismount", lambda path: path in (str(tmp_path / "big disk!"), "/"))
    assert default_name(str(deep)) == "big-disk"
    assert default_name(str(tmp_path)) == "work"


# --- any file ---------------------------------------------------------------------------------------------------------

LINES = [
    "",
    "# a comment",
    "   # an indented one",
    "[runtime]",
    "[resources]",
    "[[resources.storage]]",
    "[[resources.node]]",
    "[resources.storage.note]",
    "[[resources.node.storage]]",
    'name = "ssd"',
    "name = 'b'",
    'mount = "/scratch"',
    'mount = "/b"',
    "bandwidth = 3 # MB/s",
    'bandwidth = "9GB/s"',
    'text = """',
    "x = [1,",
    "2]",
    '"""',
    "y = {a = 1}",
]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(LINES), max_size=14), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_any_file_keeps_what_is_not_ours(lines: list[str], newline: str, name_given: bool) -> None:
    before = newline.join(lines)
    try:
        content = tomllib.loads(before)
    except tomllib.TOMLDecodeError:
        assume(False)
    assert "".join(one.text for one in TomlText(before)._statements) == before
    edit = planned(before, name_given=name_given)
    if edit is None:
        return
    after = tomllib.loads(edit.after)
    theirs = content.get("resources", {}).pop("storage", [])
    ours = after["resources"].pop("storage")
    if not after["resources"] and "resources" not in content:
        del after["resources"]
    assert after == content
    changed = [one for one in ours if one not in theirs]
    assert len(changed) <= 1 and len(ours) - len(theirs) == (edit.replaced is None)
    assert all(LAYER.mount == one["mount"] and LAYER.bandwidth == one["bandwidth"] for one in changed)
    # Each of their lines is still there, in order, but for values that were measured anew.
    kept = iter(edit.after.splitlines())
    values = ("name", "mount", "bandwidth", "capacity")
    assert all(line in kept for line in lines if line and not line.startswith(values))


def planned(text: str, *, name_given: bool) -> Edit | None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "penstock.toml"
        path.write_bytes(text.encode())
        try:
            return plan_edit(str(path), LAYER, name_given=name_given)
        except ConfigError:
            return None
