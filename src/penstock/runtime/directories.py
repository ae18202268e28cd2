"""The directories of a run: shared memory, spill, and the run directory; where they lie and what becomes of them."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator, Sequence

from penstock.errors import ConfigError
from penstock.executors.disposable import hold, let_go, places_of, remove_directories, sweep
from penstock.executors.layer_files import LayerFolder
from penstock.model.resources import StorageLayer
from penstock.runtime.config import Config

__all__ = ["SHARED_MEMORY", "Directories", "free_bytes", "memory_parent", "places_of_runs"]

SHARED_MEMORY = "/dev/shm"


def memory_parent(config: Config) -> str | None:
    """Where shared memory is to lie: as set, else where every machine has it; None if one cannot write there."""
    chosen = config.memory_dir
    if chosen is None:
        return SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK | os.X_OK) else None
    _ensure_usable("memory_dir", chosen)
    return chosen


def places_of_runs(config: Config) -> list[str]:
    """Where directories of runs lie, apart from storage layers."""
    places = (config.memory_dir or SHARED_MEMORY, tempfile.gettempdir(), config.spill_dir, config.run_dir)
    return list(dict.fromkeys(place for place in places if place is not None))


def _ensure_usable(setting: str, directory: str) -> None:
    """Refuse a directory that does not exist: made in silence, a misspelt one would fill another disk, and stay."""
    if not os.path.isdir(directory):
        raise ConfigError(f"{setting}: there is no directory {directory}; make it, or name another one")
    if not os.access(directory, os.W_OK | os.X_OK):
        raise ConfigError(f"{setting}: cannot write in {directory}; make it writable, or name another directory")


def free_bytes(folder: str) -> int:
    """What this user may still write on the file system of a folder."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


@contextlib.contextmanager
def _told_of(setting: str, directory: str | None) -> Iterator[None]:
    """If a directory that the user has named cannot be made, say so."""
    try:
        yield
    except OSError as error:
        if directory is None:
            raise
        raise ConfigError(
            f"{setting}: cannot make a directory at {directory}: {error.strerror}; name another one"
        ) from None


class Directories:
    """Made at the start of a run; ``disposable`` ones are removed at its end, however it ends."""

    def __init__(self, config: Config, layers: Sequence[StorageLayer]) -> None:
        parent = memory_parent(config)
        if config.spill_dir is not None and config.spill_dir != config.run_dir:  # which is made
            _ensure_usable("spill_dir", config.spill_dir)
        mark = f"penstock-{os.getuid()}-{os.getpid()}-{os.urandom(4).hex()}"
        self._keep = config.keep_run_dir if config.run_dir is not None else "never"
        # Inline, there is no fork server to clean up after programs that are killed: make nothing before it is needed.
        self._alone = config.mode == "inline"
        needed = not self._alone
        self.run_dir = config.run_dir or os.path.join(tempfile.gettempdir(), mark)
        self.memory_dir = os.path.join(parent or self.run_dir, mark)
        #: bytes that are free for shared memory; 0 where there is none
        self.memory_free = free_bytes(parent) if parent else 0
        self.spill_dir = os.path.join(config.spill_dir or self.run_dir, f"{mark}-spill")
        self.disposable = [self.memory_dir, self.spill_dir]
        if config.run_dir is None:
            self.disposable.append(self.run_dir)
        #: what goes with the run, however that ends: also its folders on storage layers
        self.temporary = [*self.disposable, *(LayerFolder(layer.mount, mark).work for layer in layers)]
        try:
            if needed or config.writes_log:
                with _told_of("run_dir", config.run_dir):
                    if config.run_dir is None:
                        hold(self.run_dir)
                    else:
                        os.makedirs(self.run_dir, exist_ok=True)
            if needed:
                hold(self.memory_dir)
                with _told_of("spill_dir", config.spill_dir):
                    self._make_spill_dir()
        except BaseException:
            self.remove(ok=False)
            raise

    def _make_spill_dir(self) -> None:
        """A disk that is full now may have room when there is something to spill; whoever writes there tries again."""
        try:
            hold(self.spill_dir)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise

    def remove(self, *, ok: bool) -> None:
        """Remove what is disposable, and the run directory if it was not to be kept."""
        remove_directories([os.fsencode(directory) for directory in self.disposable])
        let_go(self.disposable)
        if self._alone:
            sweep(places_of(self.temporary))
        if self._keep == "never" or (self._keep == "failed" and ok):
            with contextlib.suppress(OSError):
                for name in ("events.jsonl",):
                    os.unlink(os.path.join(self.run_dir, name))
            with contextlib.suppress(OSError):
                os.rmdir(self.run_dir)  # only if nothing of the user's is in it
