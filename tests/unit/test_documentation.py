"""What is written is true: code in README and docs runs, shows the output it shows, and every link leads somewhere.

One file is one program: its ```python blocks run in order, at the line numbers they have in the page, in a fresh
folder. In README.md each block is one, since that is what people try first. CONTRIBUTING.md tells an author the two
comments that steer this, `<!-- output -->` and `<!-- not run -->`.
Example programs are compared with their recorded output in the same way.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest
from tests.mpi_here import skip_without_mpi
from tests.own_place import user_environment

ROOT = Path(__file__).parents[2]
TIMEOUT = 90.0
NOT_RUN, OUTPUT = "<!-- not run -->", "<!-- output -->"


# --- reading a page ---------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Block:
    """One fenced block: its language, the line of its opening fence (from 1), and the comment right above it."""

    language: str
    line: int
    text: str
    comment: str

    @property
    def last_line(self) -> int:
        """The line of the closing fence."""
        return self.line + self.text.count("\n") + 1


@dataclasses.dataclass
class Example:
    """A python block and the output that the page claims for it, if any."""

    code: Block
    output: str | None = None

    @property
    def runs(self) -> bool:
        return self.code.comment != NOT_RUN


def blocks(page: str) -> Iterator[Block]:
    lines = page.splitlines()
    at, comment = 0, ""
    while at < len(lines):
        fence = re.match(r"(\s*)(`{3,}|~{3,})\s*(\w*)", lines[at])
        if fence is None:
            if lines[at].strip():
                comment = lines[at].strip()
            at += 1
            continue
        end = next((n for n in range(at + 1, len(lines)) if lines[n].strip() == fence[2]), None)
        assert end is not None, f"line {at + 1}: this block is never closed"
        text = "".join(f"{line}\n" for line in lines[at + 1 : end])
        yield Block(fence[3], at + 1, textwrap.dedent(text), comment)
        at, comment = end + 1, ""


def examples(page: str) -> list[Example]:
    found: list[Example] = []
    previous: Example | None = None
    for block in blocks(page):
        if block.comment == OUTPUT:
            if previous is None or not previous.runs:
                raise AssertionError(f"line {block.line}: output of no python block that runs")
            previous.output = block.text
        previous = Example(block) if block.language == "python" else None
        if previous is not None:
            found.append(previous)
    return found


# --- running programs -------------------------------------------------------------------------------------------------


def run(script: Path, folder: Path) -> str:
    """Run a program as a user would and return what it printed; it and its children end within the time limit."""
    clean = user_environment()
    process = subprocess.Popen(
        [sys.executable, str(script)],
        cwd=folder,
        env=clean | {"NO_COLOR": "1", "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        printed, complaints = process.communicate(timeout=TIMEOUT)
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    assert process.returncode == 0, f"{script.name} ended with {process.returncode}\n{printed}\n{complaints}"
    return printed


def program_of(found: list[Example]) -> str:
    """The page as a program: each block on its own lines, and a mark printed where its closing fence stands."""
    lines: list[str] = []
    for example in found:
        lines += [""] * (example.code.line - len(lines))
        lines += example.code.text.splitlines()
        lines.append(f"print({mark(example)!r}, flush=True)")
    return "\n".join(lines) + "\n"


def mark(example: Example) -> str:
    return f"\x1eend of the block at line {example.code.line}\x1e"


def check_output(printed: str, expected: str) -> None:
    """Compare to the letter, except that `...` stands for any text, such as a measured time."""
    pattern = ".*?".join(re.escape(part) for part in expected.strip().split("..."))
    if not re.fullmatch(pattern, printed.strip(), re.DOTALL):
        assert printed.strip() == expected.strip()


def check_page(page: str, folder: Path, name: str = "page", *, apart: bool = False) -> None:
    """Compile every python block, run the page, and hold each block's output against what the page claims.

    ``apart``: each block is a program, in a folder of its own.
    """
    found = examples(page)
    for example in found:
        compile(example.code.text, f"{name}, block at line {example.code.line}", "exec")
    running = [example for example in found if example.runs]
    for number, program in enumerate([[one] for one in running] if apart else [running] if running else []):
        place = folder / str(number)
        place.mkdir()
        script = place / f"{name}_page.py"  # not the name of the page: that of collections.md is taken
        script.write_text(program_of(program))
        rest = run(script, place)
        for example in program:
            printed, _, rest = rest.partition(mark(example) + "\n")
            if example.output is not None:
                check_output(printed, example.output)


# --- links ------------------------------------------------------------------------------------------------------------


def prose_of(page: str) -> str:
    """The page without its code blocks."""
    lines = page.splitlines()
    for block in blocks(page):
        lines[block.line - 1 : block.last_line] = [""] * (block.last_line - block.line + 1)
    return "\n".join(lines)


def anchors(page: str) -> set[str]:
    """The fragments that headings answer to: lower case, punctuation dropped, blanks to hyphens."""
    titles = re.findall(r"^#+\s+(.*?)\s*$", prose_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken_links(path: Path) -> list[str]:
    """Relative links that lead nowhere, and source paths in backticks that do not exist."""
    prose = prose_of(path.read_text())
    broken = []
    for source in re.findall(r"`((?:src|tests)/[\w./-]+)`", prose):
        if not (ROOT / source).exists():
            broken.append(source)
    text = re.sub(r"`[^`\n]*`", "", prose)
    targets = re.findall(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)", text) + re.findall(
        r"^\s*\[[^\]]+\]:\s*(\S+)", text, re.MULTILINE
    )
    for target in targets:
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        place, _, fragment = unquote(target).partition("#")
        goal = (path.parent / place).resolve() if place else path
        if not goal.exists() or (fragment and goal.suffix == ".md" and fragment not in anchors(goal.read_text())):
            broken.append(target)
    return broken


# --- our pages and examples -------------------------------------------------------------------------------------------


def ours(path: Path) -> bool:
    steps = path.relative_to(ROOT).parts
    return not any(step.startswith(".") or step in ("build", "dist") for step in steps)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


PAGES = sorted(path for path in ROOT.rglob("*.md") if ours(path))
PAGES_THAT_RUN = [path for path in PAGES if path == ROOT / "README.md" or ROOT / "docs" in path.parents]
EXAMPLES = sorted(
    {path.with_suffix(".py") for pattern in ("*.py", "*.out") for path in (ROOT / "examples").glob(pattern)}
)


@pytest.mark.parametrize("path", PAGES_THAT_RUN, ids=name_of)
def test_the_code_of_a_page_runs_and_shows_its_output(path: Path, tmp_path: Path) -> None:
    skip_without_mpi(path.read_text())
    check_page(path.read_text(), tmp_path, path.stem, apart=path == ROOT / "README.md")


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_links_lead_somewhere(path: Path) -> None:
    assert broken_links(path) == []


@pytest.mark.one_in(2)
@pytest.mark.parametrize("path", EXAMPLES, ids=name_of)
def test_an_example_prints_its_recorded_output(path: Path, tmp_path: Path) -> None:
    skip_without_mpi(path.read_text())
    assert run(path, tmp_path) == path.with_suffix(".out").read_text()


# --- the checks themselves, on bad pages ------------------------------------------------------------------------------

PAGE = """\
# Title

