"""Auto constraints as users write them."""

from __future__ import annotations

import pytest

from penstock.errors import ConfigError
from penstock.model.resources import Auto
from penstock.tuning.spec import is_auto, parse, shown

MB = 1e6


@pytest.mark.parametrize("text", ["auto", " AUTO ", "Auto\t"])
def test_the_unbounded_form(text: str) -> None:
    assert is_auto(text)
    assert parse(text) == Auto()
    assert not parse(text).bounded


@pytest.mark.parametrize(
    ("text", "auto"),
    [
        ("auto(2,256,2)", Auto(2 * MB, 256 * MB, 2.0)),
        (" Auto ( 10 , 50,\t4 ) ", Auto(10 * MB, 50 * MB, 4.0)),
        ("AUTO(2MB/s, 1.5 GB/s, 1.5)", Auto(2 * MB, 1500 * MB, 1.5)),
        ("auto(512kB/s,1,2e0)", Auto(0.512 * MB, 1 * MB, 2.0)),
        ("auto(7,7,2)", Auto(7 * MB, 7 * MB, 2.0)),
    ],
)
def test_the_bounded_form(text: str, auto: Auto) -> None:
    assert is_auto(text)
    assert parse(text) == auto
    assert parse(text).bounded
    assert parse(shown(auto)) == auto


@pytest.mark.parametrize("value", ["40MB/s", "", "automatic", "auto2", "auto_", 40, None, Auto()])
def test_what_is_not_auto(value: object) -> None:
    assert not is_auto(value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("auto(", "expected"),
        ("auto)", "expected"),
        ("auto 2,256,2", "expected"),
        ("auto(2,256,2", "expected"),
        ("auto((2,256,2))", "expected"),
        ("auto(2,256,2) please", "expected"),
        ("auto()", "three values, min, max and delta, not 0"),
        ("auto(2)", "not 1"),
        ("auto(2,256)", "not 2"),
        ("auto(2,256,2,)", "not 4"),
        ("auto(,256,2)", "min: cannot read ''"),
        ("auto(two,256,2)", "min: cannot read 'two'"),
        ("auto(2,256MB,2)", "max: cannot read '256MB'"),
        ("auto(nan,256,2)", "min: cannot read 'nan'"),
        ("auto(2,inf,2)", "max: cannot read 'inf'"),
        ("auto(2,1e400,2)", "max: cannot read '1e400'"),
        ("auto(0,256,2)", "min must be above zero, not 0"),
        ("auto(-2,256,2)", "min must be above zero, not -2"),
        ("auto(2,-3,2)", "max must be above zero, not -3"),
        ("auto(16,4,2)", "min (16) is above max (4)"),
        ("auto(1GB/s,900,2)", "min (1GB/s) is above max (900)"),
        ("auto(2,256,1)", "above 1, not 1"),
        ("auto(2,256,0.5)", "above 1, not 0.5"),
        ("auto(2,256,-2)", "above 1, not -2"),
        ("auto(2,256,)", "delta must be a plain number above 1, not ''"),
        ("auto(2,256,2MB/s)", "delta must be a plain number above 1, not '2MB/s'"),
        ("auto(2,256,nan)", "delta must be a plain number"),
        ("auto(2,256,inf)", "delta must be a plain number"),
        ("auto(2,256,1e999)", "delta must be a plain number"),
        ("auto(2,256,1_0)", "delta must be a plain number"),
    ],
)
def test_what_is_malformed_is_refused_with_the_text_and_the_reason(text: str, complaint: str) -> None:
    assert is_auto(text)
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert repr(text) in str(caught.value)
    assert complaint in str(caught.value)


def test_unbounded_is_shown_as_one_word() -> None:
    assert shown(Auto()) == "auto"
    assert shown(Auto(2 * MB, 256 * MB, 1.5)) == "auto(2 MB/s, 256 MB/s, 1.5)"
