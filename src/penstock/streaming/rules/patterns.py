"""Names and patterns of the coordination language: pure text, no file is looked at.

``*`` stands for any run of characters, ``/`` included, ``?`` for one; nothing else is special. Names are relative to
the workflow's directory, which is itself ``.``. Whether two patterns have a name in common is decided exactly.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from functools import lru_cache

__all__ = [
    "LONGEST",
    "ROOT",
    "common_name",
    "could_lie_below",
    "is_literal",
    "matches",
    "normalised",
    "parent_patterns",
    "with_subtrees",
]

#: the workflow's directory
ROOT = "."
#: bytes of a name
LONGEST = 4095
_WILD = re.compile(r"[*?]")


def is_literal(pattern: str) -> bool:
    """Whether it can match one name only."""
    return _WILD.search(pattern) is None


def normalised(pattern: str, root: str = "") -> str:
    """The pattern as all others are compared with; ValueError says what is wrong with it.

    ``root`` is the absolute path of the workflow's directory, if that is known: absolute patterns below it are taken.
    """
    if not pattern:
        raise ValueError("it is empty; write the name of a file or directory")
    if "\0" in pattern:
        raise ValueError("a name cannot contain a zero byte")
    if len(pattern.encode(errors="surrogateescape")) > LONGEST:
        raise ValueError(f"it is longer than any name, which has at most {LONGEST} bytes")
    if pattern.startswith("/"):
        base = root.rstrip("/") + "/"
        if not root or not (pattern.rstrip("/") + "/").startswith(base):
            where = f", {root}" if root else ""
            raise ValueError(f"it is absolute; names are relative to the workflow's directory{where}")
        pattern = pattern[len(base) :] or ROOT
    parts: list[str] = []
    for part in pattern.split("/"):
        if part == "..":
            if not parts:
                raise ValueError("it leads out of the workflow's directory")
            if not is_literal(parts[-1]):
                raise ValueError("'..' after a wildcard could be anywhere; write the name without it")
            parts.pop()
        elif part not in ("", "."):
            parts.append(re.sub(r"\*+", "*", part))
    return "/".join(parts) or ROOT


def matches(pattern: str, name: str) -> bool:
    """Whether a name is one of those a normalised pattern stands for."""
    return _compiled(pattern)(name) is not None


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> Callable[[str], re.Match[str] | None]:
    """Linear in the length of the name: each run takes the nearest place where what follows it fits, and no other."""
    first, *rest = (re.escape(part).replace(r"\?", ".") for part in pattern.split("*"))
    if not rest:
        return re.compile(first, re.DOTALL).fullmatch
    *middle, last = rest
    return re.compile(first + "".join(f"(?>.*?{part})" for part in middle) + ".*" + last, re.DOTALL).fullmatch


def with_subtrees(pattern: str) -> tuple[str, ...]:
    """What an entry of a list stands for: what it names and, if that is a directory, everything below it."""
    if pattern == ROOT:
        return (ROOT, "*")
    return (pattern,) if pattern.endswith("*") else (pattern, f"{pattern}/*")


def could_lie_below(pattern: str, directory: str) -> bool:
    """Whether the pattern can match the name of something in this directory or below it."""
    if directory == ROOT:
        return pattern != ROOT
    return any(position < len(pattern) for position in _positions_after(pattern, f"{directory}/"))


def parent_patterns(pattern: str) -> tuple[str, ...]:
    """Patterns of the directories in which something that this pattern matches can stand."""
    base, slash, last = pattern.rpartition("/")
    start = len(base) + len(slash)
    within = [pattern[: start + at + 1] for at, character in enumerate(last) if character == "*"]
    return (base if slash else ROOT, *within)


def common_name(one: str, other: str, *, directories: bool = False) -> str | None:
    """A short name that both patterns match, or None if there is none; of files, unless ``directories``."""
    if directories and matches(one, ROOT) and matches(other, ROOT):
        return ROOT
    for literal, pattern in ((one, other), (other, one)):
        if is_literal(literal):
            return literal if literal != ROOT and matches(pattern, literal) else None
    start = (0, 0, 0)
    came_from: dict[tuple[int, int, int], tuple[tuple[int, int, int], str]] = {}
    waiting = deque([start])
    seen = {start}
    while waiting:
        state = waiting.popleft()
        if state[0] == len(one) and state[1] == len(other) and state[2] == _WORD:
            return _spelled(state, came_from)
        for following, character in _steps(one, other, state):
            if following not in seen:
                seen.add(following)
                came_from[following] = (state, character)
                # What takes no character goes first, so that the example is short.
                waiting.append(following) if character else waiting.appendleft(following)
    return None


# What the last part of a name is so far: nothing, ".", "..", or a name; only the last may end.
_NOTHING, _DOT, _DOTS, _WORD = range(4)


def _steps(one: str, other: str, state: tuple[int, int, int]) -> Iterator[tuple[tuple[int, int, int], str]]:
    """Where a name that has come this far in both patterns can go, and by which character."""
    i, j, part = state
    first, second = one[i : i + 1], other[j : j + 1]
    if first == "*":
        yield (i + 1, j, part), ""
    if second == "*":
        yield (i, j + 1, part), ""
    if not first or not second:
        return
    literals = {character for character in (first, second) if character not in "*?"}
    if len(literals) > 1:
        return
    character = literals.pop() if literals else "x"
    if character == "/":
        if part != _WORD:
            return
        part = _NOTHING
    else:
        part = part + 1 if character == "." and part < _DOTS else _WORD
    yield (i + (first != "*"), j + (second != "*"), part), character


def _spelled(
    state: tuple[int, int, int], came_from: dict[tuple[int, int, int], tuple[tuple[int, int, int], str]]
) -> str:
    characters = []
    while state in came_from:
        state, character = came_from[state]
        characters.append(character)
    return "".join(reversed(characters))


def _positions_after(pattern: str, text: str) -> set[int]:
    """The positions in a pattern at which it can stand after reading a text."""
    positions = _beyond_stars(pattern, {0})
    for character in text:
        moved = set()
        for position in positions:
            expected = pattern[position : position + 1]
            if expected == "*":
                moved.add(position)
            elif expected in ("?", character):
                moved.add(position + 1)
        positions = _beyond_stars(pattern, moved)
    return positions


def _beyond_stars(pattern: str, positions: set[int]) -> set[int]:
    """With those reached by letting runs be empty."""
    reached = set(positions)
    for position in positions:
        while pattern[position : position + 1] == "*":
            position += 1
            reached.add(position)
    return reached
