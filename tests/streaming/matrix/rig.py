"""Runs lanes: a producer, a file and a consumer under one rule, once one after the other and once streamed.

One after the other is done by bash alone, without any part of Penstock, and is what the streamed run must equal byte
for byte. In the streamed run the producer waits until its consumer has started, so nothing but streaming can finish it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.patience import PATIENCE
from tests.streaming.matrix.kinds import Program, Rule

from penstock.executors.mpi_runner import find_runner

__all__ = ["Lane", "batch", "programs_folder", "runnable", "stream_run", "streamed", "there"]

ROOT = Path(__file__).parents[3]
SOURCES = Path(__file__).parent / "programs"
#: programs that are linked against musl, which the distribution does not have: .ci/run puts them there
LINKED_AGAINST_MUSL = ROOT / "build" / "musl"
#: by suffix, up to where the result goes
COMPILERS = {
    ".c": ("gcc", "-O1", "-pthread", "-o"),
    ".cpp": ("g++", "-O1", "-o"),
    ".f90": ("gfortran", "-O1", "-o"),
    ".java": ("javac", "-d"),
}


@dataclasses.dataclass(frozen=True)
class Lane:
    """One file, or a few, from a producer to a consumer under one rule, in a folder of its own."""

    #: which of the two programs it is about
    about: Program
    producer: Program
    consumer: Program
    rule: Rule

    @property
    def folder(self) -> str:
        return f"{self.about.name}.{self.rule.name}"

    @property
    def made(self) -> list[str]:
        return [f"{self.folder}/{file}" for file in self.producer.files]


# --- what is there ----------------------------------------------------------------------------------------------------


def runnable(*lanes: Lane) -> bool:
    """Whether all that the programs of lanes need is there."""
    return all(there(need) for lane in lanes for program in (lane.producer, lane.consumer) for need in program.needs)


def there(need: str) -> bool:
    """Whether this machine has a program, or, after \"python:\", a module, or, after \"musl:\", what .ci/run brings."""
    kind, _, name = need.rpartition(":")
    if kind == "musl":
        return (LINKED_AGAINST_MUSL / name).is_file()
    if kind == "python":
        return importlib.util.find_spec(name) is not None
    if need == "mpiexec":
        return find_runner("mpiexec") is not None
    return shutil.which(need) is not None


def programs_folder() -> Path:
    """Where the compiled programs are: compiled once, whoever comes first, and kept until a source changes.

    A compiler that was installed since counts as such a change.
    """
    compiled = {suffix for suffix, (compiler, *_) in COMPILERS.items() if there(compiler)}
    sources = sorted(path for path in SOURCES.iterdir() if path.suffix in compiled)
    known = hashlib.sha256(b"".join(path.name.encode() + path.read_bytes() for path in sources)).hexdigest()[:16]
    folder = ROOT / "build" / f"streaming-programs-{known}"
    if not folder.exists():
        folder.parent.mkdir(exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=folder.parent))
        _compile(sources, made)
        try:
            made.rename(folder)
        except OSError:  # another worker was faster
            shutil.rmtree(made)
    return folder


def _compile(sources: list[Path], folder: Path) -> None:
    classes = [str(source) for source in sources if source.suffix == ".java"]
    commands = [[*COMPILERS[".java"], str(folder), *classes]] if classes else []
    for source in sources:
        if source.suffix != ".java":
            commands.append([*COMPILERS[source.suffix], str(folder / source.stem), str(source)])
    running = [subprocess.Popen(command) for command in commands]
    assert all(process.wait(timeout=100) == 0 for process in running), "the programs do not compile"


# --- the two ways to run ----------------------------------------------------------------------------------------------


def batch(lanes: list[Lane], folder: Path) -> dict[str, bytes]:
    """What is there after every producer and then every consumer has run, with nothing in between."""
    steps = _prepare(lanes, folder, streamed=False)
    for name in sorted(steps, key=lambda name: name.endswith("-read")):
        done = subprocess.run(
            ["bash", str(steps[name])], cwd=folder / "work", timeout=PATIENCE, env=_environment(), check=False
        )
        assert done.returncode == 0, f"{name} fails by itself"
    return _found(lanes, folder)


