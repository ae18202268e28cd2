"""The coordination file: which programs exchange which files, and when each file may be read.

    text ──▶ json or tomllib ──▶ sections ──▶ Workflow ──▶ rules.conflicts ──▶ all mistakes at once
             (JsonObject)         names, rules, steps

``read_workflow`` is what everybody else calls. ``examine`` also tells what is wrong without raising.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from penstock.errors import ConfigError
from penstock.streaming.language.forms import JSON, TOML, Form
from penstock.streaming.language.model import Workflow
from penstock.streaming.language.reading import JsonObject, Place, Problem, Report, Value
from penstock.streaming.language.sections import read_sections
from penstock.streaming.rules.conflicts import find_mistakes

__all__ = ["Examination", "examine", "parse_workflow", "read_text", "read_workflow"]


class Examination(Struct, frozen=True):
    """What came of reading a document: a workflow, unless there are problems."""

    workflow: Workflow | None
    problems: tuple[Problem, ...] = ()


def read_workflow(path: str, root: str = "") -> Workflow:
    """The workflow that a file describes; ConfigError lists every mistake in it.

    ``root`` is the workflow's directory. Where it is known, absolute names below it are understood.
    """
    return parse_workflow(read_text(path), path, root)


def parse_workflow(text: str, source: str = "workflow.toml", root: str = "") -> Workflow:
    """The workflow that a text describes; ``source`` names it in messages, and by its ending tells its form."""
    found = examine(text, source, root)
    if found.workflow is None or found.problems:
        raise ConfigError(_told(source, found.problems))
    return found.workflow


def examine(text: str, source: str = "workflow.toml", root: str = "") -> Examination:
    """Read a text and collect what is wrong with it."""
    form = _form_of(text, source)
    report = Report()
    try:
        document = _parsed(text, form)
    except (ValueError, RecursionError) as error:
        message = "too many levels" if isinstance(error, RecursionError) else str(error)
        return Examination(None, (Problem("", f"this is not {form.name.upper()}: {message}"),))
    workflow = read_sections(Value(document, Place(form.name), report), form, source, root)
    if workflow is not None and not report.problems:
        find_mistakes(workflow, report)
    if workflow is None or report.problems:
        return Examination(None, tuple(report.problems))
    return Examination(msgspec.structs.replace(workflow, warnings=tuple(report.warnings)))


def read_text(path: str) -> str:
    """The text of a coordination file; ConfigError says why it cannot be read."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            return file.read()
    except UnicodeDecodeError as error:
        raise ConfigError(f"cannot read {path}: it is not UTF-8 (byte {error.start})") from None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from None


def _form_of(text: str, source: str) -> Form:
    """By the name of the file; one with another ending is JSON if it begins like it."""
    ending = os.path.splitext(source)[1].lower()
    if ending in (".json", ".toml"):
        return JSON if ending == ".json" else TOML
    return JSON if text.lstrip().startswith("{") else TOML


def _parsed(text: str, form: Form) -> object:
    if form is TOML:
        return tomllib.loads(text)
    return json.loads(text, object_pairs_hook=JsonObject)


def _told(source: str, problems: Sequence[Problem]) -> str:
    if len(problems) == 1:
        return f"{source}: {problems[0]}"
    return "\n".join([f"{source}: {len(problems)} mistakes", *(f"  {problem}" for problem in problems)])
