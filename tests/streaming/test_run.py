"""``penstock stream run``: all steps at once, the result of one after the other, and words when something is wrong."""

from __future__ import annotations

import json
import os
import signal
import struct
import sys
from pathlib import Path

import pytest
from tests.patience import eventually
from tests.streaming.flows import EXPECTED, PAIR, Flow, once

from penstock.observe import records
from penstock.observe.log import read_log


def test_the_library_is_in_every_program_of_a_step(flow: Flow) -> None:
    flow.toml(
        """
        name = "look"
        [[step]]
        name = "look"
        command = "cat /proc/self/maps > maps.txt; env -i cat /proc/self/maps > more.txt"
        output = ["maps.txt", "more.txt"]
        """
    )
    flow.run().expect()
    assert "libpenstock_interpose.so" in flow.read("maps.txt")
    assert "libpenstock_interpose.so" in flow.read("more.txt")


def test_a_reader_reads_while_the_writer_writes(flow: Flow, tmp_path: Path) -> None:
    """The writer goes on when the reader has its first record."""
    seen = tmp_path / "seen"
    # Reads of whole records: a read gives all that it asks for, so one of 8 KiB would wait for more than there is.
    flow.write(
        "records.py",
        """
        import pathlib, sys
        with open("out.txt", "rb", buffering=0) as file, open("copy.txt", "wb") as out:
            while record := file.read(7):
                pathlib.Path(sys.argv[1]).touch()
                out.write(record)
        """,
    )
    write = f"exec > out.txt; echo line 0; {once(seen)}; for i in 1 2 3; do echo line $i; done"
    toml = PAIR.replace("PYTHON producer.py out.txt 20 0.01", write)
    flow.toml(toml.replace("PYTHON consumer.py out.txt copy.txt", f"PYTHON records.py {seen}"))
    flow.run().expect()
    assert flow.read("copy.txt") == EXPECTED[: 7 * 4]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("commit", ["on_termination", "on_close"])
@pytest.mark.parametrize("fire", ["update", "no_update"])
@pytest.mark.parametrize("placement", ["--in-place", "--memory"])
def test_every_rule_gives_what_batch_gives(flow: Flow, commit: str, fire: str, placement: str) -> None:
    toml = PAIR.replace('"on_close"', f'"{commit}"').replace('"no_update"', f'"{fire}"')
    flow.toml(toml.replace('name = "pair"', 'name = "pair"\npermanent = ["copy.txt"]'))
    flow.run(placement).expect()
    assert flow.read("copy.txt") == EXPECTED


def test_a_stale_output_of_an_earlier_run_is_not_read(flow: Flow) -> None:
    flow.write("out.txt", "old\n")
    flow.toml(PAIR.replace("PYTHON producer.py", "sleep 0.3; PYTHON producer.py"))
    flow.run().expect()
    assert flow.read("copy.txt") == EXPECTED


def test_a_step_that_fails_stops_the_workflow_and_is_explained(flow: Flow, tmp_path: Path) -> None:
    told = tmp_path / "told"
    make = f"echo first line; {once(told)}; echo boom >&2; exit 5"
    flow.toml(PAIR.replace("PYTHON producer.py out.txt 20 0.01", make))
    ended = flow.run_until_told("has waited", told, "--stall", "10ms").expect(5)
    assert "step 'make' exited with status 5" in ended.err
    assert "boom" in ended.err.partition("its last lines")[2]
    waited = ended.err.partition("who waited for it")[2]
    assert "copy (process " in waited and "out.txt" in waited


def test_a_killed_step_is_named_with_its_signal(flow: Flow) -> None:
    flow.toml(PAIR.replace("PYTHON producer.py out.txt 20 0.01", "kill -KILL $$"))
    ended = flow.run().expect(128 + signal.SIGKILL)
    assert "step 'make' was killed by SIGKILL" in ended.err


