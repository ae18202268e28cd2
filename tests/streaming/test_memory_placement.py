"""A workflow whose files live in memory: what is permanent comes home, the rest vanishes, nothing gets lost."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest
from tests.own_place import memory_dir
from tests.patience import eventually
from tests.streaming.flows import EXPECTED, PAIR, Flow, once
from tests.streaming.own_mounts import need_own_mounts, refusing_own_mounts

KEEPING = PAIR.replace('name = "pair"', 'name = "pair"\npermanent = ["copy.txt"]', 1)


def test_permanent_files_come_home_and_the_rest_vanishes(flow: Flow) -> None:
    flow.toml(KEEPING)
    inode = flow.folder.stat().st_ino
    flow.run("--memory", "--no-log").expect()
    assert not flow.folder.is_symlink() and flow.folder.stat().st_ino == inode
    assert sorted(os.listdir(flow.folder)) == ["consumer.py", "copy.txt", "flow.toml", "producer.py"]
    assert flow.read("copy.txt") == EXPECTED
    assert not list(flow.folder.parent.glob(".work*"))


def test_that_nothing_will_be_kept_is_said(flow: Flow) -> None:
    flow.toml(PAIR)
    ended = flow.run("--memory", "--no-log")
    ended.expect()
    assert "none is named permanent: nothing of them will be kept" in ended.err
    assert "leads out of the directory" not in ended.err
    assert not (flow.folder / "copy.txt").exists()


def test_a_command_that_leads_out_of_the_directory_is_pointed_out(flow: Flow) -> None:
    """Where the directory is not at its place: in a view of their own, programs find their way."""
    flow.prefix = refusing_own_mounts()
    flow.toml('name = "out"\npermanent = ["*"]\n[[step]]\nname = "look"\ncommand = "ls ../ > /dev/null"\n')
    ended = flow.run("--memory", "--no-log")
    ended.expect()
    assert "look names a path that leads out of the directory by ..;" in ended.err


def test_links_and_renamed_folders_come_home_as_they_are(flow: Flow) -> None:
    flow.toml(
        """
        name = "tree"
        permanent = ["*"]
        [[step]]
        name = "make"
        command = "mkdir a; echo one > a/x; ln -s a link; cat link/x; mkdir a/sub b; echo two > a/sub/z; mv a/sub b/sub"
        output = ["a", "b", "link"]
        [[step.stream]]
        files = ["a/*", "b/*", "link/*"]
        commit = "on_close"
        [[step]]
        name = "read"
        command = "cat link/x a/x > seen"
        input = ["a", "link"]
        output = ["seen"]
        """
    )
    flow.run("--memory", "--no-log").expect()
    assert os.readlink(flow.folder / "link") == "a"
    assert sorted(os.listdir(flow.folder / "a")) == ["x"]
    assert flow.read("b/sub/z") == "two\n" and flow.read("seen") == "one\none\n"


@pytest.mark.parametrize("way", ["own view", "copies"])
def test_folders_in_which_nothing_is_come_home_too(flow: Flow, way: str) -> None:
    if way == "copies":
        flow.prefix = refusing_own_mounts()
    else:
        need_own_mounts()
    flow.write("was a file", "")
    flow.toml(
        """
        name = "folders"
        permanent = ["results", "was a file"]
        [[step]]
        name = "make"
        command = "mkdir -p -m 750 results/of/today temporary; rm 'was a file'; mkdir 'was a file'; touch temporary/x"
        output = ["results", "was a file", "temporary"]
        """
    )
    flow.run("--memory", "--no-log").expect()
    assert sorted(os.listdir(flow.folder)) == ["consumer.py", "flow.toml", "producer.py", "results", "was a file"]
    assert (flow.folder / "results" / "of" / "today").stat().st_mode & 0o7777 == 0o750
    assert (flow.folder / "was a file").is_dir()


@pytest.mark.parametrize("way", ["own view", "copies"])
def test_a_permanent_file_is_delivered_while_the_workflow_runs(flow: Flow, tmp_path: Path, way: str) -> None:
    if way == "copies":
        flow.prefix = refusing_own_mounts()
    else:
        need_own_mounts()
    told = tmp_path / "told"
    flow.toml(
        f"""
        name = "early"
        permanent = ["first.txt"]
        [[step]]
        name = "make"
        command = "echo one > first.txt; {once(told)}"
        output = ["first.txt"]
        [[step.stream]]
        files = ["first.txt"]
        commit = "on_close"
        """
    )
    process = flow.start("run", "flow.toml", "--memory")
    home = flow.folder.parent / ".work.penstock" if way == "copies" else flow.folder
    eventually(lambda: (home / "first.txt").exists())
    assert (home / "first.txt").read_text() == "one\n"
    if way == "copies":
        assert flow.folder.is_symlink() and flow.folder.resolve().is_relative_to(memory_dir())
    told.touch()
    flow.ended(process).expect()
    assert flow.read("first.txt") == "one\n"


@pytest.mark.parametrize("way", ["own view", "copies"])
def test_the_mode_is_that_which_a_file_has_in_the_end(flow: Flow, tmp_path: Path, way: str) -> None:
    """Who makes it may let others read it, or not, after it was brought home."""
    if way == "copies":
        flow.prefix = refusing_own_mounts()
    else:
        need_own_mounts()
    told = tmp_path / "told"
    flow.toml(
        f"""
        name = "early"
        permanent = ["secret", "program"]
        [[step]]
        name = "make"
        command = "echo one > secret; echo two > program; {once(told)}; chmod 600 secret; chmod 755 program"
        output = ["secret", "program"]
        [[step.stream]]
        files = ["secret", "program"]
        commit = "on_close"
        """
    )
    process = flow.start("run", "flow.toml", "--memory")
    home = flow.folder.parent / ".work.penstock" if way == "copies" else flow.folder
    eventually(lambda: (home / "secret").exists() and (home / "program").exists())
    told.touch()
    flow.ended(process).expect()
    modes = [(flow.folder / name).stat().st_mode & 0o7777 for name in ("secret", "program")]
    assert modes == [0o600, 0o755]


def test_steps_see_inputs_and_may_rewrite_old_outputs(flow: Flow) -> None:
    flow.write("in/data.txt", "data\n")
    flow.write("copy.txt", "old\n")
    flow.toml(
        """
        name = "inputs"
        permanent = ["copy.txt"]
        [[step]]
        name = "append"
        command = "cat in/data.txt >> copy.txt; ls > names.txt; cat names.txt"
        input = ["in/*"]
        output = ["copy.txt", "names.txt"]
        """
    )
    ended = flow.run("--memory", "--no-log").expect()
    assert flow.read("copy.txt") == "old\ndata\n"
    names = [line.split("│ ")[1] for line in ended.out.splitlines() if "│" in line]
    assert names == ["consumer.py", "copy.txt", "flow.toml", "in", "names.txt", "producer.py"]


def test_absolute_paths_and_those_from_getcwd_are_streamed_too(flow: Flow) -> None:
    flow.toml(KEEPING.replace("consumer.py out.txt", f"consumer.py {flow.folder}/out.txt"))
    flow.run("--memory").expect()
    assert flow.read("copy.txt") == EXPECTED
    flow.toml(KEEPING.replace("consumer.py out.txt", "consumer.py $(pwd -P)/out.txt"))
    flow.run("--memory").expect()
    assert flow.read("copy.txt") == EXPECTED


def test_excluded_files_are_the_real_ones(flow: Flow) -> None:
    flow.write("logs/old.log", "old\n")
    flow.toml(
        """
        name = "exclude"
        exclude = ["logs", "*.log"]
        [[step]]
        name = "a"
        command = "echo new > logs/new.log; echo top > top.log; echo gone > gone.txt"
        """
    )
    flow.run("--memory", "--no-log").expect()
    assert flow.read("logs/new.log") == "new\n" and flow.read("top.log") == "top\n"
    assert not (flow.folder / "gone.txt").exists()


def test_a_permanent_file_that_was_renamed_or_removed_later(flow: Flow) -> None:
    flow.toml(
        """
        name = "renames"
        permanent = ["*.png"]
        [[step]]
        name = "a"
        command = "echo 1 > a.tmp; mv a.tmp a.png; echo 2 > b.png; sleep 0.5; mv b.png c.png; echo 3 > d.png; rm d.png"
        output = ["*"]
        [[step.stream]]
        files = ["*.png"]
        commit = "on_close"
        """
    )
    flow.run("--memory", "--no-log").expect()
    assert sorted(name for name in os.listdir(flow.folder) if name.endswith("png")) == ["a.png", "c.png"]
    assert flow.read("a.png") == "1\n" and flow.read("c.png") == "2\n"


def test_new_folders_and_links_come_home_too(flow: Flow) -> None:
    flow.toml(
        """
        name = "deep"
        permanent = ["results"]
        [[step]]
        name = "a"
        command = "umask 027; mkdir -p results/deep; echo x > results/deep/file; ln -s deep/file results/link"
        output = ["results"]
        """
    )
    flow.run("--memory").expect()
    assert flow.read("results/link") == "x\n" and os.readlink(flow.folder / "results" / "link") == "deep/file"
    assert (flow.folder / "results" / "deep" / "file").stat().st_mode & 0o777 == 0o640


def test_the_json_form_lives_in_memory_unless_told(flow: Flow) -> None:
    import json
    import sys

    config = {
        "name": "json",
        "permanent": ["copy.txt"],
        "IO_Graph": [
            {
                "name": "make",
                "output_stream": ["out.txt"],
                "streaming": [{"name": ["out.txt"], "committed": "on_close", "mode": "no_update"}],
            },
            {"name": "copy", "input_stream": ["out.txt"], "output_stream": ["copy.txt"]},
        ],
    }
    flow.write("flow.json", json.dumps(config))
    flow.environment["CAPIO_DIR"] = str(flow.folder)
    flow.environment["CAPIO_WRITER_CACHE_SIZE"] = "4096"
    server = flow.start("serve", "flow.json")
    copy = flow.start(
        "exec",
        "--app",
        "copy",
        "--",
        sys.executable,
        "consumer.py",
        "out.txt",
        "copy.txt",
    )
    flow.environment["CAPIO_APP_NAME"] = "make"
    make = flow.start("exec", "--", sys.executable, "producer.py", "out.txt", "20", "0.01")
    try:
        flow.ended(make).expect()
        flow.ended(copy).expect()
    finally:
        server.send_signal(signal.SIGTERM)
        ended = flow.ended(server).expect()
    assert "CAPIO_WRITER_CACHE_SIZE has no effect" in ended.err
    assert flow.read("copy.txt") == EXPECTED and not (flow.folder / "out.txt").exists()


def test_an_interrupt_brings_home_what_is_final_and_names_the_rest(flow: Flow) -> None:
    flow.toml(
        """
        name = "stopped"
        permanent = ["*.txt"]
        [[step]]
        name = "make"
        command = "echo done > done.txt; PYTHON producer.py half.txt 100000 0.01"
        output = ["*.txt"]
        [[step.stream]]
        files = ["*.txt"]
        commit = "on_close"
        """
    )
    process = flow.start("run", "flow.toml", "--memory")
    # With something in it: what is not even announced when its maker is killed could be anybody's.
    half = flow.seen_by(process) / "half.txt"
    eventually(lambda: half.exists() and half.stat().st_size)
    process.send_signal(signal.SIGTERM)
    ended = flow.ended(process).expect(143)
    assert flow.read("done.txt") == "done\n"
    assert not (flow.folder / "half.txt").exists()
    assert "not finished: half.txt" in ended.err


WRITES = """
import os, sys
name, how = sys.argv[1:]
if how == "copies":  # within the kernel
    source = os.memfd_create("source")
    os.truncate(source, 24 << 20)
    with open(name, "wb", buffering=0) as file:
        while os.sendfile(file.fileno(), source, None, 24 << 20): pass
