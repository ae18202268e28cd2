"""The tables of the documentation are made from one run of the benchmarks."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
from benchmarks import tables
from benchmarks.harness import ROOT
from benchmarks.row import judge
from benchmarks.rows import ORDER, all_rows


def told() -> dict[str, Any]:
    """A run in which every figure is 15, and those of Ray are 3."""
    details = {"hmmer unaware, s": 7.926, "hmmer 8, s": 3.1, "alignment fcfs, s": 16.7, "hmmer fcfs, s": 7.1}
    records = [
        asdict(judge(row, 15.0, {"ray": 3.0} if "ray" in row.measurement.peers else {}, details)) for row in all_rows()
    ]
    return {
        "date": "2026-11-17T10:00:00+00:00",
        "commit": "v1",
        "cores": 2,
        "python": "3.11.7",
        "seconds": 1_800.0,
        "quick": False,
        "records": records,
    }


def filled(page: str) -> str:
    return tables.filled(page, tables.Bench(told()))


def test_one_figure_with_several_budgets_is_one_line_with_its_peers() -> None:
    page = filled("above\n<!-- bench: tasks -->\noutdated\n<!-- end -->\nbelow\n")
    lines = page.splitlines()
    assert lines[:3] == ["above", "<!-- bench: tasks -->", ""] and lines[-3:] == ["", "<!-- end -->", "below"]
    assert "outdated" not in page
    (tasks,) = (line for line in lines if line.startswith("| tasks, a future each, tasks/s "))
    assert tasks.split(" | ")[1:3] == ["15", "3"]
    assert "≥ 20,000: **missed**; ≥ 10 × best of ray, dask, parsl: **missed**; ≥ 2 × mpire: not judged" in tasks


@pytest.mark.parametrize("name", ["speed", "saved"])
def test_the_first_page_has_no_budgets(name: str) -> None:
    page = filled(f"<!-- bench: {name} -->\n<!-- end -->")
    assert "15" in page and "Budget" not in page and "missed" not in page


def test_seconds_of_all_ways_stand_side_by_side() -> None:
    page = filled("<!-- bench: ways -->\n<!-- end -->")
    assert "| Way | HMMER shape | variants shape |\n| --- | --- | --- |\n| unaware | 7.93 | |\n| 8 | 3.10 | |" in page


def test_a_page_says_of_which_run_its_figures_are() -> None:
    page = filled("<!-- bench: origin -->\n<!-- end -->")
    assert "on 2026-11-17 of commit v1, on 2 cores, Python 3.11.7, in 30 min 0 s" in page


def test_the_pages_have_all_tables_and_every_row_is_in_one_of_them() -> None:
    pages = "".join(filled((ROOT / name).read_text()) for name in tables.PAGES)
    assert all(f"<!-- bench: {name} -->" in pages for name in tables.SECTIONS)
    measurements = {row.measurement: row.name for row in reversed(all_rows())}
    missing = [name for name in measurements.values() if f"| {name}" not in pages]
    assert not missing
    assert filled(pages) == pages


def test_a_run_of_a_few_rows_makes_no_tables() -> None:
    few = told()
    few["records"] = few["records"][:1]
    with pytest.raises(SystemExit, match=ORDER[1]):
        tables.filled("<!-- bench: tasks -->\n<!-- end -->", tables.Bench(few))


def test_a_table_that_is_not_known_is_named() -> None:
    with pytest.raises(SystemExit, match="'nonsense'"):
        filled("<!-- bench: nonsense -->\n<!-- end -->")