def test_a_reader_that_ends_early_does_not_hurt(flow: Flow) -> None:
    flow.toml(PAIR.replace("PYTHON consumer.py out.txt copy.txt", "head -n 2 out.txt > copy.txt"))
    flow.run().expect()
    assert flow.read("copy.txt") == "line 0\nline 1\n"
    assert flow.read("out.txt") == EXPECTED


def test_a_file_nobody_makes_is_missing_once_its_makers_are_over(flow: Flow) -> None:
    flow.toml(PAIR.replace("PYTHON producer.py out.txt 20 0.01", "sleep 0.2"))
    ended = flow.run()
    assert ended.status != 0
    assert "out.txt, which copy may read, was not made: make, which declares it as an output, has ended" in ended.err
    assert "step 'copy'" in ended.err and "No such file" in ended.err


def test_what_a_step_left_in_the_background_belongs_to_it(flow: Flow) -> None:
    command = "(PYTHON producer.py out.txt 20 0.02 &)"
    flow.toml(PAIR.replace("PYTHON producer.py out.txt 20 0.01", command).replace('"on_close"', '"on_termination"'))
    flow.run().expect()
    assert flow.read("copy.txt") == EXPECTED


def test_three_steps_in_a_row_and_two_readers(flow: Flow) -> None:
    flow.toml(
        PAIR
        + """
    [[step]]
    name = "again"
    command = "cat out.txt copy.txt > twice.txt"
    input = ["out.txt", "copy.txt"]
    output = ["twice.txt"]
"""
    )
    flow.run().expect()
    assert flow.read("twice.txt") == EXPECTED * 2


def test_instances_are_numbered_and_all_of_them_end_a_file(flow: Flow) -> None:
    flow.toml(
        """
        name = "many"
        [[step]]
        name = "part"
        instances = 3
        command = "sleep 0.${CAPIO_APP_NAME#*:}; echo $CAPIO_APP_NAME > parts/${CAPIO_APP_NAME#*:}"
        output = ["parts"]
        [[step]]
        name = "join"
        command = "cat parts/* > all.txt"
        input = ["parts"]
        output = ["all.txt"]
        """
    )
    (flow.folder / "parts").mkdir()
    flow.run().expect()
    assert flow.read("all.txt") == "part:0\npart:1\npart:2\n"


def test_a_directory_is_listed_as_files_come(flow: Flow, tmp_path: Path) -> None:
    """The maker goes on when its first file was listed, and ends when it was seen that there are no more than four."""
    seen, listed = tmp_path / "seen", tmp_path / "listed"
    make = f"mkdir parts; echo 1 > parts/p1; {once(seen)}; for i in 2 3 4; do echo $i > parts/p$i; done; {once(listed)}"
    flow.write(
        "lists.py",
        """
        import os, pathlib, sys
        with os.scandir("parts") as entries, open("seen.txt", "w") as out:
            for entry in entries:
                out.write(f"{entry.name} {open(entry.path).read()}")
                pathlib.Path(sys.argv[1]).touch()
        pathlib.Path(sys.argv[2]).touch()
        """,
    )
    flow.toml(
        f"""
        name = "listing"
        [[step]]
        name = "make"
        command = "{make}"
        output = ["parts"]
        [[step.stream]]
        directories = ["parts"]
        commit = "n_files:4"
        fire = "no_update"
        [[step.stream]]
        files = ["parts/*"]
        commit = "on_close"
        fire = "no_update"
        [[step]]
        name = "list"
        command = "PYTHON lists.py {seen} {listed}"
        input = ["parts"]
        output = ["seen.txt"]
        """
    )
    flow.run().expect()
    assert flow.read("seen.txt") == "".join(f"p{number} {number}\n" for number in range(1, 5))


