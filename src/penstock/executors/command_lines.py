"""A command with named places, and the command line that it becomes with the arguments of a call.

    "sort -k {column} {table} > {out}"  ──parse, once──▶  Template  ──with values──▶  arguments of a process

What needs no shell is split into words once, and a value never changes how many there are. What needs one is given to
it with ``"${1}"``, ``"${2}"`` … in the places and the values beside it: a value is never read as shell syntax.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from numbers import Number
from typing import Any

from msgspec import Struct

from penstock.errors import DefinitionError, TaskError

__all__ = ["Template", "command_line", "parse", "shown"]

_PIECES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
#: outside of quotes these mean something to a shell wherever they stand, and these at the beginning of a word
_SHELL_SYNTAX = frozenset("|&;<>()$`*?[\n{")
_SHELL_AT_START = frozenset("~#!")
#: and these as the first word
_SHELL_WORDS = frozenset(
    {
        *(".", ":", "alias", "case", "cd", "eval", "exec", "exit", "export", "for", "if", "read", "return", "set"),
        *("shift", "source", "trap", "ulimit", "umask", "unset", "until", "wait", "while"),
    }
)
_ASSIGNMENT = re.compile(r"\s*[A-Za-z_]\w*\+?=")
#: stand for a place while a template is split into words
_OPEN, _CLOSE = "\ue000", "\ue001"


class Place(Struct, frozen=True):
    """Where an argument goes."""

    name: str
    #: the template has it between double quotes
    quoted: bool = False


Piece = str | Place


class Template(Struct, frozen=True):
    """A command as the user wrote it, understood."""

    #: for a shell: all of it; else its words
    words: tuple[tuple[Piece, ...], ...]
    shell: bool

    def names(self) -> list[str]:
        """The arguments that it has places for."""
        return list(dict.fromkeys(piece.name for word in self.words for piece in word if isinstance(piece, Place)))


def parse(written: str | Sequence[str], task: str) -> Template:
    """Understand a command: one line, or a list of the words of one."""
    if not isinstance(written, str):
        words = tuple(tuple(_pieces(word, task)) for word in written)
        template = Template(words, shell=False)
    else:
        pieces = list(_pieces(written, task))
        shell, quoted = _examine(pieces, task)
        template = Template((tuple(quoted),), shell=True) if shell else _split(pieces, task)
    if not any(word != () and word != ("",) for word in template.words):
        raise DefinitionError(f"@program of {task}: the command is empty")
    return template


def _pieces(text: str, task: str) -> Iterator[Piece]:
    """Text and places in turn; ``{{`` and ``}}`` are braces."""
    if "\0" in text or _OPEN in text or _CLOSE in text:
        raise DefinitionError(f"@program of {task}: the command {text!r} holds a character that no command can")
    literal, at = "", 0
    for found in _PIECES.finditer(text):
        literal += text[at : found.start()]
        at = found.end()
        if found[0] in ("{{", "}}"):
            literal += found[0][0]
        elif found[1] is not None and found[1].isidentifier():
            if literal.endswith("$"):
                raise DefinitionError(
                    f"@program of {task}: in {text!r}, ${found[0]} is a variable of the shell or a parameter; write "
                    f"${{{{{found[1]}}}}} for the variable"
                )
            yield from (literal, Place(found[1])) if literal else (Place(found[1]),)
            literal = ""
        else:
            raise DefinitionError(
                f"@program of {task}: {found[0]!r} in {text!r} is not the name of a parameter in braces; write {{{{ "
                f"and }}}} for braces"
            )
    if literal + text[at:]:
        yield literal + text[at:]


def _examine(pieces: list[Piece], task: str) -> tuple[bool, list[Piece]]:
    """Whether a shell is needed, and the pieces with what is known of the quotes around places."""
    quotes = _Quotes()
    shell = bool(pieces) and isinstance(pieces[0], str) and _begins_as_shell(pieces[0])
    known: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, Place):
            if quotes.now == "'":
                raise DefinitionError(
                    f"@program of {task}: {{{piece.name}}} stands between single quotes, where a shell puts nothing "
                    f"in; leave the quotes out: what an argument holds is always one word"
                )
            known.append(Place(piece.name, quoted=quotes.now == '"'))
            quotes.within_word()
            continue
        known.append(piece)
        shell = quotes.read(piece) or shell
    if quotes.now == "<<":
        raise DefinitionError(f"@program of {task}: a here-document cannot be given; declare a parameter stdin=FILE_IN")
    return shell, known


def _begins_as_shell(text: str) -> bool:
    return _ASSIGNMENT.match(text) is not None or (text.split() or [""])[0] in _SHELL_WORDS


class _Quotes:
    """Follows the quotes of a shell's line."""

    def __init__(self) -> None:
        #: what is open, the innermost last: ' " ` or ( for $( )
        self._open: list[str] = []
        self._escaped = False
        self._start = True
        self._before = ""

    @property
    def now(self) -> str:
        return self._open[-1] if self._open else ""

    def within_word(self) -> None:
        """A place was passed."""
        self._start, self._escaped, self._before = False, False, ""

    def read(self, text: str) -> bool:
        """Go on; whether there is anything that only a shell understands."""
        shell = False
        for character in text:
            if self._escaped:
                self._escaped = False
            elif self.now == "'":
                if character == "'":
                    self._open.pop()
            elif character == "\\":
                self._escaped = True
            else:
                shell = self._meaning(character) or shell
            self._start = character.isspace() and not self._open
            self._before = character
        return shell

    def _meaning(self, character: str) -> bool:
        if character == "<" and self._before == "<" and self.now != '"':
            self._open.append("<<")
            return True
        if character in "'\"`":
            if self.now == character:
                self._open.pop()
            elif character != "'" or self.now != '"':
                self._open.append(character)
            return character == "`"
        if character == "(" and (self._before == "$" or self.now == "("):
            self._open.append("(")
        elif character == ")" and self.now == "(":
            self._open.pop()
        if self.now == '"':
            return character == "$"
        return character in _SHELL_SYNTAX or (self._start and character in _SHELL_AT_START)


