"""What a coordination file says, whichever of its two forms it was written in.

``language`` makes a ``Workflow`` of a file; ``rules`` answers questions about paths from it. Patterns in it are
normalised (relative to the workflow's directory, which is itself ``.``) and aliases are expanded.
"""

from __future__ import annotations

import enum

from msgspec import Struct

__all__ = [
    "Commit",
    "Fire",
    "HomePolicy",
    "Homes",
    "ManualHome",
    "Rule",
    "Sizes",
    "Step",
    "Target",
    "Workflow",
]


class Commit(enum.StrEnum):
    """What ends a file or directory, so that readers may believe its end."""

    #: all producers have terminated
    ON_TERMINATION = "on_termination"
    #: its writers have closed it, ``count`` times in all
    ON_CLOSE = "on_close"
    #: what the rule names in ``after`` is committed
    ON_FILE = "on_file"
    #: ``count`` entries are in the directory
    N_FILES = "n_files"


class Fire(enum.StrEnum):
    """When a reader gets bytes or entries: once all is committed, or as they are written, never to be changed."""

    UPDATE = "update"
    NO_UPDATE = "no_update"


class Target(enum.StrEnum):
    """A rule is for files or for directories, never both."""

    FILES = "files"
    DIRECTORIES = "directories"


class Sizes(enum.StrEnum):
    """What a step is told when it asks for the size of a file that is still written."""

    AT_COMMIT = "at_commit"
    SO_FAR = "so_far"


class HomePolicy(enum.StrEnum):
    """Which node holds the master copy: where it was created, where a hash says, where a process runs."""

    CREATE = "create"
    HASHING = "hashing"
    MANUAL = "manual"


class Rule(Struct, frozen=True):
    """How the files, or directories, of some names are streamed."""

    step: str
    target: Target
    patterns: tuple[str, ...]
    commit: Commit = Commit.ON_TERMINATION
    #: closes or entries; 1 where the commit rule counts nothing
    count: int = 1
    fire: Fire = Fire.UPDATE
    #: whose commit ON_FILE waits for
    after: tuple[str, ...] = ()
    #: nobody wrote it: it follows from a rule for files, and gives way to any written one
    implied: bool = False
    #: where it stands in the file
    place: str = ""

    @property
    def semantics(self) -> tuple[Commit, int, Fire, frozenset[str]]:
        """What two rules must share to stand for the same path."""
        return self.commit, self.count, self.fire, frozenset(self.after)

    @property
    def spelled(self) -> str:
        """Its semantics as it would be written: ``on_close:3 / no_update``."""
        count = f":{self.count}" if self.commit is Commit.N_FILES or self.count > 1 else ""
        after = f" ({', '.join(self.after)})" if self.after else ""
        return f"{self.commit}{count}{after} / {self.fire}"


class Step(Struct, frozen=True):
    """One program of the workflow; the spec calls it an application."""

    name: str
    #: a line for the shell, or the arguments of a program; None where users start it themselves
    command: str | tuple[str, ...] | None = None
    input: tuple[str, ...] = ()
    output: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()
    #: directory it is started in, relative to the workflow's; None is that itself
    cwd: str | None = None
    env: tuple[tuple[str, str], ...] = ()
    sizes: Sizes = Sizes.AT_COMMIT
    #: how many processes of it are started, numbered from 0
    instances: int = 1
    place: str = ""


class ManualHome(Struct, frozen=True):
    """Names whose home is the node where a process of a step runs."""

    patterns: tuple[str, ...]
    step: str
    #: which process of the step; None where it has only one
    instance: int | None = None
    place: str = ""


class Homes(Struct, frozen=True):
    """Where the master copies are; what no list names is CREATE."""

    create: tuple[str, ...] = ()
    hashing: tuple[str, ...] = ()
    manual: tuple[ManualHome, ...] = ()


class Workflow(Struct, frozen=True):
    """A coordination file, understood."""

    name: str
    steps: tuple[Step, ...]
    permanent: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    #: removed at the end even where everything else is kept
    temporary: tuple[str, ...] = ()
    homes: Homes = Homes()
    #: ``json`` means in memory by default, ``toml`` in place
    form: str = "toml"
    source: str = ""
    #: absolute path that names are relative to; empty where only the run knows it
    directory: str = ""
    #: bytes that all temporary files may take while they are streamed; 0 is without limit, None not said
    limit: int | None = None
    #: what was accepted although it should be written otherwise
    warnings: tuple[str, ...] = ()

    def step(self, name: str) -> Step | None:
        return next((step for step in self.steps if step.name == name), None)

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Of all steps: those that were written, in their order, then the implied ones."""
        every = [rule for step in self.steps for rule in step.rules]
        return tuple(sorted(every, key=lambda rule: rule.implied))