def test_files_final_after_others_and_a_count_that_is_never_reached(flow: Flow, tmp_path: Path) -> None:
    """The maker goes on when the first file was read, and fails if the one with the count is read while it runs."""
    got, counted = tmp_path / "got", tmp_path / "counted"
    make = f"echo data > data.txt; echo ok > done.txt; {once(got)}; echo 1 > count.txt; sleep 0.2; [ ! -e {counted} ]"
    flow.toml(
        f"""
        name = "after"
        [[step]]
        name = "make"
        command = "{make}"
        output = ["data.txt", "done.txt", "count.txt"]
        [[step.stream]]
        files = ["data.txt"]
        commit = "on_file"
        after = ["done.txt"]
        [[step.stream]]
        files = ["done.txt"]
        commit = "on_close"
        [[step.stream]]
        files = ["count.txt"]
        commit = "on_close:3"
        [[step]]
        name = "data"
        command = "cat data.txt; touch {got}"
        input = ["data.txt"]
        [[step]]
        name = "count"
        command = "cat count.txt; touch {counted}"
        input = ["count.txt"]
        """
    )
    ended = flow.run().expect()
    assert counted.exists()
    assert "count.txt was closed 1 times, not 3: it is final because make is over" in ended.err


def test_temporary_files_are_removed_in_place(flow: Flow) -> None:
    flow.toml(PAIR.replace('name = "pair"', 'name = "pair"\ntemporary = ["out.txt"]', 1))
    flow.run().expect()
    assert not (flow.folder / "out.txt").exists()
    assert flow.read("copy.txt") == EXPECTED


REWRITES = """
    name = "rewrites"
    [[step]]
    name = "make"
    command = "PYTHON -c 'f = open(\\"out.txt\\", \\"wb\\", 0); f.write(b\\"abc\\"); f.seek(0); f.write(b\\"xyz\\")'"
    output = ["out.txt"]
    [[step.stream]]
    files = ["out.txt"]
    commit = "on_close"
    fire = "no_update"
    [[step]]
    name = "read"
    command = "cat out.txt; sleep 0.5"
    input = ["out.txt"]
"""


def test_a_broken_promise_is_a_warning_and_with_strict_an_error(flow: Flow) -> None:
    flow.toml(REWRITES)
    ended = flow.run().expect()
    assert "rewrote bytes of out.txt" in ended.err
    ended = flow.run("--strict").expect(1)
    assert "--strict: make" in ended.err and "rewrote bytes of out.txt" in ended.err


@pytest.mark.parametrize(("temporary", "told"), [("part-1.tmp", True), (".part-1.Xy3", False)])
def test_a_rename_that_a_listing_may_miss(flow: Flow, tmp_path: Path, temporary: str, told: bool) -> None:
    """A name that rules cover is listed as it comes, and a broken promise if renamed; no other name is listed early."""
    listed = tmp_path / "listed"
    awaited = temporary if told else "part-0"  # then there was time enough for the other one
    see = "[print(e.name) or e.name != sys.argv[1] or open(sys.argv[2], 'w') for e in os.scandir('parts')]"
    flow.write("see.py", f"import os, sys; {see}")
    flow.toml(
        f"""
        name = "renames"
        [[step]]
        name = "make"
        command = "mkdir -p parts; echo x > parts/part-0; echo y > parts/{temporary}; {once(listed)}; sleep 0.2;\
            mv parts/{temporary} parts/part-1"
        output = ["parts"]
        [[step.stream]]
        files = ["parts/part-*"]
        commit = "on_close"
        [[step]]
        name = "see"
        command = "PYTHON see.py {awaited} {listed} | sort > seen.txt"
        input = ["parts"]
        output = ["seen.txt"]
        """
    )
    ended = flow.run("--strict").expect(1 if told else 0)
    assert (f"renamed parts/{temporary}, which a reader had listed" in ended.err) == told
    if not told:
        assert flow.read("seen.txt") == "part-0\npart-1\n"


def test_a_run_repeats_the_warnings_of_the_check(flow: Flow) -> None:
    flow.toml(PAIR.replace('input = ["out.txt"]', 'input = ["out.txt", "other.txt"]'))
    warning = "copy reads 'other.txt', which no other step makes"
    assert warning in flow.ended(flow.start("check", "flow.toml")).expect().out
    assert f"penstock: pair: {warning}" in flow.run().expect().err


