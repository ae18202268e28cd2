"""Can this program be streamed? Read from its file, before it is started.

The library gets into a program through the dynamic loader (LD_PRELOAD) and wraps functions of libc. A program without
loader, for another machine, with more rights than its user, or that goes around libc cannot be reached. Where the
kernel allows it, most of them are supervised instead (native/interpose/supervise.h). ``run`` and ``exec`` refuse one
for which neither works, with the reason; ``penstock doctor PROGRAM`` shows the same words. One that a step makes cannot
be judged yet: the library does that when it is started.
"""

from __future__ import annotations

import os
import platform
import shlex
import stat
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from penstock.streaming.native import why_not_supervised

if TYPE_CHECKING:
    from penstock.streaming.rules.coverage import Rules

__all__ = ["Verdict", "examine", "examine_command", "is_made", "programs_of"]

_MACHINES = {3: "i386", 8: "mips", 21: "ppc64", 22: "s390x", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64"}
_PT_INTERP, _PT_NOTE = 3, 4
#: a script may name a script as its interpreter, which the kernel follows this many times
_SCRIPTS = 4
#: words of a shell that are no programs
_KEYWORDS = frozenset({*("if", "then", "else", "elif", "fi", "in", "do", "done"), *("while", "until", "esac", *"{}!")})
_NAMING = frozenset({"for", "case", "select", "function"})
_BUILTINS = frozenset(
    {
        *(".", ":", "[", "[[", "alias", "bg", "break", "cd", "command", "continue", "echo", "eval", "exec", "exit"),
        *("export", "false", "fg", "getopts", "hash", "jobs", "kill", "local", "printf", "pwd", "read", "readonly"),
        *("return", "set", "shift", "source", "test", "time", "times", "trap", "true", "type", "ulimit", "umask"),
        *("unalias", "unset", "wait"),
    }
)
_SEPARATORS = frozenset({"|", "||", "&", "&&", ";", ";;", "(", ")", "|&", "\n"})


class Verdict(Struct, frozen=True):
    """Whether a program can be streamed, and why not."""

    #: as it was named
    program: str
    #: the file that is loaded, an interpreter for a script; empty if there is none
    path: str
    #: why it cannot be streamed; empty if it can
    reason: str = ""
    #: how it was reached: ``script → interpreter``
    way: str = ""
    #: where it was looked for, or the interpreter of a script that was reached
    places: tuple[str, ...] = ()
    #: why the library cannot get into it, where a supervisor stands in for the library
    supervised: str = ""

    @property
    def ok(self) -> bool:
        """Whether the library can get into it, or a supervisor can stand in for the library."""
        return not self.reason


def examine(program: str, search: str | None = None, folder: str = ".") -> Verdict:
    """Judge one program, named as a shell would name it. ``search`` is a PATH, ``folder`` where the step starts."""
    search = os.environ.get("PATH", os.defpath) if search is None else search
    looked_for = _places(program, search, folder)
    path = _first(looked_for)
    if path is None:
        return Verdict(program, "", _why_not_found(program, folder), "", looked_for)
    if not os.access(path, os.X_OK):
        reason = "it is no program: it may not be executed (a script needs chmod +x)"
        return Verdict(program, "", reason, "", looked_for)
    way = [path]
    for _ in range(_SCRIPTS):
        try:
            with open(path, "rb") as file:
                head = file.read(4096)
            if not head.startswith(b"#!"):
                against = _against_file(path) or _against_elf(path, head)
                supervised = _unreached(path, head) if not against else ""
                if supervised and (why := why_not_supervised()):
                    against, supervised = f"{supervised}; and it cannot be supervised: {why}", ""
                return Verdict(program, path, against, " → ".join(way), looked_for, supervised)
        except OSError as error:
            return Verdict(program, path, f"it cannot be read: {error.strerror}", " → ".join(way), looked_for)
        looked_for = _interpreters(head, search, folder)
        interpreter = _first(looked_for)
        if interpreter is None:
            first_line = head.partition(b"\n")[0].decode(errors="replace")
            return Verdict(program, path, f"its interpreter is not there: {first_line}", " → ".join(way), looked_for)
        path = interpreter
        way.append(path)
    return Verdict(program, path, "it is a script of a script of a script: too deep", " → ".join(way))


def examine_command(command: str | Sequence[str], environment: Mapping[str, str], folder: str) -> list[Verdict]:
    """Judge the programs that a command line names; those that only its shell or its scripts know are not seen."""
    return [examine(name, environment.get("PATH", os.defpath), folder) for name in programs_of(command)]


def is_made(rules: Rules, step: str, looked_for: Iterable[str], root: str, *, itself: bool = False) -> bool:
    """Whether steps make the program that a step finds at the first of these places; it awaits them, then.

    ``itself``: the step may make it too, before it starts it.
    """
    spellings = dict.fromkeys([root, os.path.realpath(root)])
    for path in map(os.path.normpath, looked_for):
        for spelling in spellings:
            if path.startswith(spelling + "/"):
                coverage = rules.file(path[len(spelling) + 1 :])
                if not coverage.excluded and (rules.awaited(step, coverage) or (itself and step in coverage.producers)):
                    return True
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return False
    return False


def programs_of(command: str | Sequence[str]) -> list[str]:
    """The programs that a command names: the first word, and in a shell's line the first of each simple command."""
    if not isinstance(command, str):
        return list(command[:1])
    lexer = shlex.shlex(command.replace("\n", " ; "), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = "#"
    try:
        words = list(lexer)
    except ValueError:
        return []  # the shell will say what is wrong with it
    return list(dict.fromkeys(_first_words(words)))


def _first_words(words: list[str]) -> Iterator[str]:
    expecting, skip = True, False
    for word in words:
        if word in _SEPARATORS:
            expecting, skip = True, False
        elif skip:
            skip = False
        elif word.strip("<>&|") == "" and word:
            skip = True  # a redirection: the next word is a file
        elif word in _NAMING:
            expecting = False  # what follows is a variable, a word or a function
        elif not expecting or word in _KEYWORDS or _is_assignment(word):
            continue
        else:
            # A word that the shell has yet to expand is known to nobody before it runs.
            if word not in _BUILTINS and not set("$`*") & set(word):
                yield word
            expecting = False


def _is_assignment(word: str) -> bool:
    name, equals, _ = word.partition("=")
    return bool(equals) and name.isidentifier()


def _places(program: str, search: str, folder: str) -> tuple[str, ...]:
    """Where a program of this name is looked for, in order."""
    if "/" in program:
        return (os.path.join(folder, program),)
    return tuple(os.path.join(folder, place or ".", program) for place in search.split(os.pathsep))


def _why_not_found(program: str, folder: str) -> str:
    if "/" not in program:
        return f"there is no program {program!r}; looked in the PATH of the step"
    path = os.path.join(folder, program)
    return "it is no program: it is a directory" if os.path.isdir(path) else f"there is no program {program!r}"


def _first(looked_for: Sequence[str]) -> str | None:
    """The one that is found; what was named by a path need not be executable to be judged."""
    named = len(looked_for) == 1
    return next((path for path in looked_for if os.path.isfile(path) and (named or os.access(path, os.X_OK))), None)


def _interpreters(head: bytes, search: str, folder: str) -> tuple[str, ...]:
    """Where the interpreter that a first line names is looked for."""
    words = os.fsdecode(head[2:].partition(b"\n")[0]).split()
    if words and os.path.basename(words[0]) == "env":
        names = [word for word in words[1:] if not word.startswith("-") and not _is_assignment(word)]
        return _places(names[0], search, folder) if names else ()
    return (os.path.join(folder, words[0]),) if words else ()


def _against_file(path: str) -> str:
    """What the file's rights have against it."""
    about = os.stat(path)
    for bit, word, owner in (
        (stat.S_ISUID, "setuid", about.st_uid != os.geteuid()),
        (stat.S_ISGID, "setgid", about.st_gid != os.getegid()),
    ):
        if about.st_mode & bit and owner:
            return f"it is {word}: the loader ignores LD_PRELOAD for programs with more rights than their user"
    try:
        capabilities = os.getxattr(path, "security.capability")
    except OSError:
        capabilities = b""
    if capabilities and os.geteuid() != 0:
        return "it has file capabilities: the loader ignores LD_PRELOAD for it"
    return ""


def _against_elf(path: str, head: bytes) -> str:
    if not head.startswith(b"\x7fELF"):
        # The kernel refuses it and a shell takes it for a script of its own.
        return "" if b"\0" not in head else "it is neither a script nor a program for Linux (ELF)"
    if len(head) < 64:
        return "its ELF header is cut off"
    if head[4] != 2 or head[5] != 1:
        return f"it is a {'32' if head[4] == 1 else '64'}-bit program of another kind than the library, which is 64-bit"
    machine = _MACHINES.get(struct.unpack_from("<H", head, 18)[0], "another machine")
    if machine != platform.machine():
        return f"it is built for {machine}, this machine is {platform.machine()}"
    return ""


def _unreached(path: str, head: bytes) -> str:
    """Why the library cannot get into a program of this machine."""
    if not head.startswith(b"\x7fELF"):
        return ""
    interpreter = _loader(path, head)
    if _is_go(path, head):
        return "it is a Go program: its runtime calls the kernel itself and never passes through libc"
    if interpreter is None:
        return "it is linked statically: there is no loader that could bring the library in"
    if "musl" in os.path.basename(interpreter):
        return f"it is linked against musl ({interpreter}), the library against glibc"
    return ""


def _loader(path: str, head: bytes) -> str | None:
    """The dynamic loader that the program names, or None for a static one."""
    for kind, offset, size in _segments(path, head):
        if kind == _PT_INTERP:
            return _piece(path, offset, size).rstrip(b"\0").decode(errors="replace")
    return None


def _segments(path: str, head: bytes) -> Iterator[tuple[int, int, int]]:
    (start,) = struct.unpack_from("<Q", head, 32)
    entry, count = struct.unpack_from("<HH", head, 54)
    table = _piece(path, start, entry * count)
    for at in range(0, len(table) - 55, max(entry, 56)):
        kind, _, offset, _, _, size = struct.unpack_from("<IIQQQQ", table, at)
        yield kind, offset, size


def _is_go(path: str, head: bytes) -> bool:
    """Go's linker leaves a note of owner ``Go`` in every program."""
    for kind, offset, size in _segments(path, head):
        if kind == _PT_NOTE and b"\x04\0\0\0Go\0\0" in _note_owners(_piece(path, offset, min(size, 1 << 16))):
            return True
    return False


def _note_owners(notes: bytes) -> bytes:
    """Type and owner of each note, one after the other."""
    found, at = [], 0
    while at + 12 <= len(notes):
        name_size, size, kind = struct.unpack_from("<III", notes, at)
        found.append(struct.pack("<I", kind) + notes[at + 12 : at + 12 + name_size])
        at += 12 + (name_size + 3 & ~3) + (size + 3 & ~3)
    return b"".join(found)


def _piece(path: str, offset: int, size: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(size)