```python
greeting = "hello"
print(greeting)
```

{comment}
```text
{claimed}
```

Later, and the name is still known:

```python
print(greeting.upper(), {number})
```

<!-- output -->

```text
HELLO ...
```
"""


def page(comment: str = OUTPUT, claimed: str = "hello", number: str = "0.25") -> str:
    return PAGE.format(comment=comment, claimed=claimed, number=number)


def test_a_true_page_passes(tmp_path: Path) -> None:
    check_page(page(), tmp_path)


def test_output_that_differs_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="goodbye"):
        check_page(page(claimed="goodbye"), tmp_path)


def test_only_a_block_marked_as_output_is_compared(tmp_path: Path) -> None:
    check_page(page(comment="For comparison:", claimed="goodbye"), tmp_path)


def test_blocks_that_are_programs_run_alone(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="NameError"):
        check_page(page(), tmp_path, apart=True)


def test_an_error_is_reported_with_the_line_of_the_page(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="line 16"):
        check_page(page(number="1 / 0"), tmp_path)


def test_output_of_nothing_is_refused() -> None:
    with pytest.raises(AssertionError, match="line 2: output of no python block"):
        examples("<!-- output -->\n```text\nhello\n```\n")


def test_a_block_that_is_not_run_is_compiled(tmp_path: Path) -> None:
    check_page("<!-- not run -->\n```python\nraise SystemExit(3)\n```\n", tmp_path)
    with pytest.raises(SyntaxError):
        check_page("<!-- not run -->\n```python\nraise !\n```\n", tmp_path)


def test_an_unclosed_block_is_refused() -> None:
    with pytest.raises(AssertionError, match="line 1: this block is never closed"):
        examples("```python\nprint(1)\n")


def test_broken_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# One Heading: here\n```text\n# not one\n```\n")
    text = """\
[good](other.md) [good](other.md#one-heading-here) [good](https://example.org/x)
`[code](gone.md)` `src/penstock/errors.py`
```text
[in a block](gone.md)
```
[bad](gone.md) [bad](other.md#not-one) [bad](#nowhere) `src/penstock/gone.py`

[bad]: missing.md
"""
    (tmp_path / "page.md").write_text(text)
    found = broken_links(tmp_path / "page.md")
    assert sorted(found) == ["#nowhere", "gone.md", "missing.md", "other.md#not-one", "src/penstock/gone.py"]
