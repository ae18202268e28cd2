"""A machine described in the form of COMPSs: which node is ours, its layers, what a mistake is answered with."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.model.resources import StorageLayer
from penstock.runtime.compss_xml import layers_of_this_host, read_compss_xml
from penstock.runtime.config import load_config
from penstock.runtime.layers import NodeKind, layers, nodes

WHOLE = """<?xml version="1.0" encoding="UTF-8" standalone="yes"?>
<ResourcesList>
    <SharedDisk Name="sharedDisk1"/>
    <ComputeNode Name="s01r1b01">
        <Processor Name="P1"><ComputingUnits>24</ComputingUnits><Speed>2.1</Speed></Processor>
        <Processor Name="P2"><ComputingUnits>24</ComputingUnits></Processor>
        <Memory><Size>370</Size></Memory>
        <Storage Name="gpfs">
            <Type>PFS</Type><Bandwidth>980</Bandwidth><MountPoint>/gpfs</MountPoint>
        </Storage>
        <!-- on the second socket -->
        <storage Name="ssd">
            <BANDWIDTH>2743MB/s</BANDWIDTH><mountPoint>scratch</mountPoint>
            <Capacity>200000</Capacity><CPUAffinity>20-22,40</CPUAffinity><Shared>no</Shared>
        </storage>
        <Adaptors><Adaptor Name="comm"/></Adaptors>
    </ComputeNode>
    <ComputeNode Name="s01r1b02.cluster"/>
