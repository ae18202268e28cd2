"""`penstock recover`: bring home what killed runs left on storage layers, and remove what is of no use to anybody.

    look at DIR ─▶ links to files on layers, hidden copies      (finding_names.py)
    look at layers ─▶ folders of runs that are over, each with the places where its names were
    for each: files that a name leads to ─▶ home;  copies that are home already, older versions, work/ ─▶ gone
    names that lead to nothing, hidden copies that nobody writes ─▶ gone

At each step every file is complete somewhere, and nothing is put over what is not our own link: so it may be killed at
any moment, and done again. What cannot be decided stays where it is, and is named.
"""

from __future__ import annotations

import contextlib
import filecmp
import os
import shutil
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from penstock.executors.disposable import RECORD, is_locked, sweep
from penstock.executors.layer_files import mark_of
from penstock.executors.layer_runs import DeadRun, dead_runs, is_process, taken_over
from penstock.executors.layer_table import tidy_on
from penstock.executors.mover import NameChanged, discard, relocate, secure, share_name, writer_of
from penstock.runtime.finding_names import Names, is_abandoned
from penstock.runtime.found_layers import is_on_network
from penstock.runtime.traces import all_traces

__all__ = ["Deed", "recover"]


class Deed(NamedTuple):
    """One thing that was done, or could not be."""

    #: ``home``, ``removed`` or ``left``
    what: str
    path: str
    #: what it was, or why it stays
    about: str
    size: int = 0


def recover(
    directory: str, mounts: Iterable[str], places: Iterable[str] = (), *, drop_replaced: bool = False
) -> Iterator[Deed]:
    """Do all of it, for names in a directory tree and files on these layers; each deed is told when it is done.

    ``places`` are where runs have their other directories: shared memory and the like, as every run sweeps them.
    With ``drop_replaced``, files on layers go whose name has a newer file by now, as if there had been no layers.
    """
    for path in sweep(places):
        if not os.path.lexists(path):
            yield Deed("removed", path, "a directory of a run that is gone")
    names = Names(directory)
    traced = [mount for trace in all_traces() for mount in trace.mounts]
    gone: set[str] = set()
    for mount in dict.fromkeys(map(os.path.realpath, [*mounts, *names.mounts(), *traced])):
        for run in dead_runs(mount):
            yield from _recover_run(run, names, drop_replaced)
            if not os.path.lexists(run.root):
                gone.add(os.path.basename(run.root).removesuffix("-layer"))
    yield from _remove_names_of_nothing(names)
    for path, pid in names.hidden:
        if is_abandoned(path, pid):
            with contextlib.suppress(OSError):
                os.unlink(path)
                yield Deed("removed", path, "a copy that was not finished")
    for folder in names.abandoned_folders():
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.lexists(folder):
            yield Deed("removed", folder, "unfinished files of a process that is gone")
    yield from _forget_traces(gone)


def _recover_run(run: DeadRun, names: Names, drop_replaced: bool) -> Iterator[Deed]:
    if not run.of_this_machine and is_on_network(run.root):
        yield Deed("left", run.root, f"its run was on {run.host}, and may live there: run `penstock recover` there")
        return
    with taken_over(run) as ours:
        if ours:
            for folder in run.homes:
                names.look_in(folder)
            yield from _FolderOfRun(run, names, drop_replaced).clear()


