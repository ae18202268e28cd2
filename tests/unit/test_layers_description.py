"""Storage layers as people describe them: what is understood, in which order, and what a mistake is answered with."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ConfigError
from penstock.model.resources import StorageLayer
from penstock.runtime.config import Config, load_config
from penstock.runtime.layers import NodeKind, layers, nodes, ordered, read_layers

GB = 10**9


def described(folder: Path, text: str) -> Config:
    (folder / "penstock.toml").write_text(text)
    return load_config({}, {}, str(folder)).config


def passed(folder: Path, *tables: Any) -> Config:
    return load_config({"storage": tables}, {}, str(folder)).config


def table(name: str = "ssd", **values: Any) -> dict[str, Any]:
    return {"name": name, "mount": ".", "bandwidth": 450} | values


def only(config: Config) -> StorageLayer:
    (layer,) = layers(config)
    return layer


def left_by_a_killed_run(mount: Path, size: int) -> Path:
    """A file that was not brought home; the number is that of no process."""
    kept = mount / f"penstock-{os.getuid()}-{1 << 23}-0123abcd-layer" / "kept" / "1.0-1234" / "file"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(bytes(size))
    return kept


def test_what_a_killed_run_left_is_taken_of_the_capacity(tmp_path: Path) -> None:
    config = passed(tmp_path, table(capacity="1MB"))
    kept = left_by_a_killed_run(tmp_path, 300_000)
    (kept.parents[2] / "work").mkdir()
    (kept.parents[2] / "work" / "half").write_bytes(bytes(1000))  # the next run removes it
    layer = only(config)
    assert (layer.capacity, layer.taken) == (1_000_000, 300_000)
    assert only(passed(tmp_path, layer)) == layer
    kept.unlink()
    assert only(config).taken == 0


@pytest.mark.parametrize("made", [table(temporary=True), StorageLayer("ssd", ".", 450e6, temporary=True)])
def test_a_layer_for_temporary_files_only(tmp_path: Path, made: Any) -> None:
    assert only(passed(tmp_path, made)).temporary
    assert not only(passed(tmp_path, table())).temporary


# --- what is understood -----------------------------------------------------------------------------------------------


def test_a_full_description(tmp_path: Path) -> None:
    for name in ("fast", "scratch", "projects"):
        (tmp_path / name).mkdir()
    config = described(
        tmp_path,
        """
        [resources]
        io_executors = 225
        [[resources.storage]]
        name = "gpfs"
        mount = "projects"
        bandwidth = "120MB/s"
        shared = true
        [[resources.storage]]
        name = "nvme"
        mount = "fast"
        bandwidth = "1.5GB/s"
        capacity = "2MB"
        cpus = "0-3,8"
        [[resources.storage]]
        name = "ssd"
        mount = "scratch"
        bandwidth = 450
        capacity = 3
        cpus = [4, 5, 4]
        curve = [[1, "300MB/s"], [8, 450], [64, 90.5]]
        """,
    )
    nvme, ssd, gpfs = layers(config)
    assert nvme == StorageLayer("nvme", str(tmp_path / "fast"), 1.5e9, 2_000_000, (0, 1, 2, 3, 8))
    curve = ((1, 300e6), (8, 450e6), (64, 90.5e6))
    assert ssd == StorageLayer("ssd", str(tmp_path / "scratch"), 450e6, 3_000_000, (4, 5), curve=curve)
    assert (gpfs.name, gpfs.bandwidth, gpfs.shared) == ("gpfs", 120e6, True)


def test_room_is_what_was_described_and_never_more_than_is_free(tmp_path: Path) -> None:
    status = os.statvfs(tmp_path)
    size = status.f_blocks * status.f_frsize
    assert only(passed(tmp_path, table(capacity="1MB"))).capacity == 1_000_000
    for too_much_or_nothing in (table(capacity=f"{size * 2}B"), table()):
        capacity = only(passed(tmp_path, too_much_or_nothing)).capacity
        assert capacity is not None
        assert 0 < capacity <= size


def test_mounts_start_at_the_file_and_may_use_home_and_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "job7" / "x").mkdir(parents=True)
    inner = tmp_path / "inner"
    inner.mkdir()
    monkeypatch.setenv("JOB", "job7")
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "penstock.toml").write_text(
        '[[resources.storage]]\nname = "a"\nmount = "$JOB"\nbandwidth = 2\n'
        '[[resources.storage]]\nname = "b"\nmount = "~/${JOB}/x"\nbandwidth = 1\n'
    )
    found = layers(load_config({}, {}, str(inner)).config)
    assert [layer.mount for layer in found] == [str(tmp_path / "job7"), str(tmp_path / "job7" / "x")]


def test_layers_may_be_passed_as_values(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    made = StorageLayer("b", "b", 5e8, 7_000_000, (1,), shared=True, curve=((1, 1e8), (2, 1.5e8)))
    config = passed(tmp_path, table("a", bandwidth="1GB/s"), made)
    a, b = layers(config)
    assert a.name == "a"
    assert b == StorageLayer("b", str(tmp_path / "b"), 5e8, 7_000_000, (1,), shared=True, curve=((1, 1e8), (2, 1.5e8)))


def test_no_layers_is_an_answer_too(tmp_path: Path) -> None:
    assert layers(passed(tmp_path)) == ()


def test_without_a_description_layers_are_found(tmp_path: Path) -> None:
    assert layers(load_config({}, {}, str(tmp_path)).config)


BANDWIDTHS = st.sampled_from([1e8, 2e8, 3e8])
CAPACITIES = st.sampled_from([None, 1, 2, 3])


@given(st.lists(st.tuples(BANDWIDTHS, CAPACITIES), max_size=8))
def test_the_fastest_is_first_and_of_equals_the_smallest(pairs: list[tuple[float, int | None]]) -> None:
    unordered = [StorageLayer(str(n), "/", bandwidth, capacity) for n, (bandwidth, capacity) in enumerate(pairs)]
    result = ordered(unordered)
    assert sorted(layer.name for layer in result) == sorted(layer.name for layer in unordered)
    for one, next_one in itertools.pairwise(result):
        assert one.bandwidth >= next_one.bandwidth
        if one.bandwidth == next_one.bandwidth and next_one.capacity is not None:
            assert one.capacity is not None
            assert one.capacity <= next_one.capacity


# --- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("bandwith = 3", r"there is no key 'bandwith' \(= 3\); did you mean bandwidth\?"),
        ("bandwidth = 0", "bandwidth = 0: expected a rate above zero"),
        ("bandwidth = '40MB'", "bandwidth = '40MB': cannot read '40MB' as a rate"),
        ("bandwidth = true", "bandwidth = True: cannot read True as a rate"),
        ("capacity = 0", "capacity = 0: expected a size above zero"),
        ("capacity = 'much'", "capacity = 'much': cannot read 'much' as a size"),
        ("capacity = [1]", r"capacity = \[1\]: expected a size"),
        ("cpus = [-1]", r"cpus = \[-1\]: expected CPU numbers"),
        ("cpus = [true]", r"cpus = \[True\]: expected CPU numbers"),
        ("cpus = 3", "cpus = 3: expected CPU numbers"),
        ("cpus = '0-'", "cpus = '0-': expected CPU numbers"),
        ("cpus = '3-1'", "cpus = '3-1': there are no CPUs 3-1"),
        ("cpus = '0-99999999999'", "there are no CPUs 0-99999999999"),
        ("shared = 'perhaps'", "shared = 'perhaps': expected true or false"),
        ("curve = []", r"curve = \[\]: expected pairs of streams and rate"),
        ("curve = [[1, 2, 3]]", "expected pairs of streams and rate"),
        ("curve = [[0, 5]]", "streams are whole numbers above zero, not 0"),
        ("curve = [[1.5, 5]]", "streams are whole numbers above zero, not 1.5"),
        ("curve = [[2, 5], [2, 6]]", "streams must grow, and 2 follows 2"),
        ("curve = [[1, 0]]", "expected a rate above zero"),
        ("name = ''", "name = '': expected a name"),
        ("mount = 3", "mount = 3: expected a path"),
    ],
)
def test_a_mistake_is_told_with_file_table_key_and_value(tmp_path: Path, line: str, message: str) -> None:
    key = line.partition(" ")[0]
    lines = [text for text in ('name = "ssd"', 'mount = "."', "bandwidth = 450") if not text.startswith(f"{key} ")]
    second = "\n".join(["[[resources.storage]]", *lines, line])
    with pytest.raises(ConfigError, match=message) as caught:
        described(tmp_path, f'[[resources.storage]]\nname = "other"\nmount = "/"\nbandwidth = 1\n{second}\n')
    assert str(caught.value).startswith(f"{tmp_path / 'penstock.toml'}: [[resources.storage]] 2")
    assert key == "name" or '"ssd"' in str(caught.value)


@pytest.mark.parametrize("key", ["name", "mount", "bandwidth"])
def test_what_cannot_be_guessed_is_asked_for(tmp_path: Path, key: str) -> None:
    whole = table()
    del whole[key]
    with pytest.raises(ConfigError, match=rf"^storage 1.*: {key} is missing$"):
        passed(tmp_path, whole)


def test_a_layer_made_in_python_is_checked_like_a_table(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r'^storage 1 "ssd": bandwidth = .*expected a rate above zero'):
        passed(tmp_path, StorageLayer("ssd", ".", 0.0))
    with pytest.raises(ConfigError, match="bandwidth = 'infB/s'"):
        passed(tmp_path, StorageLayer("ssd", ".", float("inf")))


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^storage 1: expected a table, not '/scratch'"):
        passed(tmp_path, "/scratch")


def test_names_and_mounts_are_unique(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    with pytest.raises(ConfigError, match=r'^storage 2 "ssd": name = \'ssd\' is taken by storage 1 "ssd"$'):
        passed(tmp_path, table(), table(mount="x"))
    with pytest.raises(ConfigError, match=r'^storage 2 "b": mount = .* is taken by storage 1 "ssd"$'):
        passed(tmp_path, table(), table("b", mount="x/.."))


def test_two_ways_to_one_directory_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "link").symlink_to("x")
    config = passed(tmp_path, table(mount="x"), table("b", mount="link"))
    with pytest.raises(ConfigError, match=r'^storage 2 "b": mount = .* is taken by storage 1 "ssd"$'):
        layers(config)


def test_a_mount_must_be_a_directory_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    config = described(tmp_path, '[[resources.storage]]\nname = "ssd"\nmount = "gone"\nbandwidth = 1\n')
    with pytest.raises(ConfigError) as caught:
        layers(config)
    place = f'{tmp_path / "penstock.toml"}: [[resources.storage]] 1 "ssd"'
    assert str(caught.value) == f"{place}: mount = '{tmp_path / 'gone'}' does not exist; make it, or correct the path"
    assert not (tmp_path / "gone").exists()
    with pytest.raises(ConfigError, match=r"file' is not a directory"):
        layers(passed(tmp_path, table(mount="file")))
    with pytest.raises(ConfigError, match=r"does not exist.*\(a variable in it is not set\)"):
        layers(passed(tmp_path, table(mount="$NO_SUCH_VARIABLE_HERE/x")))


def test_a_mount_must_be_writable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = passed(tmp_path, table())
    real = os.access
    # Those who run as root may write anywhere: say no in the place of the file system.
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK and real(path, mode))
    with pytest.raises(ConfigError, match=r'^storage 1 "ssd": mount = .* is not writable$'):
        layers(config)


# --- kinds of node ----------------------------------------------------------------------------------------------------

CLUSTER = """
[resources]
memory = "8GB"
io_executors = 4
[[resources.storage]]
name = "disk"
mount = "/no/such/disk"
bandwidth = 150
[[resources.node]]
name = "fat"
count = 2
cpus = 48
memory = "370GB"
io_executors = 225
[[resources.node.storage]]
name = "gpfs"
mount = "/no/such/gpfs"
bandwidth = "12GB/s"
shared = true
[[resources.node.storage]]
name = "ram"
mount = "/no/such/ram"
bandwidth = "20GB/s"
[[resources.node]]
name = "thin"
"""


def test_kinds_of_node_need_not_exist_here_and_inherit_what_they_leave_open(tmp_path: Path) -> None:
    fat, thin = nodes(described(tmp_path, CLUSTER))
    ram = StorageLayer("ram", "/no/such/ram", 20e9)
    gpfs = StorageLayer("gpfs", "/no/such/gpfs", 12e9, shared=True)
    assert fat == NodeKind("fat", 2, 48, 370 * GB, 225, (ram, gpfs), countable=())
    disk = StorageLayer("disk", "/no/such/disk", 150e6)
    assert thin == NodeKind("thin", 1, None, 8 * GB, 4, (disk,), countable=())


def test_without_kinds_there_are_none(tmp_path: Path) -> None:
    assert nodes(load_config({}, {}, str(tmp_path)).config) == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cpus = 3", r"\[\[resources.node\]\] 1: name is missing"),
        ("name = 'a'\ncont = 3", r"\[\[resources.node\]\] 1 \"a\": there is no key 'cont' .*did you mean count\?"),
        ("name = 'a'\ncount = 0", r'1 "a": count = 0: expected a whole number above zero'),
        ("name = 'a'\n[[resources.node]]\nname = 'a'", r"2 \"a\": name = 'a' is taken by .* 1 \"a\""),
        ("name = 'a'\nstorage = 'ssd'", r'1 "a": storage: expected a list of tables'),
        (
            "name = 'a'\n[[resources.node.storage]]\nname = 'ssd'\nmount = '/x'",
            r'1 "a": storage 1 "ssd": bandwidth is missing',
        ),
    ],
)
def test_mistakes_in_kinds_of_node(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        described(tmp_path, f"[[resources.node]]\n{text}\n")


def test_a_shared_layer_has_one_bandwidth(tmp_path: Path) -> None:
    layer = "[[resources.node.storage]]\nname = 'gpfs'\nmount = '/g'\nshared = true\n"
    tables = [
        f"[[resources.node]]\nname = '{name}'\n{layer}bandwidth = {rate}\n" for name, rate in (("a", 1), ("b", 2))
    ]
    config = described(tmp_path, "".join(tables))
    with pytest.raises(ConfigError, match="the shared layer 'gpfs' .* 1 MB/s in node 'a' and 2 MB/s in 'b'"):
        nodes(config)


@pytest.mark.parametrize("written", ["1: 180MB/s, 8: 450MB/s", [[1, "180MB/s"], [8, 450]]])
def test_a_measured_curve_does_not_make_a_layer_emulated(tmp_path: Path, written: object) -> None:
    table = {"name": "ssd", "mount": str(tmp_path), "bandwidth": "450MB/s", "measured": written}
    (described,) = read_layers([table], str(tmp_path), "here")
    assert described.layer.measured == ((1, 180e6), (8, 450e6))
    assert described.layer.curve == ()
    (again,) = read_layers([described.layer], str(tmp_path), "here")
    assert again.layer == described.layer


@pytest.mark.parametrize("written", ["fast", "1: 180MB/s, 1: 2MB/s", "x: 3", "", 5])
def test_a_measured_curve_that_makes_no_sense_is_refused(tmp_path: Path, written: object) -> None:
    table = {"name": "ssd", "mount": str(tmp_path), "bandwidth": "450MB/s", "measured": written}
    with pytest.raises(ConfigError, match="measured"):
        read_layers([table], str(tmp_path), "here")
