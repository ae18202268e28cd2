"""The sections of a coordination file, read one after the other into a ``Workflow``.

The same code reads both forms; ``forms`` has the words. Whether the parts fit each other is asked afterwards,
by ``rules.conflicts``.
"""

from __future__ import annotations

import os
import re

from penstock.errors import ConfigError
from penstock.streaming.language.forms import Form, keys_of_the_other
from penstock.streaming.language.limits import parse_limit
from penstock.streaming.language.model import Homes, ManualHome, Step, Workflow
from penstock.streaming.language.names import Names
from penstock.streaming.language.reading import Table, Value
from penstock.streaming.language.rules import read_rules
from penstock.streaming.language.steps import read_options

__all__ = ["read_sections"]


def read_sections(document: Value, form: Form, source: str, root: str) -> Workflow | None:
    """The workflow as far as it can be understood; what cannot is in the document's report."""
    report = document.report
    top = document.table((*form.top_keys, *form.homes_too), keys_of_the_other(form))
    if top is None:
        return None
    name = top.require("name", "a name for the workflow")
    directory = _read_directory(top, form, source)
    root = root or directory
    names = Names(form, root, top.take("aliases"), report)
    if schema := top.take("$schema"):
        schema.text()  # for editors
    permanent, exclude, temporary = (names.read(top.take(key)) for key in ("permanent", "exclude", "temporary"))
    steps = _read_steps(top, form, names)
    homes = _read_homes(_policy(top, form), form, names, {step.name for step in steps})
    names.mention_unused()
    return Workflow(
        name=(name.text() if name else None) or "",
        steps=steps,
        homes=homes,
        permanent=permanent,
        exclude=exclude,
        temporary=temporary,
        form=form.name,
        source=source,
        directory=root,
        limit=_read_limit(top.take("limit")),
    )


def _read_directory(top: Table, form: Form, source: str) -> str:
    """The directory that names are relative to: that of the file, unless it says another."""
    if "directory" not in form.top_extra:
        return ""
    written = top.take("directory")
    text = written.text() if written else None
    return os.path.abspath(os.path.join(os.path.dirname(source), text or ""))


def _read_limit(written: Value | None) -> int | None:
    if written is None:
        return None
    given = written.given
    try:
        return parse_limit(given)
    except ConfigError as error:
        is_quantity = given > 0 if isinstance(given, (int, float)) else isinstance(given, str) and given != ""
        written.wrong(str(error), of_meaning=is_quantity and given is not True)
        return None


# --- steps ------------------------------------------------------------------------------------------------------------


def _read_steps(top: Table, form: Form, names: Names) -> tuple[Step, ...]:
    written = top.require(form.steps, f"the {form.step}s of the workflow")
    if written is None:
        return ()
    steps: list[Step] = []
    first_of: dict[str, str] = {}
    for item in written.items(0 if form.lenient else 1):
        table = item.table(form.step_keys, keys_of_the_other(form))
        if table is None:
            continue
        step = _read_step(table, form, names)
        steps.append(step)
        if step.name and step.name in first_of:
            top.report.wrong(
                table.place, f"the name {step.name!r} is already that of {first_of[step.name]}", of_meaning=True
            )
        first_of.setdefault(step.name, str(table.place))
    return tuple(steps)


def _read_step(table: Table, form: Form, names: Names) -> Step:
    name = table.require("name", f"what this {form.step} is called")
    text = (name.text() if name else None) or ""
    if name and not _is_step_name(text) and text:
        name.wrong(f"{text!r} cannot be a name: no ':' (it would number a process), no spaces at the ends")
    table.labelled(text)
    return Step(
        name=text,
        input=names.read(table.take(form.input)),
        output=names.read(table.take(form.output)),
        rules=read_rules(table, form, names, text),
        place=str(table.place),
        **read_options(table, form),
    )


def _is_step_name(text: str) -> bool:
    return ":" not in text and text == text.strip()


# --- homes ------------------------------------------------------------------------------------------------------------


def _policy(top: Table, form: Form) -> Value | None:
    found = [key for key in (form.homes, *form.homes_too) if key in top.given]
    for key in found[1:]:
        top.report.wrong(top.place.at(key), f"this section is given already, as {found[0]!r}", of_meaning=True)
    if found and found[0] != form.homes:
        top.report.doubtful(top.place.at(found[0]), f"accepted; the name of this section is {form.homes!r}")
    return top.take(found[0]) if found else None


def _read_homes(written: Value | None, form: Form, names: Names, steps: set[str]) -> Homes:
    table = written.table(("create", "hashing", "manual"), {}) if written else None
    if table is None:
        return Homes()
    manual = table.take("manual")
    homes = (_read_manual(item, form, names, steps) for item in (manual.items() if manual else ()))
    return Homes(
        create=names.read(table.take("create")),
        hashing=names.read(table.take("hashing")),
        manual=tuple(home for home in homes if home is not None),
    )


def _read_manual(item: Value, form: Form, names: Names, steps: set[str]) -> ManualHome | None:
    table = item.table((form.manual_files, form.manual_step), keys_of_the_other(form))
    if table is None:
        return None
    patterns = names.read(table.require(form.manual_files, "the files that are kept there"), 1)
    where = table.require(form.manual_step, f'an {form.step}, or one of its processes as in "name:1"')
    text = where.text() if where else None
    if where is None or text is None:
        return None
    process = re.fullmatch(r"([^:]+)(?::([0-9]+))?", text)
    if process is None:
        where.wrong(f'expected the name of an {form.step}, or "name:number", not {text!r}')
        return None
    step, number = process.groups()
    if step not in steps:
        known = ", ".join(sorted(steps)) or "none"
        where.wrong(f"there is no {form.step} {step!r}; there are: {known}", of_meaning=True)
    return ManualHome(patterns, step, int(number) if number else None, str(table.place))
