"""The published schemas and the reader agree on what is well formed: on a corpus, and on documents bent at random.

What a schema cannot see (two rules that differ, an alias of itself) the reader marks as a problem of meaning.
"""

from __future__ import annotations

import copy
import json
import tomllib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from tests.unit import streaming_listings as listings
from tests.unit.test_streaming_language import WRONG

from penstock.errors import ConfigError
from penstock.streaming.language.forms import JSON, TOML, Form
from penstock.streaming.language.reading import Place, Report, Value
from penstock.streaming.language.schema import FORMS, schema_text
from penstock.streaming.language.sections import read_sections

SCHEMAS = {form: Draft202012Validator(json.loads(schema_text(form))) for form in FORMS}
#: the TOML form with every key, and its smallest
TOMLS = [tomllib.loads(listings.FULL_TOML), {"name": "w", "step": [{"name": "s"}]}]
#: all that can stand anywhere, right or wrong
ODD_VALUES: list[object] = [
    *(None, True, 0, 1, -1, 2.5, "", "x", "S:1", "on_close", "on_close:0", "on_close:12", "n_files", "n_files:3"),
    *("on_file", "update", "no_update", "at_commit", " s", [], ["x"], [""], [3], [["x"]], {}, {"name": "x"}, [{}]),
]


def is_well_formed(document: object, form: Form) -> bool:
    """What the reader thinks of its shape."""
    report = Report()
    read_sections(Value(copy.deepcopy(document), Place(form.name), report), form, "w", "/")
    return all(problem.of_meaning for problem in report.problems)


def agree(document: object, form: Form) -> bool:
    """Whether it is well formed, as both say."""
    complaints = [error.message for error in SCHEMAS[form.name].iter_errors(document)]
    assert is_well_formed(document, form) == (not complaints), (document, complaints)
    return not complaints


def places(document: object, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Ways to everything in a document."""
    found = [way]
    if isinstance(document, dict):
        found += [one for key, value in document.items() for one in places(value, (*way, key))]
    elif isinstance(document, list):
        found += [one for number, value in enumerate(document) for one in places(value, (*way, number))]
    return found


def bent(document: Any, data: st.DataObject) -> Any:
    """A document with something replaced, removed, renamed or added."""
    document = copy.deepcopy(document)
    ways = [way for way in places(document) if way]
    if not ways:
        return document  # nothing is left of it
    way = data.draw(st.sampled_from(ways))
    at = document
    for key in way[:-1]:
        at = at[key]
    action = data.draw(st.sampled_from(["replace", "remove", "rename", "add"]))
    if action == "remove":
        del at[way[-1]]
    elif action == "rename" and isinstance(at, dict):
        at[data.draw(st.sampled_from([*KEYS, "unheard_of"]))] = at.pop(way[-1])
    elif action == "add" and isinstance(at, dict):
        at[data.draw(st.sampled_from(KEYS))] = copy.deepcopy(data.draw(st.sampled_from(ODD_VALUES)))
    else:
        at[way[-1]] = copy.deepcopy(data.draw(st.sampled_from(ODD_VALUES)))
    return document


KEYS = sorted(
    {key for form in (JSON, TOML) for key in (*form.top_keys, *form.step_keys, *form.rule_keys, *form.homes_too)}
    | {"create", "hashing", "manual", "app_node", "group_name"}
)


@pytest.mark.parametrize("form", FORMS)
def test_the_schemas_are_schemas(form: str) -> None:
    Draft202012Validator.check_schema(json.loads(schema_text(form)))


def test_there_are_two_forms() -> None:
    with pytest.raises(ConfigError, match="no form 'tomll'; did you mean 'toml'"):
        schema_text("tomll")


@pytest.mark.parametrize("document", listings.LISTINGS.values(), ids=listings.LISTINGS)
def test_both_accept_the_listings(document: dict[str, Any]) -> None:
    assert agree(document, JSON)


@pytest.mark.parametrize("document", TOMLS)
def test_both_accept_the_toml_form(document: dict[str, Any]) -> None:
    assert agree(document, TOML)


@pytest.mark.parametrize("document", [document for document, _, _ in WRONG], ids=range(len(WRONG)))
def test_both_refuse_what_is_badly_formed(document: dict[str, Any]) -> None:
    agree(document, JSON)


def test_most_of_the_wrong_documents_are_wrong_for_the_schema_too() -> None:
    refused = [not SCHEMAS["json"].is_valid(document) for document, _, _ in WRONG]
    assert sum(refused) >= len(WRONG) - 5  # names given twice, leading out, unknown


@settings(max_examples=250, deadline=None)
@given(st.sampled_from(list(listings.LISTINGS.values())), st.integers(1, 3), st.data())
def test_they_agree_on_bent_json(document: dict[str, Any], times: int, data: st.DataObject) -> None:
    for _ in range(times):
        document = bent(document, data)
    agree(document, JSON)


@settings(max_examples=250, deadline=None)
@given(st.sampled_from(TOMLS), st.integers(1, 3), st.data())
def test_they_agree_on_bent_toml(document: dict[str, Any], times: int, data: st.DataObject) -> None:
    for _ in range(times):
        document = bent(document, data)
    agree(document, TOML)
