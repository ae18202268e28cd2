"""TOML as lines that can be changed one by one: what ``describe`` uses to edit a file that belongs to the user.

``tomllib`` reads and does not write, and writing the parsed content anew would lose comments and order. So the text is
cut into statements (a header, a key with its value, a comment, an empty line), the parser itself saying where each
ends: the fewest lines that it accepts. A change gives a new text, in which no other byte differs.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from penstock.errors import ConfigError

__all__ = ["TomlText"]

_KEY_AND_VALUE = re.compile(r"""(\s*[^=]+?\s*=\s*)("(?:[^"\\]|\\.)*"|'[^']*'|[^\s#"']+)(\s*(?:#.*)?\s*)""")


class _Statement(Struct, frozen=True):
    """Lines that mean something together, line ends included."""

    text: str
    content: dict[str, Any]

    @property
    def is_header(self) -> bool:
        return self.text.lstrip().startswith("[")

    @property
    def is_comment(self) -> bool:
        return self.text.lstrip().startswith("#")

    @property
    def is_blank(self) -> bool:
        return not self.text.strip()

    @property
    def table(self) -> tuple[str, ...]:
        """For a header: the names it is made of."""
        names: list[str] = []
        content: Any = self.content
        while content:
            (name, content), *_ = content.items()
            names.append(name)
            if isinstance(content, list):
                content = content[0]
        return tuple(names)

    @property
    def starts_entry(self) -> bool:
        """Whether it is the header of an entry in an array of tables."""
        return self.text.lstrip().startswith("[[")


class TomlText:
    """The text of a valid TOML file."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.newline = "\r\n" if "\r\n" in text else "\n"
        self._statements = list(_statements(text))

    def with_table(self, table: tuple[str, ...], lines: str, place: int) -> str:
        """Add ``lines`` before entry number ``place`` of an array of tables, or after its last, or at the end."""
        entries = self._entries(table)
        if place < len(entries):
            return self._inserted(self._above_comments(entries[place]), lines + self.newline)
        at = self._end(entries[-1], table) if entries else len(self._statements)
        if at < len(self._statements):
            at = self._above_comments(at)
        while at > 0 and self._statements[at - 1].is_blank:
            at -= 1
        glued = at < len(self._statements) and not self._statements[at].is_blank
        return self._inserted(at, (self.newline if at else "") + lines + (self.newline if glued else ""))

    def with_value(self, table: tuple[str, ...], index: int, key: str, value: str) -> TomlText:
        """Give ``key`` another value in entry ``index``, where it stands, or add it below the header."""
        start, end = self._own_part(table, index)
        for at in range(start + 1, end):
            if list(self._statements[at].content) == [key]:
                parts = _KEY_AND_VALUE.fullmatch(self._statements[at].text)
                if parts is None:
                    raise ConfigError(
                        f"only a plain string or number can be replaced, not: {self._statements[at].text.strip()}"
                    )
                return self._replaced(at, at + 1, parts[1] + value + parts[3])
        below = self._last_key(start, end) + 1
        return self._replaced(below, below, f"{key} = {value}{self.newline}")

    def with_comments(self, table: tuple[str, ...], index: int, mark: str, lines: list[str]) -> str:
        """Put comment ``lines`` under the header of entry ``index``, in place of those that start with ``mark``."""
        start, end = self._own_part(table, index)
        kept = [one.text for one in self._statements[start + 1 : end] if not one.text.lstrip().startswith(mark)]
        header = self._terminated(self._statements[start].text)
        fresh = [line + self.newline for line in lines]
        return self._replaced(start, end, "".join([header, *fresh, *kept])).text

    def _entries(self, table: tuple[str, ...]) -> list[int]:
        """Where the headers of an array of tables stand."""
        return [at for at, one in enumerate(self._statements) if one.starts_entry and one.table == table]

    def _own_part(self, table: tuple[str, ...], index: int) -> tuple[int, int]:
        """Entry ``index`` without its subtables: the number of its header, and of the header after it."""
        entries = self._entries(table)
        if index >= len(entries):
            raise ConfigError(f"{'.'.join(table)} is written inline; write its entries as [[{'.'.join(table)}]] tables")
        start = entries[index]
        later = range(start + 1, len(self._statements))
        return start, next((at for at in later if self._statements[at].is_header), len(self._statements))

    def _end(self, last: int, table: tuple[str, ...]) -> int:
        """Where the last entry ends, its subtables included, which may stand further down among other tables."""
        headers = [at for at in range(last, len(self._statements)) if self._statements[at].is_header]
        ours = max(at for at in headers if self._statements[at].table[: len(table)] == table)
        return next((at for at in headers if at > ours), len(self._statements))

    def _last_key(self, start: int, end: int) -> int:
        return max(at for at in range(start, end) if self._statements[at].content)

    def _above_comments(self, header: int) -> int:
        """Comments right above a header speak of what follows it: the place before them."""
        while header > 0 and self._statements[header - 1].is_comment:
            header -= 1
        return header

    def _inserted(self, at: int, lines: str) -> str:
        return self._replaced(at, at, lines).text

    def _replaced(self, start: int, end: int, lines: str) -> TomlText:
        head = "".join(one.text for one in self._statements[:start])
        tail = "".join(one.text for one in self._statements[end:])
        return TomlText((self._terminated(head) if lines else head) + lines + tail)

    def _terminated(self, text: str) -> str:
        return text if not text or text.endswith("\n") else text + self.newline


def _statements(text: str) -> Iterator[_Statement]:
    pending = ""
    for line in re.findall(r"[^\n]*\n|[^\n]+", text):
        pending += line
        try:
            content = tomllib.loads(pending)
        except tomllib.TOMLDecodeError:
            continue  # it goes on in the next line
        yield _Statement(pending, content)
        pending = ""
    assert not pending, "only valid TOML is cut into statements"