</ResourcesList>
"""


def write(folder: Path, text: str) -> str:
    path = folder / "resources.xml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def one_node(inside: str, name: str = "here") -> str:
    return f'<ResourcesList><ComputeNode Name="{name}">{inside}</ComputeNode></ResourcesList>'


def storage(inside: str) -> str:
    return one_node(f'<Storage Name="ssd">{inside}</Storage>')


ENOUGH = "<Bandwidth>450</Bandwidth><MountPoint>/x</MountPoint>"


def only_layer(folder: Path, inside: str) -> StorageLayer:
    (described,) = layers_of_this_host(write(folder, storage(inside)))
    return described.layer


def test_a_whole_file(tmp_path: Path) -> None:
    first, second = read_compss_xml(write(tmp_path, WHOLE))
    ssd = StorageLayer("ssd", str(tmp_path / "scratch"), 2743e6, 200_000_000_000, (20, 21, 22, 40))
    gpfs = StorageLayer("gpfs", "/gpfs", 980e6, shared=True)
    assert first.kind == NodeKind("s01r1b01", cpus=48, memory=370 * 10**9, storage=(ssd, gpfs))
    assert second.kind == NodeKind("s01r1b02.cluster", storage=())


def test_it_replaces_the_tables_of_a_run(tmp_path: Path) -> None:
    path = write(
        tmp_path, one_node('<Storage Name="here"><Bandwidth>9</Bandwidth><MountPoint>.</MountPoint></Storage>')
    )
    config = load_config({"resources_file": "resources.xml", "io_executors": 5}, {}, str(tmp_path)).config
    assert config.resources_file == path
    (layer,) = layers(config)
    assert (layer.name, layer.mount, layer.bandwidth) == ("here", str(tmp_path), 9e6)
    (kind,) = nodes(config)
    assert (kind.name, kind.io_executors, kind.storage and kind.storage[0].name) == ("here", 5, "here")


def test_a_mount_that_is_not_there_is_told_with_its_place(tmp_path: Path) -> None:
    path = write(tmp_path, storage("<Bandwidth>9</Bandwidth><MountPoint>gone</MountPoint>"))
    config = load_config({"resources_file": path}, {}, str(tmp_path)).config
    with pytest.raises(
        ConfigError, match=r'resources.xml: ComputeNode "here", Storage "ssd": mount = .*does not exist'
    ):
        layers(config)


@pytest.mark.parametrize(
    ("inside", "shared"),
    [
        ("<Type>PFS</Type>", True),
        ("<Type>pfs</Type><Shared>false</Shared>", False),
        ("<Shared>false</Shared><Type>PFS</Type>", False),
        ("<Type>SSD</Type>", False),
        ("<Type>SSD</Type><Shared>true</Shared>", True),
        ("", False),
    ],
)
def test_a_parallel_file_system_is_shared_unless_told_otherwise(tmp_path: Path, inside: str, shared: bool) -> None:
    assert only_layer(tmp_path, ENOUGH + inside).shared is shared


@pytest.mark.parametrize(
    ("inside", "capacity"),
    [
        ("", None),
        ("<Capacity>5</Capacity>", 5_000_000),
        ("<Capacity>2GiB</Capacity>", 2 << 30),
        ("<Size>200.0</Size>", 200_000_000_000),
        ("<Capacity>5</Capacity><Size>200</Size>", 5_000_000),
    ],
)
def test_capacity_counts_megabytes_and_size_gigabytes(tmp_path: Path, inside: str, capacity: int | None) -> None:
    assert only_layer(tmp_path, ENOUGH + inside).capacity == capacity


def test_a_namespace_is_no_obstacle_and_a_type_is_a_name(tmp_path: Path) -> None:
    text = one_node(f"<Storage><Type>SSD</Type>{ENOUGH}</Storage>")
    text = text.replace("<ResourcesList>", '<ResourcesList xmlns="urn:x">')
    (described,) = layers_of_this_host(write(tmp_path, text))
    assert described.layer.name == "ssd"


# --- which node -------------------------------------------------------------------------------------------------------


def names(folder: Path, host: str, *nodes_there: str) -> str:
    text = "".join(
        f'<ComputeNode Name="{name}"><Storage Name="of {name}">{ENOUGH}</Storage></ComputeNode>' for name in nodes_there
    )
    (described,) = layers_of_this_host(write(folder, f"<ResourcesList>{text}</ResourcesList>"), host)
    return described.layer.name.removeprefix("of ")


@pytest.mark.parametrize(
    ("host", "there", "chosen"),
    [
        ("n2", ("localhost", "n2", "n2.site"), "n2"),
        ("n2.site", ("localhost", "n2", "n3"), "n2"),
        ("n2", ("localhost", "n2.site", "n3"), "n2.site"),
        ("n2", ("n1", "localhost"), "localhost"),
        ("n2", ("n1", "127.0.0.1"), "127.0.0.1"),
        ("n2", ("n1",), "n1"),
    ],
)
def test_the_node_of_this_host(tmp_path: Path, host: str, there: tuple[str, ...], chosen: str) -> None:
    assert names(tmp_path, host, *there) == chosen


def test_of_several_strangers_none_is_ours(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no ComputeNode is called 'n9'.*there are n1, n2$"):
        names(tmp_path, "n9", "n1", "n2")
    with pytest.raises(ConfigError, match=r"there are n0, .*, n7 and 2 more$"):
        names(tmp_path, "n99", *(f"n{number}" for number in range(10)))


# --- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (storage("<MountPoint>/x</MountPoint>"), r': ComputeNode "here", Storage "ssd": Bandwidth is missing$'),
        (storage("<Bandwidth>3</Bandwidth>"), r': ComputeNode "here", Storage "ssd": MountPoint is missing$'),
        (storage(f"{ENOUGH}<Capacity>much</Capacity>"), "Capacity = 'much': cannot read 'much' as a size"),
        (storage(f"{ENOUGH}<Size>0</Size>"), "Size = '0': expected a size above zero"),
        (storage(f"{ENOUGH}<CPUAffinity>a</CPUAffinity>"), "CPUAffinity = 'a': expected CPU numbers"),
        (storage(f"{ENOUGH}<Shared>maybe</Shared>"), "Shared = 'maybe': expected true or false"),
        (storage("<Bandwidth>0</Bandwidth><MountPoint>/x</MountPoint>"), "Bandwidth = '0': expected a rate above zero"),
        (storage(f"{ENOUGH}<Mountpiont>/y</Mountpiont>"), r"no tag <mountpiont> \(= '/y'\); did you mean mountpoint\?"),
        (one_node(f"<Storage>{ENOUGH}</Storage>"), r"Name = '': expected a name"),
        (one_node("", name=""), "a ComputeNode has no Name"),
        (one_node(f'<Storage Name="a">{ENOUGH}</Storage>' * 2), r"Name = 'a' is taken by"),
        (
            one_node("".join(f'<Storage Name="{name}">{ENOUGH}</Storage>' for name in "ab")),
            r"Storage \"b\": MountPoint = '/x' is taken by .*Storage \"a\"",
        ),
        (
            one_node("<Processor><ComputingUnits>few</ComputingUnits></Processor>"),
            "ComputingUnits = 'few': expected a whole number above zero",
        ),
        (one_node("<Memory><Size>big</Size></Memory>"), "Memory Size = 'big': cannot read 'big' as a size"),
        ("<ResourcesList/>", "there is no ComputeNode in it"),
        ("<Project/>", "expected <ResourcesList>, found <Project>; that is a project file"),
        ("<html/>", "expected <ResourcesList>, found <html>$"),
        ("<ResourcesList>", "is not valid XML"),
    ],
)
def test_mistakes_name_file_node_storage_and_tag(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError, match=message) as caught:
        read_compss_xml(path)
    assert path in str(caught.value)


def test_two_nodes_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Name = 'n' is taken by"):
        read_compss_xml(
            write(tmp_path, '<ResourcesList><ComputeNode Name="n"/><ComputeNode Name="n"/></ResourcesList>')
        )


def test_entities_are_refused_before_they_are_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("450")
    declared = f'<!DOCTYPE r [<!ENTITY bw SYSTEM "file://{secret}">]>'
    text = declared + storage("<Bandwidth>&bw;</Bandwidth><MountPoint>/x</MountPoint>")
    for content in (text.encode(), text.encode("utf-8-sig")):
        (tmp_path / "resources.xml").write_bytes(content)
        with pytest.raises(ConfigError, match="needs no DOCTYPE"):
            read_compss_xml(str(tmp_path / "resources.xml"))
    for encoding in ("utf-16", "utf-16-le"):
        (tmp_path / "resources.xml").write_bytes(text.encode(encoding))
        with pytest.raises(ConfigError):
            read_compss_xml(str(tmp_path / "resources.xml"))


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^cannot read .*gone.xml: .*No such file"):
        read_compss_xml(str(tmp_path / "gone.xml"))