def test_two_rules_for_one_name_stop_the_workflow_when_it_comes(flow: Flow) -> None:
    flow.toml(
        """
        name = "ambiguous"
        [[step]]
        name = "make"
        command = "echo x > other.txt; echo x > file1.dat; sleep 1000"
        output = ["*"]
        [[step.stream]]
        files = ["file*"]
        commit = "on_close"
        [[step.stream]]
        files = ["*.dat"]
        commit = "on_termination"
        """
    )
    ended = flow.run()
    assert ended.status != 0
    assert "file*" in ended.err and "*.dat" in ended.err


def test_a_program_that_cannot_be_streamed_is_refused_before_anything_starts(flow: Flow) -> None:
    program = flow.folder / "program"
    program.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHI", 2, 8, 1) + bytes(40))
    program.chmod(0o755)
    steps = f'[[step]]\nname = "a"\ncommand = "touch started"\n[[step]]\nname = "b"\ncommand = ["{program}"]\n'
    flow.toml(f'name = "foreign"\n{steps}')
    ended = flow.run().expect(2)
    assert "step 'b'" in ended.err and "it is built for mips" in ended.err
    assert not (flow.folder / "started").exists()


def test_a_command_that_is_not_there(flow: Flow) -> None:
    flow.toml('name = "none"\n[[step]]\nname = "a"\ncommand = ["./no-such-program"]\n')
    assert "step 'a'" in flow.run().expect(2).err


def test_what_happens_is_in_the_event_log(flow: Flow) -> None:
    flow.toml(PAIR)
    flow.run().expect()
    (path,) = flow.folder.glob(".penstock/pair-*/events.jsonl")
    events = list(read_log(str(path)))
    assert isinstance(events[0], records.RunStarted) and isinstance(events[-1], records.RunEnded)
    assert {event.step for event in events if isinstance(event, records.StepStarted)} == {"make", "copy"}
    ended = [event for event in events if isinstance(event, records.StepEnded)]
    assert {event.status for event in ended} == {0} and all(0 < event.seconds < event.t for event in ended)
    born = {event.file: event.step for event in events if isinstance(event, records.FileBorn)}
    assert born["out.txt"] == "make" and born["copy.txt"] == "copy"
    committed = {event.file: event.bytes for event in events if isinstance(event, records.FileCommitted)}
    assert committed["out.txt"] == committed["copy.txt"] == len(EXPECTED)
    assert json.loads(path.read_text().splitlines()[-1])["ok"] is True


def test_the_bars_of_a_run_are_in_its_log_and_at_its_end(flow: Flow) -> None:
    flow.toml(PAIR)
    ended = flow.run().expect()
    (path,) = flow.folder.glob(".penstock/pair-*/events.jsonl")
    flowed = [event for event in read_log(str(path)) if isinstance(event, records.EdgeFlowed)]
    assert {(event.producer, event.consumer) for event in flowed} == {("make", "copy")}
    assert [event.written for event in flowed] == sorted(event.written for event in flowed)
    assert (flowed[-1].files, flowed[-1].written, flowed[-1].read) == (1, len(EXPECTED), len(EXPECTED))
    assert "make → copy  ━━━━━━━━━━━━━━━━━━━━━━━━" in ended.err and "event log: .penstock/pair-" in ended.err
    assert "→" not in flow.run("--no-progress").expect().err


def test_without_log_nothing_is_left_but_the_results(flow: Flow) -> None:
    flow.toml(PAIR)
    flow.run("--no-log").expect()
    assert sorted(os.listdir(flow.folder)) == ["consumer.py", "copy.txt", "flow.toml", "out.txt", "producer.py"]


def test_a_stall_names_reader_file_offset_producer_and_rule(flow: Flow, tmp_path: Path) -> None:
    told = tmp_path / "told"
    flow.toml(PAIR.replace("PYTHON producer.py out.txt 20 0.01", f"exec 9> out.txt; echo begin >&9; {once(told)}"))
    ended = flow.run_until_told("has waited", told, "--stall", "1s").expect()
    (line,) = [line for line in ended.err.splitlines() if "has waited" in line]
    for word in ("copy (process ", "bytes ", "of out.txt", "on_close / no_update", "made by make, which runs"):
        assert word in line


