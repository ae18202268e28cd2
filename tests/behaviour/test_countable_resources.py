"""Resources that are only counted: licences, GPUs, whatever a program names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.behaviour.modes import Gate
from tests.own_place import user_environment

import penstock
from penstock import ConfigError, ConstraintError, DefinitionError, constraint, io, mpi, task, wait_on
from penstock.observe.log import read_log


@task
def seen(start: str, end: str) -> str:
    """Say that it has begun, and wait until the test has seen enough."""
    Path(start).touch()
    Gate(Path(end)).enter()
    return os.environ.get("CUDA_VISIBLE_DEVICES", "all")


def visible() -> str:
    return os.environ.get("CUDA_VISIBLE_DEVICES", "all")


@pytest.mark.parametrize("mode", ["parallel", "inline", "simulated"])
def test_what_no_machine_has_is_refused_at_the_call(mode: Any) -> None:
    with penstock.Runtime(cpus=2, mode=mode, countable={"licences": 2}):
        with pytest.raises(
            ConstraintError, match=r"licences=3, and no node has more than 2\. .*--countable licences=3"
        ):
            constraint(licences=3)(task(visible))()
        with pytest.raises(ConstraintError, match=r"dongles=1, and no node has any \(what is counted here: licences\)"):
            constraint(dongles=1)(task(visible))()


def test_names_are_compared_without_regard_to_case() -> None:
    with penstock.Runtime(cpus=1, countable={"Licences": 1}):
        assert constraint(LICENCES=1)(task(visible))().result() == visible()


@pytest.mark.parametrize("written", ["red", 0, -1, 1.5, None, [1]])
def test_what_is_counted_is_a_whole_number(written: Any) -> None:
    with pytest.raises(DefinitionError, match="colours=.*so it would be counted"):
        constraint(colours=written)(task(visible))


def test_a_name_that_is_nearly_one_of_ours_is_a_mistake() -> None:
    with pytest.raises(DefinitionError, match="did you mean 'computing_units'"):
        constraint(computing_unit=2)


@pytest.mark.parametrize("name", ["tapes", "sites", "test_rigs", "process_slots", "nodes"])
def test_a_name_that_is_far_from_ours_is_counted(name: str) -> None:
    with penstock.Runtime(cpus=1, countable={name: 1}):
        assert constraint(**{name: 1})(task(visible))().result() == visible()


@pytest.mark.parametrize(
    "given", [{"a b": 1}, {"gpus": 0}, {"gpus": "many"}, "gpus", 3, {"x": 1, "X": 2}, "x=10000000", "computing_units=4"]
)
def test_unusable_settings_are_refused(given: Any) -> None:
    with pytest.raises(ConfigError, match="countable="), penstock.Runtime(cpus=1, countable=given):
        pass


@pytest.mark.parametrize("as_io", [False, True])
def test_as_many_run_at_a_time_as_there_are(tmp_path: Path, as_io: bool) -> None:
    gate = Gate(tmp_path / "gate")
    limited = constraint(licences=1)(io(seen) if as_io else seen)
    with penstock.Runtime(cpus=4, countable="licences=1"):
        first = [limited(str(tmp_path / f"started-{i}"), gate.path) for i in range(3)]
        for number in range(3):
            gate.open()
            assert first[number].result() == visible()
            # The next one may have begun; the one after it cannot.
            assert not (tmp_path / f"started-{number + 2}").exists()


def test_others_run_beside_them(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    with penstock.Runtime(cpus=2, countable="licences=1"):
        limited = constraint(licences=1)(seen)
        held, waiting = (limited(str(tmp_path / f"started-{i}"), gate.path) for i in range(2))
        assert task(visible)().result() == visible()
        gate.open()
        assert held.result() == visible()
        gate.open()
        assert waiting.result() == visible()


@pytest.mark.parametrize("mode", ["parallel", "inline"])
def test_a_process_sees_the_gpus_that_its_task_holds(mode: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5,GPU-77")
    with penstock.Runtime(cpus=3, mode=mode):
        one, two = (constraint(gpus=count)(task(visible)) for count in (1, 2))
        assert set(wait_on([one() for _ in range(30)])) <= {"3", "5", "GPU-77"}
        for pair in wait_on([two() for _ in range(5)]):
            assert len(set(pair.split(",")) & {"3", "5", "GPU-77"}) == 2
        assert task(visible)().result() == "3,5,GPU-77"
    assert visible() == "3,5,GPU-77"


def test_two_tasks_at_a_time_never_see_the_same_gpu(tmp_path: Path) -> None:
    """They take turns over lanes and devices, so that each lane has had each device."""
    with penstock.Runtime(cpus=3, countable={"gpus": 2}):
        limited = constraint(gpus=1)(seen)
        for turn in range(4):
            gates = [Gate(tmp_path / f"gate-{turn}-{i}") for i in range(2)]
            pair = [limited(str(tmp_path / f"started-{turn}-{i}"), gate.path) for i, gate in enumerate(gates)]
            for gate in gates if turn % 2 else gates[::-1]:
                gate.open()
            assert sorted(wait_on(pair)) == ["0", "1"]


def test_a_worker_that_dies_gives_back_what_its_task_held(tmp_path: Path) -> None:
    with penstock.Runtime(cpus=2, countable={"gpus": 1}):

        @constraint(gpus=1)
        @task(retries=1)
        def dies_once(mark: str) -> str:
            if not os.path.exists(mark):
                Path(mark).touch()
                os.kill(os.getpid(), 9)
            return visible()

        assert dies_once(str(tmp_path / "mark")).result() == "0"


def test_mpi_tasks_hold_none() -> None:
    with (
        pytest.raises((DefinitionError, ConstraintError), match="only counted is for tasks of one process"),
        penstock.Runtime(cpus=2),
    ):
        constraint(gpus=1)(mpi(processes=2)(task(visible)))()


def test_options_of_a_call_may_ask_for_them() -> None:
    with penstock.Runtime(cpus=1, countable={"gpus": 2}):
        assert task(visible).with_options(constraints={"gpus": 2})().result() == "0,1"


def test_on_the_command_line_in_a_file_and_in_the_log(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(
        "from penstock import constraint, task, wait_on\n"
        "@constraint(licences=1)\n@task\ndef solve(i): return i\n"
        "print(sum(wait_on([solve(i) for i in range(4)])))\n"
    )

    def outcome(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "penstock.cli", "run", "--no-progress", *words, "app.py"]
        return subprocess.run(
            command, cwd=tmp_path, env=user_environment(), capture_output=True, text=True, timeout=120, check=False
        )

    refused = outcome()
    assert refused.returncode == 1 and "no node has any" in refused.stderr
    assert outcome("--countable", "licences=2").stdout.startswith("6\n")
    wrong = outcome("--countable=licences")
    assert wrong.returncode == 2 and "countable" in wrong.stderr and "Traceback" not in wrong.stderr
    (tmp_path / "penstock.toml").write_text("[resources.countable]\nlicences = 1\n")
    assert outcome("--run-dir", "here").stdout.startswith("6\n")
    records = {type(record).__name__: record for record in read_log(str(tmp_path / "here" / "events.jsonl"))}
    assert records["NodeJoined"].countable == [("licences", 1)]
    assert records["Declared"].countable == [("licences", 1)]