def streamed(lanes: list[Lane], folder: Path, *words: str, top: str = "") -> dict[str, bytes]:
    """What is there after `penstock stream run`, consumers having started first; `top` goes to the head of its file."""
    steps = _prepare(lanes, folder, streamed="--batch" not in words)
    (folder / "work" / "workflow.toml").write_text(_workflow(lanes, steps, top))
    stream_run(folder / "work", *words)
    return _found(lanes, folder)


def stream_run(folder: Path, *words: str, patience: float = PATIENCE) -> subprocess.CompletedProcess[str]:
    """`penstock stream run workflow.toml` in a folder; a failure or a stall is an assertion with all that was said."""
    command = [sys.executable, "-m", "penstock.cli", "stream", "run", "--no-log", "workflow.toml", *words]
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=_environment(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        process.terminate()  # which ends its steps too
        try:
            output, errors = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            output, errors = process.communicate()
        raise AssertionError(f"not over after {patience:.0f} s\n{output}\n{errors}") from None
    assert process.returncode == 0, f"exit {process.returncode}\n{output}\n{errors}"
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def _environment() -> dict[str, str]:
    return os.environ | {"LC_ALL": "C", "PYTHONDONTWRITEBYTECODE": "1", "HDF5_USE_FILE_LOCKING": "TRUE"}


def _prepare(lanes: list[Lane], folder: Path, streamed: bool) -> dict[str, Path]:
    """The folder as it is before the first step, and a script for each step."""
    for name in ("work", "steps", "gates"):
        (folder / name).mkdir(parents=True)
    _seeds(folder / "work")
    steps = {}
    for lane in lanes:
        (folder / "work" / lane.folder).mkdir()
        words = {
            "bin": programs_folder(),
            "here": SOURCES,
            "musl": LINKED_AGAINST_MUSL,
            "python": sys.executable,
            "mpiexec": find_runner("mpiexec"),
            "seed": "seed.txt",
            "archive": "seed.tar",
            "folder": lane.folder,
        }
        made = f"{lane.folder}/{lane.producer.files[0].removesuffix('.gz').removesuffix('.aa').removesuffix('.one')}"
        gate = folder / "gates" / lane.folder
        read = lane.consumer.line.format(**words, source=" ".join(lane.made), out=f"{lane.folder}/result")
        write = lane.producer.line.format(**words, out=made)
        loaded = '[[ $(</proc/$$/maps) == *penstock_interpose* ]] || { echo "not interposed" >&2; exit 99; }\n'
        first = loaded if streamed else ""
        wait = f"until [ -e {gate} ]; do sleep 0.005; done\n" if streamed else ""
        for step, text in (
            (f"{lane.folder}-read", f": > {gate}\n{read}\n"),
            (f"{lane.folder}-write", f"{wait}{write}\n"),
        ):
            steps[step] = folder / "steps" / f"{step}.sh"
            steps[step].write_text(f"set -e -o pipefail\n{first}{text}")
    return steps


def _seeds(work: Path) -> None:
    """Files that nobody in the workflow makes."""
    seed = work / "seed.txt"
    seed.write_text("".join(f"line {number} {number * 37 % 101}\n" for number in range(1500)))
    with tarfile.open(work / "seed.tar", "w") as archive:
        for name in ("data.one", "data.two"):
            archive.add(seed, name)


def _workflow(lanes: list[Lane], steps: dict[str, Path], top: str) -> str:
    text = f'name = "matrix"\n{top}\n'
    for lane in lanes:
        text += f"""
[[step]]
name = "{lane.folder}-read"
command = "bash {steps[f"{lane.folder}-read"]}"
input = ["{lane.folder}/data*"]
output = ["{lane.folder}/result*"]

[[step]]
name = "{lane.folder}-write"
command = "bash {steps[f"{lane.folder}-write"]}"
output = ["{lane.folder}/data*"]
[[step.stream]]
files = ["{lane.folder}/data*"]
commit = "{lane.rule.commit}"
fire = "{lane.rule.fire}"
"""
    return text


def _found(lanes: list[Lane], folder: Path) -> dict[str, bytes]:
    paths = sorted(path for lane in lanes for path in (folder / "work" / lane.folder).rglob("*") if path.is_file())
    return {str(path.relative_to(folder / "work")): path.read_bytes() for path in paths}