def test_interrupts_end_all_children_and_leave_nothing(flow: Flow) -> None:
    command = "sleep 1000 & echo $! > pids; setsid sleep 1000 & echo $! >> pids; PYTHON producer.py out.txt 99999 0.01"
    flow.toml(PAIR.replace("PYTHON producer.py out.txt 20 0.01", command))
    process = flow.start("run", "flow.toml")
    pids = flow.folder / "pids"
    eventually(lambda: pids.exists() and len(pids.read_text().split()) == 2 and (flow.folder / "out.txt").exists())
    process.send_signal(signal.SIGINT)
    ended = flow.ended(process).expect(130)
    assert "SIGINT" in ended.err
    for pid in map(int, pids.read_text().split()):
        eventually(lambda pid=pid: not os.path.exists(f"/proc/{pid}"))


def test_a_second_workflow_in_the_same_directory_is_refused(flow: Flow) -> None:
    waiting = "while [ ! -e go ]; do sleep 0.05; done; PYTHON producer.py out.txt 20 0"
    flow.toml(PAIR.replace("PYTHON producer.py out.txt 20 0.01", f"touch there; {waiting}"))
    first = flow.start("run", "flow.toml")
    eventually(lambda: (flow.folder / "there").exists())
    second = flow.run().expect(2)
    assert f"another workflow streams through {flow.folder} (process {first.pid})" in second.err
    (flow.folder / "go").touch()
    flow.ended(first).expect()


def test_bad_input_is_an_error_that_says_what_to_do(flow: Flow) -> None:
    assert "cannot read" in flow.run(file="no-such.toml").expect(2).err
    flow.toml('name = "x"\n[[step]]\nname = "a"\ncommand = "true"\ncwd = "nowhere"\n')
    assert "nowhere" in flow.run().expect(2).err


@pytest.mark.one_in(3)
@pytest.mark.parametrize("limit", ["much", "0", "0GB", "-1", "4095B", "0.01", "1e30", "nan"])
def test_a_limit_that_cannot_be_kept_is_refused_with_what_to_write(flow: Flow, limit: str) -> None:
    flow.toml('name = "x"\n[[step]]\nname = "a"\ncommand = "touch ran"\n')
    for arguments in (("--limit", limit), ("--batch", "--limit", limit)):
        ended = flow.run(*arguments).expect(2)
        assert len(ended.err.splitlines()) == 1 and ended.err.startswith("penstock: --limit: ")
        assert '"off"' in ended.err or "KiB or more" in ended.err
    assert not (flow.folder / "ran").exists()


def test_steps_run_where_and_with_what_they_ask_for(flow: Flow) -> None:
    (flow.folder / "sub").mkdir()
    flow.toml(
        'name = "x"\n[[step]]\nname = "a"\ncwd = "sub"\nenv = { COLOUR = "blue" }\n'
        'command = ["sh", "-c", "echo $COLOUR $PWD > here.txt"]\noutput = ["sub/*"]\n'
    )
    flow.run().expect()
    assert flow.read("sub/here.txt") == f"blue {flow.folder}/sub\n"


def test_thousand_files(flow: Flow) -> None:
    flow.write("many.py", "import os\nfor n in range(1000):\n    open(f'd/{n}', 'w').write(str(n))\n")
    flow.write("sum.py", "import os\nprint('total', sum(int(open(f'd/{n}').read()) for n in range(1000)))\n")
    (flow.folder / "d").mkdir()
    flow.toml(
        f"""
        name = "many"
        [[step]]
        name = "make"
        command = "{sys.executable} many.py"
        output = ["d/*"]
        [[step.stream]]
        files = ["d/*"]
        commit = "on_close"
        [[step]]
        name = "sum"
        command = "{sys.executable} sum.py"
        input = ["d/*"]
        """
    )
    assert "total 499500" in flow.run().expect().out
