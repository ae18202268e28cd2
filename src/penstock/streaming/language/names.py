"""Lists of names: patterns are normalised, aliases replaced by what they stand for.

An alias is known by its name wherever a list of names is expected. It may use other aliases, but not itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.streaming.language.forms import Form
from penstock.streaming.language.reading import Report, Value
from penstock.streaming.rules.patterns import normalised

__all__ = ["Names"]


class Names:
    """Reads the lists of one document."""

    def __init__(self, form: Form, root: str, aliases: Value | None, report: Report) -> None:
        self._form = form
        self._root = root
        self._report = report
        self._written: dict[str, Value] = {}
        self._expanded: dict[str, tuple[str, ...]] = {}
        self._used: set[str] = set()
        if aliases is not None:
            for name, files in self._definitions(aliases):
                self._written[name] = files
        for name in self._written:
            self._expand(name, ())

    def read(self, written: Value | None, at_least: int = 0) -> tuple[str, ...]:
        """The patterns of a list, each once, in the order written."""
        found: dict[str, None] = {}
        for item in written.items(at_least) if written is not None else ():
            text = item.text()
            if text is None:
                continue
            if text in self._written:
                self._used.add(text)
                found.update(dict.fromkeys(self._expanded.get(text, ())))
            else:
                found.update(dict.fromkeys(self._pattern(item, text)))
        return tuple(found)

    def mention_unused(self) -> None:
        for name, files in self._written.items():
            if name not in self._used:
                self._report.doubtful(files.place, f"no list uses the alias {name!r}")

    # --- the aliases --------------------------------------------------------------------------------------------------

    def _definitions(self, aliases: Value) -> Iterator[tuple[str, Value]]:
        if self._form.name == "toml":
            if not isinstance(aliases.given, dict):
                aliases.wrong('expected a table of lists: [aliases] with name = ["file", …]')
                return
            for name, files in aliases.given.items():
                yield name, Value(files, aliases.place.at(name), self._report)
            return
        for item in aliases.items():
            table = item.table(("group_name", "files"), {"name": "group_name"})
            name = table.require("group_name", "the name of the alias") if table else None
            text = name.text() if name else None
            files = table.require("files", "what the alias stands for") if table else None
            if name is not None and text in self._written:
                name.wrong(f"there are two aliases {text!r}", of_meaning=True)
            elif text is not None and files is not None:
                yield text, files

    def _expand(self, name: str, through: tuple[str, ...]) -> tuple[str, ...]:
        """What an alias stands for, all the way down."""
        if name in self._expanded:
            return self._expanded[name]
        found: dict[str, None] = {}
        files = self._written[name]
        for item in files.items(1):
            text = item.text()
            if text is None:
                continue
            if text == name or text in through:
                chain = " → ".join([*through[through.index(text) if text in through else len(through) :], name, text])
                item.wrong(f"the alias stands for itself: {chain}", of_meaning=True)
            elif text in self._written:
                self._used.add(text)
                found.update(dict.fromkeys(self._expand(text, (*through, name))))
            else:
                found.update(dict.fromkeys(self._pattern(item, text)))
        self._expanded[name] = tuple(found)
        return self._expanded[name]

    def _pattern(self, item: Value, text: str) -> tuple[str, ...]:
        try:
            return (normalised(text, self._root),)
        except ValueError as error:
            item.wrong(f"{text!r} cannot be used: {error}", of_meaning=True)
            return ()