def _split(pieces: list[Piece], task: str) -> Template:
    """The words of a line that needs no shell."""
    places = [piece for piece in pieces if isinstance(piece, Place)]
    numbers = iter(range(len(places)))
    line = "".join(piece if isinstance(piece, str) else f"{_OPEN}{next(numbers)}{_CLOSE}" for piece in pieces)
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise DefinitionError(f"@program of {task}: the command cannot be split into words: {error}") from None
    return Template(tuple(tuple(_with_places(word, places)) for word in words), shell=False)


def _with_places(word: str, places: list[Place]) -> Iterator[Piece]:
    for index, part in enumerate(re.split(f"{_OPEN}(\\d+){_CLOSE}", word)):
        if index % 2:
            yield Place(places[int(part)].name)
        elif part or not word:
            yield part


def command_line(template: Template, values: Mapping[str, Any], task: str) -> list[str]:
    """The arguments of the process that a call starts."""
    if not template.shell:
        return [text for word in template.words for text in _word(word, values, task)]
    given: list[str] = []

    def put(text: str) -> str:
        given.append(text)
        return f"${{{len(given)}}}"

    script = "".join(_for_shell(piece, values, task, put) for piece in template.words[0])
    # What stands for $0 is what a shell calls itself in its messages.
    return [*_shell(), script, task, *given]


def _word(word: tuple[Piece, ...], values: Mapping[str, Any], task: str) -> Iterator[str]:
    if len(word) == 1 and isinstance(word[0], Place):
        yield from _texts(values[word[0].name], word[0].name, task)
        return
    whole = ""
    for piece in word:
        if isinstance(piece, str):
            whole += piece
            continue
        texts = _texts(values[piece.name], piece.name, task)
        if len(texts) > 1:
            raise TaskError(
                f"argument {piece.name!r} of program {task} holds {len(texts)} words, but its place is inside of one: "
                f"give {{{piece.name}}} blanks on both sides, or pass one value"
            )
        whole += "".join(texts)
    yield whole


def _for_shell(piece: Piece, values: Mapping[str, Any], task: str, put: Callable[[str], str]) -> str:
    if isinstance(piece, str):
        return piece
    texts = [put(text) for text in _texts(values[piece.name], piece.name, task)]
    return " ".join(texts) if piece.quoted else " ".join(f'"{text}"' for text in texts)


def _texts(value: Any, name: str, task: str) -> list[str]:
    """The words that an argument is: one, or those of a list; ``None`` is none."""
    if value is None:
        return []
    if isinstance(value, list | tuple):
        return [text for part in value for text in _texts(part, name, task)]
    if isinstance(value, str):
        text = value
    elif isinstance(value, bytes | os.PathLike):
        text = os.fsdecode(value)
    elif isinstance(value, Number) or hasattr(value, "__index__"):
        text = str(value)
    else:
        raise TaskError(
            f"argument {name!r} of program {task} is a {type(value).__name__}, which cannot stand in a command; pass "
            f"text, a path, a number, or a list of them"
        )
    if "\0" in text:
        raise TaskError(f"argument {name!r} of program {task} holds a zero byte, which no command can: {text!r:.60}")
    return [text]


@cache
def _shell() -> tuple[str, ...]:
    """A shell that stops at what fails, also inside of a pipe, if there is one that can."""
    bash = shutil.which("bash")
    return (bash, "-e", "-o", "pipefail", "-c") if bash else ("/bin/sh", "-e", "-c")


def shown(template: Template, arguments: list[str]) -> str:
    """A command line as it could be typed."""
    if not template.shell:
        return shlex.join(arguments)
    (
        *_,
        script,
        _,
    ) = arguments[: len(_shell()) + 2]
    given = arguments[len(_shell()) + 2 :]
    quoted = re.sub(r'"\$\{(\d+)\}"', lambda found: shlex.quote(given[int(found[1]) - 1]), script)
    return re.sub(r"\$\{(\d+)\}", lambda found: given[int(found[1]) - 1], quoted)