class _FolderOfRun:
    """What a dead run has on one layer."""

    def __init__(self, run: DeadRun, names: Names, drop_replaced: bool) -> None:
        self._run = run
        self._drop_replaced = drop_replaced
        self._names = names
        self._kept = os.path.join(run.root, "kept")

    def clear(self) -> Iterator[Deed]:
        for name in ("work", "work-dead"):  # first: what it takes may be what a copy home lacks
            shutil.rmtree(os.path.join(self._run.root, name), ignore_errors=True)
        places = self._places()
        linked = [place for place in places if self._names.to(place)]
        for place in linked:
            yield from self._bring_home(place, [one for one in places if one not in linked])
        for place in places:
            if place not in linked and os.path.lexists(place):
                yield from self._settle(place)
        yield from self._remove()

    def _places(self) -> list[str]:
        """The files in ``kept``; each is in a folder of its own. Copies that were not finished go."""
        places = []
        for folder, _, names in os.walk(self._kept):
            for name in sorted(names):
                path = os.path.join(folder, name)
                if writer_of(name) is not None:
                    with contextlib.suppress(OSError):
                        os.unlink(path)
                elif os.path.dirname(folder) == self._kept:
                    places.append(path)
        return sorted(places)

    def _bring_home(self, place: str, others: list[str]) -> Iterator[Deed]:
        """Move a file to the names that lead to it: the one that it was written under, or what became of that."""
        first, *further = sorted(self._names.to(place), key=lambda name: (mark_of(name) != _mark_in(place), name))
        try:
            about = os.stat(place)
            for other in others:
                # A version before this one, which tasks were still reading, or which was not removed yet.
                if _is_alike(other, place) and os.stat(other).st_mtime_ns <= about.st_mtime_ns:
                    discard(other)
            relocate(os.readlink(first), first, first, _ignore, linked=True)
            for name in further:
                share_name(first, name)
                secure(os.path.dirname(name))
        except NameChanged:
            yield Deed("left", place, f"its name {first} was changed meanwhile; run `penstock recover` again")
        except OSError as error:
            yield Deed("left", place, f"{first} cannot be written: {error.strerror or error}")
        else:
            discard(place)
            for name in (first, *further):
                yield Deed("home", name, f"from {self._run.mount}", about.st_size)

    def _settle(self, place: str) -> Iterator[Deed]:
        """A file that no name leads to: the run was killed before that, or after it was home, or the program did it."""
        home = self._home_of(place)
        if home is None:
            yield Deed(
                "left", place, "no name here leads to it: run `penstock recover` where its name is, or remove it"
            )
            return
        try:
            size = os.stat(place).st_size
            if not os.path.lexists(home):
                relocate(place, home, home, _ignore, new=True)
                discard(place)
                yield Deed("home", home, f"from {self._run.mount}", size)
            elif _is_same(home, place):
                discard(place)
                yield Deed("removed", place, f"a copy of {home}")
            elif self._drop_replaced and os.stat(home).st_mtime_ns > os.stat(place).st_mtime_ns:
                discard(place)
                yield Deed("removed", place, f"{home} is newer")
            else:
                yield Deed("left", place, f"{home} is another file now, and stays: compare them, and remove one")
        except OSError as error:
            yield Deed("left", place, f"{home} cannot be written: {error.strerror or error}")

    def _home_of(self, place: str) -> str | None:
        """The name that a file was written under, if that is in a folder that we know."""
        for folder in (*self._run.homes, *self._names.folders):
            name = os.path.join(folder, os.path.basename(place))
            if mark_of(name) == _mark_in(place) and os.path.isdir(folder):
                return name
        return None

    def _remove(self) -> Iterator[Deed]:
        """The folder goes, with its record, when nothing else is in it."""
        root = self._run.root
        with contextlib.suppress(OSError):
            for name in os.listdir(self._kept):
                with contextlib.suppress(OSError):
                    os.rmdir(os.path.join(self._kept, name))
            os.rmdir(self._kept)
        try:
            rest = sorted(name for name in os.listdir(root) if name != RECORD)
            if not rest:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(root, RECORD))
                os.rmdir(root)
                with contextlib.suppress(OSError):  # its guardian would do so too, if it had one
                    tidy_on(self._run.mount)
                yield Deed("removed", root, "the folder of a run that is gone")
            elif rest != ["kept"]:
                strange = [name for name in rest if name != "kept"]
                yield Deed("left", os.path.join(root, strange[0]), "it is not known what it is: look, then remove it")
        except OSError as error:
            yield Deed("left", root, f"it cannot be removed: {error.strerror}")


def _ignore(copied: int) -> None:
    pass


def _mark_in(place: str) -> str:
    """The mark of the name that a file on a layer was written under."""
    return os.path.basename(os.path.dirname(place)).rpartition("-")[2]


def _is_alike(place: str, other: str) -> bool:
    """Whether two files on a layer are versions of one."""
    return _mark_in(place) == _mark_in(other) and os.path.basename(place) == os.path.basename(other)


def _is_same(home: str, place: str) -> bool:
    if os.path.islink(home) or not os.path.isfile(home):
        return False
    return filecmp.cmp(home, place, shallow=False)


def _remove_names_of_nothing(names: Names) -> Iterator[Deed]:
    """Names of temporary files, which went with their run; and those of files that are lost, which are only told."""
    for place, links in names.dangling():
        root = place.root
        if is_locked(root, RECORD) or (not os.path.exists(os.path.join(root, RECORD)) and is_process(place.pid)):
            continue  # it is the run's that lives
        for link in links:
            if not os.path.isdir(os.path.dirname(root)):
                yield Deed("left", link, f"it leads to the storage layer {os.path.dirname(root)}, which is not there")
            elif place.temp:
                with contextlib.suppress(OSError):
                    os.unlink(link)
                    yield Deed("removed", link, "the name of a temporary file that is gone")
            else:
                yield Deed("left", link, f"the file is lost: it leads to {place.path}, and nothing is there")


def _forget_traces(gone: set[str]) -> Iterator[Deed]:
    """A run of which nothing is left on any layer needs no trace. Those in ``gone`` are known not to live."""
    for trace in all_traces():
        if any(os.path.lexists(root) for root in trace.roots()) or (trace.is_new and trace.run not in gone):
            continue
        missing = [mount for mount in trace.mounts if not os.path.isdir(mount)]
        if not missing:
            trace.forget()
        else:
            about = f"a run that used it is gone; mount it, or remove {trace.path} if it is gone for good"
            yield Deed("left", missing[0], f"this storage layer is not there: {about}")
