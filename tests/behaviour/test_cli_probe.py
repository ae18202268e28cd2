"""``penstock probe`` as a user meets it: in a process of its own, on a real directory, with and without a terminal."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.own_place import user_environment
from tests.patience import eventually

pytestmark = pytest.mark.leaks
SMALL = ("--size", "1MB", "--time", "60s", "--streams", "2")  # it is done much sooner


class Probe:
    """Runs ``penstock probe`` in a folder; the directory to measure is ``disk`` in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.disk = folder / "disk"
        self.disk.mkdir()
        self.file = folder / "penstock.toml"
        self.environ = user_environment()
        self.environ |= {"COLUMNS": "80", "TERM": "dumb"}

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "penstock.cli", "probe", *arguments]

    def run(self, *arguments: str, status: int = 0, **environ: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environ | environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == status, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done

    @contextlib.contextmanager
    def started(self, **environ: str) -> Iterator[subprocess.Popen[str]]:
        """A long measurement, with its streams at work."""
        with subprocess.Popen(
            self.command("disk", "--size", "1GB", "--time", "1h", "--yes"),
            cwd=self.folder,
            env=self.environ | environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                eventually(lambda: bool(list(self.disk.glob(".penstock-probe-*/stream-*"))))
                yield process
            finally:
                process.kill()

    def on_terminal(self, *arguments: str, answer: str = "", **environ: str) -> str:
        """All that a terminal of 80 columns shows; ``answer`` is typed when a question is asked."""
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environ | {"TERM": "xterm-256color"} | environ,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        ) as process:
            os.close(theirs)
            shown = b""
            try:
                with contextlib.suppress(OSError):  # how a terminal says that nobody is left
                    while chunk := os.read(ours, 65536):
                        shown += chunk
                        if answer and b"[Y/n]" in shown:
                            os.write(ours, answer.encode() + b"\n")
                            answer = ""
                assert process.wait(60) == 0, shown.decode()
            finally:
                process.kill()
                os.close(ours)
        return shown.decode()

    def layers(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = tomllib.loads(self.file.read_text())["resources"]["storage"]
        return found


@pytest.fixture
def probe(tmp_path: Path) -> Probe:
    return Probe(tmp_path)


# --- measuring and showing --------------------------------------------------------------------------------------------


def test_without_a_terminal_it_shows_all_and_writes_nothing(probe: Probe) -> None:
    done = probe.run("disk", *SMALL)
    rate, repeats = r"[\d.]+ [kMG]B/s", r"(once|[\d.]+( [kMG]B/s)?-[\d.]+ [kMG]B/s)"
    for streams in (1, 2):
        assert re.search(rf"^ +{streams} +{rate} +{repeats} +{rate} +{repeats}", done.stdout, re.MULTILINE), done.stdout
    for word in ("● write", "○ read", "concurrent streams", "knee", "cache", "Nothing was written", "--yes"):
        assert word in " ".join(done.stdout.split()), word
    # A path is never broken, as somebody will want to copy it.
    assert max(len(line) for line in done.stdout.splitlines() if str(probe.disk) not in line) <= 80
    assert "\x1b" not in done.stdout
    assert done.stderr == ""
    assert os.listdir(probe.folder) == ["disk"] and os.listdir(probe.disk) == []
    offered = tomllib.loads(done.stdout[done.stdout.index("[[") :])
    assert offered["resources"]["storage"][0]["mount"] == str(probe.disk)


def test_json_is_for_programs(probe: Probe) -> None:
    done = probe.run("disk", *SMALL, "--json", "--name", "fast")
    content = json.loads(done.stdout)
    assert [point["streams"] for point in content["points"]] == [1, 2]
    assert all(point["write"] > 0 and point["read"] > 0 for point in content["points"])
    for point in content["points"]:
        assert len(point["writes"]) == point["rounds"] and min(point["writes"]) <= point["write"] <= max(
            point["writes"]
        )
        assert point["unsure"] in (True, False)
    assert content["busy"] in (True, False)
    assert content["directory"] == str(probe.disk)
    assert content["knee"] in (1, 2) and content["best"] in (1, 2)
    assert content["layer"]["name"] == "fast"
    assert content["written"] is None and not probe.file.exists()
    written = json.loads(probe.run("disk", *SMALL, "--json", "--yes").stdout)
    assert written["written"] == str(probe.file)
    assert probe.layers() == [written["layer"]]


def test_where_only_ascii_can_be_shown_there_is_only_ascii(probe: Probe) -> None:
    done = probe.run("disk", *SMALL, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.stdout.isascii() and "* write" in done.stdout


# --- writing ----------------------------------------------------------------------------------------------------------

MINE = """\
# my machine
[runtime]
strict = true  # always
"""


def test_yes_writes_the_layer_and_keeps_the_rest(probe: Probe) -> None:
    probe.file.write_text(MINE)
    done = probe.run("disk", *SMALL, "--name", "fast", "--yes")
    text = probe.file.read_text()
    assert text.startswith(MINE)
    assert "Wrote the layer fast into penstock.toml" in done.stdout
    (layer,) = probe.layers()
    assert (layer["name"], layer["mount"]) == ("fast", str(probe.disk))
    assert re.fullmatch(r"[\d.]+[MG]B/s", layer["bandwidth"])
    assert re.fullmatch(r"\d\d?0?[kMGTP]B|\d\.\d[kMGTP]B", layer["capacity"])
    assert len(re.findall(r"^# probe: +[12]  write", text, re.MULTILINE)) == 2
    assert "curve" not in text


def test_what_it_writes_is_read_by_the_settings(probe: Probe) -> None:
    probe.run("disk", *SMALL, "--yes")
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli", "config"],
        cwd=probe.folder,
        env=probe.environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_no_write_writes_nothing_and_needs_no_good_file(probe: Probe) -> None:
    probe.file.write_text("broken [")
    assert "add to penstock.toml" in probe.run("disk", *SMALL, "--no-write").stdout
    assert probe.file.read_text() == "broken ["


OLD = '[[resources.storage]]\nname = "mine"\nmount = "disk"\nbandwidth = "1MB/s"  # guessed\n'


@pytest.mark.parametrize("answer", ["y", "n"])
def test_on_a_terminal_it_asks_before_it_overwrites(probe: Probe, answer: str) -> None:
    probe.file.write_text(OLD)
    shown = probe.on_terminal("disk", *SMALL, answer=answer, NO_COLOR="1")
    assert re.search(r"bandwidth +1MB/s becomes [\d.]+[MG]B/s", re.sub(r"\x1b\[[\d;]*m", "", shown))
    if answer == "n":
        assert probe.file.read_text() == OLD
        assert "Nothing was written" in shown
    else:
        (layer,) = probe.layers()
        assert (layer["name"], layer["mount"]) == ("mine", str(probe.disk))
        assert layer["bandwidth"] != "1MB/s"
        assert "# guessed" in probe.file.read_text()


def test_on_a_terminal_a_new_layer_is_written_and_a_bar_is_shown(probe: Probe) -> None:
    shown = probe.on_terminal("disk", *SMALL, NO_COLOR="1")
    assert "Wrote the layer" in shown and len(probe.layers()) == 1
    assert "writing, 1 stream" in shown or "reading, 1 stream" in shown or "starting" in shown
    assert not re.search(r"\x1b\[[\d;]*(3[0-7]|38;5;\d+)m", shown), "NO_COLOR"
    assert "\x1b[?25h" in shown[shown.rindex("\x1b[?25l") :], "the cursor is back"


def test_colours_on_a_terminal_that_has_them(probe: Probe) -> None:
    assert re.search(r"\x1b\[1;36m●", probe.on_terminal("disk", *SMALL, "--no-write"))


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("missing",), "there is no directory"),
        (("penstock.toml",), "is not a directory"),
        (("disk", "--size", "many"), "cannot read 'many' as a size"),
        (("disk", "--time", "0"), "above zero"),
        (("disk", "--size", "0"), "above zero"),
        (("disk", "--streams", "0"), "Invalid value for '--streams'"),
        (("disk", "--file", "pyproject.toml"), "not written to"),
        (("disk", "--file", "no/where.toml"), "cannot write"),
        (("disk",), "not valid TOML"),
    ],
)
def test_refusals_are_said_before_anything_is_measured(probe: Probe, arguments: tuple[str, ...], message: str) -> None:
    probe.file.write_text("broken [")
    done = probe.run(*arguments, status=2)
    assert message in " ".join(done.stderr.split())
    assert done.stdout == ""
    assert os.listdir(probe.disk) == []