else:
    with open(name, "wb", buffering=0) as file:
        for _ in range(24 if how == "small" else 3):
            file.write(bytes(1 << 20 if how == "small" else 8 << 20))
"""

#: reads a megabyte at a time, and looks after each how much room all files take
READS = """
import os, sys
total = most = 0
files = [open(name, "rb", buffering=0) for name in sys.argv[2:]]
while any([data := file.read(1 << 18) for file in files]):
    for _ in range(int(sys.argv[1])):
        most = max(most, sum(os.fstat(file.fileno()).st_blocks * 512 for file in files))
    total += 1
print("most", most)
"""


def test_a_limit_bounds_what_all_streams_take(flow: Flow) -> None:
    """However they are written, and however different their readers are.

    The looks at the files come one after the other, and room may go from one to another between, a write at most.
    """
    flow.write("writes.py", WRITES)
    flow.write("reads.py", READS)
    names = ["small", "large", "copies"]
    steps = [
        f"""
        [[step]]
        name = "write_{name}"
        command = "PYTHON writes.py {name} {name}"
        output = ["{name}"]
        [[step.stream]]
        files = ["{name}"]
        commit = "on_close"
        fire = "no_update"
        """
        for name in names
    ]
    steps += [
        f"""
        [[step]]
        name = "read_{looks}"
        command = "PYTHON reads.py {looks} {" ".join(names)}"
        sizes = "so_far"
        input = ["small", "large", "copies"]
        """
        for looks in (1, 20, 400)
    ]
    flow.toml('name = "bounded"\n' + "".join(steps))
    ended = flow.run("--memory", "--limit", "4MiB").expect()
    most = [int(line.split()[-1]) for line in ended.out.splitlines() if "most" in line]
    assert len(most) == 3 and 0 < max(most) <= 6 << 20
    assert "the limit" not in ended.err


def test_after_a_kill_the_directory_is_put_back_at_once(flow: Flow) -> None:
    flow.prefix = refusing_own_mounts()
    flow.write("precious.txt", "precious\n")
    flow.toml(KEEPING.replace("20 0.01", "100000 0.01"))
    process = flow.start("run", "flow.toml", "--memory", "--no-log")
    eventually(lambda: flow.folder.is_symlink() and (flow.folder / "out.txt").exists())
    process.kill()
    flow.ended(process)
    eventually(lambda: not flow.folder.is_symlink())
    assert flow.read("precious.txt") == "precious\n"
    assert not (flow.folder / "out.txt").exists()


def test_if_the_guard_is_killed_too_the_next_start_puts_it_back(flow: Flow) -> None:
    flow.prefix = refusing_own_mounts()
    flow.write("precious.txt", "precious\n")
    flow.toml(KEEPING.replace("20 0.01", "100000 0.01"))
    process = flow.start("run", "flow.toml", "--memory", "--no-log")
    eventually(lambda: flow.folder.is_symlink() and (flow.folder / "copy.txt").exists())
    process.send_signal(signal.SIGSTOP)  # or it would notice that its steps die, and end in good order
    for child in psutil.Process(process.pid).children(recursive=True):
        child.kill()
    process.kill()
    flow.ended(process)
    assert flow.folder.is_symlink()  # this is how it was left
    aside = flow.folder.parent / ".work.penstock"
    assert (aside / "precious.txt").read_text() == "precious\n"
    elsewhere = flow.folder.parent / "flow.toml"
    elsewhere.write_text((aside / "flow.toml").read_text().replace("100000 0.01", "20 0.01"))
    flow.environment["CAPIO_DIR"] = str(flow.folder)
    again = flow.ended(flow.start("run", str(elsewhere), "--memory", "--no-log", folder=flow.folder.parent)).expect()
    assert "was put back in its place" in again.err
    assert flow.read("precious.txt") == "precious\n" and flow.read("copy.txt") == EXPECTED


def test_a_described_layer_says_where_memory_is_and_how_much_may_be_taken(flow: Flow, tmp_path: Path) -> None:
    told = tmp_path / "told"
    mount = memory_dir() / "layer"
    mount.mkdir()
    try:
        flow.write(
            "penstock.toml",
            f'[[resources.storage]]\nname = "ram"\nmount = "{mount}"\nbandwidth = "1GB/s"\ncapacity = "1MB"\n',
        )
        flow.toml(
            f"""
            name = "capacity"
            [[step]]
            name = "a"
            command = "ls {mount}; head -c 3000000 /dev/zero > big; {once(told)}"
            output = ["big"]
            """
        )
        ended = flow.run_until_told("take 3", told, "--memory").expect()
        assert "a │ penstock-" in ended.out
        assert "take 3" in ended.err and "of 1 MB" in ended.err
        assert list(mount.iterdir()) == []
    finally:
        mount.rmdir()


@pytest.mark.long
def test_what_others_give_back_does_not_hide_what_files_take(flow: Flow, tmp_path: Path) -> None:
    told, others = tmp_path / "told", memory_dir() / "others"
    others.write_bytes(bytes(50_000_000))
    layer = f'name = "ram"\nmount = "{memory_dir()}"\nbandwidth = "1GB/s"\ncapacity = "1MB"'
    flow.write("penstock.toml", f"[[resources.storage]]\n{layer}\n")
    flow.toml(
        f"""
        name = "capacity"
        [[step]]
        name = "a"
        command = "rm {others}; head -c 3000000 /dev/zero > big; {once(told)}"
        output = ["big"]
        """
    )
    ended = flow.run_until_told("take 3", told, "--memory").expect()
    assert "take 3" in ended.err and "of 1 MB" in ended.err
