"""Outputs that ranks hand over before their MPI task ends.

    body of a rank ── ready_value(obj, 7) ──▶ RankRelease: checked, pickled ── Early ──▶ keeper: HandedOver ──▶ driver

Indices count over all ranks. A rank sees only its own, so it is the keeper that notices when two hand over the same. It
also puts files in their place, as it made room for them; and in the end it finds out what nobody has made.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from penstock.data.segments import Segments
from penstock.data.serializer import NONE, dump
from penstock.errors import TaskError
from penstock.executors.early import HandedIndices, Mismatch, checked_index
from penstock.executors.mpi_ranks import RankLost, WorldFailed
from penstock.executors.mpi_wire import RankRun
from penstock.executors.tracebacks import describe
from penstock.executors.wire import Define, Early, Run
from penstock.executors.written_files import WrittenFiles, is_open_for_writing
from penstock.model.data import FileRef, Slot, Value
from penstock.model.tasks import Failure, FailureKind, Output

__all__ = ["HandedOver", "RankRelease"]


class RankRelease:
    """Takes what the body hands over in one rank."""

    def __init__(
        self, message: RankRun, declared: Define, size: int, segments: Segments, send: Callable[[Early], None]
    ) -> None:
        self._run = message.run
        self._files = message.files
        self._declared = declared
        self._size = size
        self._segments = segments
        self._send = send
        #: that of the rank itself, not of one that its body started
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._over = HandedIndices()
        self._files_over: set[int] = set()

    def value(self, obj: Any, index: int | None) -> None:
        """Hand over a return value."""
        name, count = self._declared.name, self._declared.returns
        with self._lock:
            self._ensure_own_process("ready_value")
            if count in (-1, 1):
                raise Mismatch(
                    f"ready_value(…, {index!r}): the result of MPI task {name} is one list of what its {self._size} "
                    f"ranks return; to hand over outputs, declare how many there are in all: returns=N"
                )
            if index is None and count > 1:
                raise Mismatch(
                    f"ready_value(…): MPI task {name} has {count} outputs over all its ranks, and one of them cannot "
                    f"know which is next; give the index"
                )
            number = checked_index(name, count, self._over, index)
            # That of an earlier attempt stays, but who hands it over is told all the same.
            known = number in self._run.delivered
            self._tell(number, NONE if known else dump(obj, self._segments, f"output {number} of task {name}"))
            self._over.add(number)

    def file(self, path: Any) -> None:
        """Hand over a file that all ranks have written and closed."""
        name, given = self._declared.name, os.path.abspath(os.fspath(path))
        with self._lock:
            self._ensure_own_process("ready_file")
            outputs = self._run.outputs
            found = next((i for i, private in self._files.items() if given in (private, outputs[i].file)), None)
            if found is None:
                raise TaskError(
                    f"ready_file({os.fspath(path)!r}): that is none of the files that task {name} declares as FILE_OUT "
                    f"or FILE_INOUT"
                )
            known_as = outputs[found].file
            if found in self._files_over:
                raise TaskError(f"ready_file({known_as!r}): this rank has handed that file over already")
            if is_open_for_writing(self._files[found]):
                raise TaskError(
                    f"ready_file({known_as!r}): this rank has that file still open for writing; close it first, in all "
                    f"ranks, since others read it from now on"
                )
            self._tell(_first_file(self._declared) + found, FileRef(self._files[found], 0))
            self._files_over.add(found)

    def _tell(self, number: int, content: Slot) -> None:
        self._send(Early(self._run.task, self._run.attempt, number, content))

    def _ensure_own_process(self, call: str) -> None:
        if os.getpid() != self._process:
            raise TaskError(
                f"{call}() was called in a process that a rank of task {self._declared.name} started; hand the output "
                f"over in the rank itself"
            )


class HandedOver:
    """What the ranks have handed over in one attempt, as their keeper sees it."""

    def __init__(
        self,
        run: Run,
        declared: Define,
        files: WrittenFiles,
        pids: Callable[[], list[int]],
        forward: Callable[[Early], None],
    ) -> None:
        self._run = run
        #: processes of the ranks, by their number
        self._pids = pids
        self._declared = declared
        self._files = files
        self._forward = forward
        #: which rank handed over an output
        self._by: dict[int, int] = {}
        #: handed over before: by an earlier attempt, or by ranks that began this one and were replaced
        self._before = set(run.delivered)

    def begin_again(self) -> None:
        """Other ranks carry out the attempt from its beginning; who hands over what may be another then."""
        self._before.update(self._by)
        self._by.clear()

    def take(self, rank: int, message: Early) -> None:
        """Pass an output on, unless somebody has handed it over before."""
        index, content = message.index, message.value
        first = self._by.setdefault(index, rank)
        if first != rank:
            raise RankLost(rank, Failure(FailureKind.RETURNS, self._twice(index, content, first)))
        if index in self._run.delivered:
            return
        if type(content) is FileRef:
            try:
                output = self._run.outputs[index - _first_file(self._declared)]
                self._ensure_closed(content.path, output)
                content = self._files.finish_early(output)
            except Exception as error:
                raise RankLost(rank, describe(error, self._declared.name)) from None
        self._forward(Early(message.task, message.attempt, index, content))

    def _ensure_closed(self, path: str, output: Output) -> None:
        for rank, pid in enumerate(self._pids()):
            if _is_written_by(pid, path):
                raise TaskError(
                    f"it called ready_file({output.file!r}), but rank {rank} has that file still open for writing; "
                    f"close it in all ranks first, and let them meet in a barrier"
                )

    def _twice(self, index: int, content: Slot, first: int) -> str:
        name = self._declared.name
        if type(content) is FileRef:
            file = self._run.outputs[index - _first_file(self._declared)].file
            return f"it handed over file {file} of task {name}, which rank {first} had handed over already"
        return (
            f"it handed over output {index} of task {name}, which rank {first} had handed over already; each output is "
            f"handed over by one rank"
        )

    def is_over(self, file: int) -> bool:
        """Whether one of the call's ``outputs`` was handed over, now or by an earlier attempt."""
        return self._is_over(_first_file(self._declared) + file)

    def any_value(self) -> bool:
        """Whether a return value was handed over, now or by an earlier attempt."""
        return any(index < self._declared.returns for index in (*self._by, *self._before))

    def rest(self, values: Sequence[Value], discard: Callable[[Slot], None]) -> list[Slot | None]:
        """The outputs that were not handed over, from what the ranks returned.

        Where there are as many outputs as ranks, a rank's value is the output of its own number. Otherwise ranks that
        hand over their outputs return nothing.
        """
        count = self._declared.returns
        outputs: list[Slot | None] = [None] * count
        for rank, value in enumerate(values):
            if value == NONE:
                continue
            if count != len(values):
                raise RankLost(rank, Failure(FailureKind.RETURNS, self._which_one()))
            if self._is_over(rank):
                discard(value)
            else:
                outputs[rank] = value
        missing = [index for index in range(count) if outputs[index] is None and not self._is_over(index)]
        if missing:
            raise WorldFailed(
                f"task {self._declared.name} declares returns={count}, but none of its {len(values)} ranks handed over "
                f"or returned output {_shortened(missing)}",
                FailureKind.RETURNS,
            )
        return outputs

    def _is_over(self, index: int) -> bool:
        return index in self._by or index in self._before

    def _which_one(self) -> str:
        return (
            f"it returned a value, but task {self._declared.name} declares returns={self._declared.returns} and its "
            f"ranks hand over their outputs, so nobody can say which one this is; hand it over too, by "
            f"ready_value(obj, index), and return nothing"
        )


def _first_file(declared: Define) -> int:
    """Files among the outputs: return values come before them."""
    return max(1, declared.returns)


def _is_written_by(pid: int, path: str) -> bool:
    """Whether a process could still change a file through a descriptor it has."""
    real = os.path.realpath(path)
    with contextlib.suppress(OSError):  # it has just ended
        for number in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{pid}/fd/{number}") == real:
                    with open(f"/proc/{pid}/fdinfo/{number}") as about:
                        flags = next(int(line.split()[1], 8) for line in about if line.startswith("flags:"))
                    if flags & os.O_ACCMODE != os.O_RDONLY:
                        return True
    return False


def _shortened(numbers: Iterable[int], most: int = 20) -> str:
    shown = [str(number) for number in numbers]
    more = f" and {len(shown) - most} more" if len(shown) > most else ""
    return ", ".join(shown[:most]) + more