def test_settings_in_pyproject_are_refused_with_a_hint(probe: Probe) -> None:
    (probe.folder / "pyproject.toml").write_text("[tool.penstock.runtime]\nstrict = true\n")
    assert "move the settings" in probe.run("disk", *SMALL, status=2).stderr
    assert not probe.file.exists()


# --- ends before its time ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_nothing_behind(probe: Probe, number: signal.Signals) -> None:
    with probe.started() as process:
        process.send_signal(number)
        _, complaint = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert complaint == "penstock: interrupted; nothing is left behind and nothing was written\n"
    assert os.listdir(probe.disk) == []
    assert os.listdir(probe.folder) == ["disk"]


def test_a_stream_that_hangs_does_not_hold_it_up(probe: Probe) -> None:
    """One that is stopped is to the probe what one is that waits for a disk which does not answer."""
    command = probe.command("disk", "--size", "1GB", "--time", "10s", "--streams", "1", "--no-write")
    with subprocess.Popen(
        command, cwd=probe.folder, env=probe.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            eventually(lambda: bool(list(probe.disk.glob(".penstock-probe-*/stream-*"))))
            (stream,) = [child for child in psutil.Process(process.pid).children() if "clean" not in child.cmdline()]
            stream.suspend()
            shown, complaint = process.communicate(timeout=60)  # without a limit it would wait for ever
        finally:
            process.kill()
    if process.returncode:  # it had nothing measured yet
        assert process.returncode == 1 and "nothing could be measured in 10 s" in complaint
    else:
        assert "was not done when the time was up" in " ".join(shown.split())
    assert os.listdir(probe.disk) == []
    assert not stream.is_running()


def test_what_a_probe_left_that_was_killed_with_its_streams_goes_with_the_next(probe: Probe) -> None:
    with probe.started() as process:
        streams = psutil.Process(process.pid).children()
        for one in streams:
            one.suspend()  # else those that are killed last would still clean up
        process.kill()
        for one in streams:
            one.kill()
        psutil.wait_procs(streams)
        process.communicate(timeout=60)
    assert os.listdir(probe.disk)
    probe.run("disk", *SMALL, "--no-write")
    assert os.listdir(probe.disk) == []


def test_even_a_killed_probe_leaves_nothing_behind(probe: Probe) -> None:
    with probe.started() as process:
        process.kill()
        process.communicate(timeout=60)
        eventually(lambda: os.listdir(probe.disk) == [])
