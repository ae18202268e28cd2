"""``penstock stream check``, ``estimate`` and ``schema``: what can be known before anything runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from penstock.streaming.estimate import Estimate
    from penstock.streaming.language.check import CoveredName, Explanation
    from penstock.streaming.language.model import Workflow

__all__ = ["check", "estimate", "schema"]


def check(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Coordination file, TOML or JSON.", show_default=False)],
    name: Annotated[
        list[str] | None, typer.Option("--name", metavar="NAME", help="Only say what covers this file or directory.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Validate a coordination file and explain it.

    Which rule covers which file, what its readers will wait for, and what may surprise.
    The exit status is 2 if there are mistakes.
    """
    from penstock.errors import ConfigError
    from penstock.streaming.language.workflow import examine, read_text

    try:
        found = examine(read_text(file), file)
        if found.workflow is None:
            _refuse(file, [str(problem) for problem in found.problems], json)
        if name:
            _show_names(found.workflow, name, json)
            return
    except ConfigError as error:
        _fail(str(error))
    from penstock.streaming.language.check import explain

    explanation = explain(found.workflow)
    if json:
        _print_json(explanation)
    else:
        _show(_console(), explanation)


def schema(
    form: Annotated[str, typer.Argument(metavar="json|toml", help="Which of the two forms.")] = "toml",
) -> None:
    """Print the JSON Schema of coordination files, for editors."""
    from penstock.errors import ConfigError
    from penstock.streaming.language.schema import schema_text

    try:
        typer.echo(schema_text(form), nl=False)
    except ConfigError as error:
        _fail(str(error))


def estimate(
    files: Annotated[int, typer.Option(metavar="K", min=1, help="Number of files.")] = 1,
    size: Annotated[str, typer.Option(metavar="SIZE", help="Bytes of each file.")] = "1GB",
    read_size: Annotated[
        str | None, typer.Option(metavar="SIZE", help="What is read of each.", show_default="all of it")
    ] = None,
    write: Annotated[str, typer.Option(metavar="RATE", help="Bandwidth of writing.")] = "500MB/s",
    read: Annotated[
        str | None, typer.Option(metavar="RATE", help="Bandwidth of reading.", show_default="that of writing")
    ] = None,
    writer_compute: Annotated[str, typer.Option(metavar="TIME", help="What the writer computes, in all.")] = "0s",
    reader_compute: Annotated[str, typer.Option(metavar="TIME", help="What the reader computes, in all.")] = "0s",
    record: Annotated[str, typer.Option(metavar="SIZE", help="What is read at a time.")] = "1MiB",
    json: Annotated[bool, typer.Option("--json", help="Print JSON: seconds.")] = False,
) -> None:
    """Estimate what streaming gains between a step that writes files and one that reads them."""
    from penstock.errors import ConfigError
    from penstock.streaming.estimate import Pipeline
    from penstock.streaming.estimate import estimate as estimated
    from penstock.units import parse_duration, parse_rate, parse_size

    try:
        pipeline = Pipeline(
            files=files,
            written=parse_size(size),
            read=parse_size(size if read_size is None else read_size),
            write_rate=parse_rate(write),
            read_rate=parse_rate(write if read is None else read),
            writer_compute=parse_duration(writer_compute),
            reader_compute=parse_duration(reader_compute),
            record=parse_size(record),
        )
        result = estimated(pipeline)
    except ConfigError as error:
        _fail(str(error))
    if json:
        _print_json(result)
    else:
        _show_estimate(_console(), result)


# --- refusing ---------------------------------------------------------------------------------------------------------


def _fail(message: str) -> NoReturn:
    typer.echo(f"penstock: {message}", err=True)
    raise typer.Exit(2)


def _refuse(file: str, problems: list[str], json: bool) -> NoReturn:
    if json:
        _print_json({"source": file, "problems": problems})
        raise typer.Exit(2)
    if len(problems) == 1:
        _fail(f"{file}: {problems[0]}")
    _fail("\n".join([f"{file}: {len(problems)} mistakes", *(f"  ✗ {problem}" for problem in problems)]))


# --- showing ----------------------------------------------------------------------------------------------------------


def _console() -> Console:
    from penstock.cli.simulate_output import console

    return console()


def _print_json(value: object) -> None:
    import msgspec

    typer.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def _table(*headings: str) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def _show(console: Console, explanation: Explanation) -> None:
    from rich.markup import escape

    workflow = explanation.workflow
    where = f" · names are relative to {workflow.directory}" if workflow.directory else ""
    console.print(
        f"[bold]{escape(workflow.name)}[/] [dim]{escape(workflow.source)}{escape(where)}[/]\n", soft_wrap=True
    )
    console.print(_steps(explanation))
    console.print()
    console.print(_names(explanation))
    warnings = [remark for remark in explanation.remarks if remark.warning]
    notes = [remark for remark in explanation.remarks if not remark.warning]
    if explanation.remarks:
        console.print()
    for remark in (*warnings, *notes):
        mark, style = ("!", "yellow") if remark.warning else ("·", "dim")
        console.print(f"[{style}]{mark} {escape(remark.message)}[/]", soft_wrap=True)
    count = f"{len(warnings)} warning{'' if len(warnings) == 1 else 's'}"
    console.print(f"\n[green]✓[/] no mistakes, {count if warnings else 'no warnings'}")


def _steps(explanation: Explanation) -> Table:
    from rich.markup import escape

    from penstock.streaming.language.check_words import listed

    with_commands = any(step.command for step in explanation.workflow.steps)
    table = _table("step", "reads", "makes", "after", *(["command"] if with_commands else []))
    for step in explanation.workflow.steps:
        sources = [edge.producer for edge in explanation.edges if edge.consumer == step.name]
        name = step.name if step.instances == 1 else f"{step.name} × {step.instances}"
        command = step.command if isinstance(step.command, str) else " ".join(step.command or ())
        lists = [listed(step.input), listed(step.output), listed(sources)]
        lists += [command] if with_commands else []
        table.add_row(f"[bold]{escape(name)}[/]", *map(escape, lists))
    return table


def _names(explanation: Explanation) -> Table:
    """One row for names of which the same is true."""
    import msgspec
    from rich.markup import escape

    from penstock.streaming.language.check_words import listed

    table = _table("name", "made by", "read by", "rule", "what happens", "")
    alike: dict[CoveredName, list[str]] = {}
    for one in explanation.names:
        name = one.name if one.target.value == "files" else f"{one.name}/"
        alike.setdefault(msgspec.structs.replace(one, name=""), []).append(name)
    for one, names in alike.items():
        origin = " (implied)" if one.implied else "" if one.place else " (default)"
        cells = (listed(names), listed(one.producers), listed(one.consumers), one.rule + origin, one.waits, one.kept)
        table.add_row(*map(escape, cells), style="dim" if one.implied else "")
    return table


def _show_names(workflow: Workflow, names: list[str], json: bool) -> None:
    """What covers single names, as a file and as a directory."""
    from rich.markup import escape

    from penstock.errors import ConfigError
    from penstock.streaming.language.check_words import waits
    from penstock.streaming.rules.coverage import Rules
    from penstock.streaming.rules.patterns import normalised

    rules = Rules(workflow)
    found = []
    for name in names:
        try:
            clean = normalised(name, workflow.directory)
        except ValueError as error:
            raise ConfigError(f"--name {name!r} cannot be used: {error}") from None
        found += [rules.file(clean), rules.directory(clean)]
    if json:
        _print_json(found)
        return
    console = _console()
    for one in found:
        as_what = "as a file" if one.target.value == "files" else "as a directory"
        console.print(f"[bold]{escape(one.name)}[/] {as_what}", soft_wrap=True)
        place = (
            "no rule: the default" if one.by_default else one.rule.place + (" (implied)" if one.rule.implied else "")
        )
        kept = [word for word in ("excluded", "permanent", "temporary") if getattr(one, word)]
        for label, value in (
            ("rule", f"{one.rule.spelled}   {place}"),
            ("made by", ", ".join(one.producers) or "nobody declared"),
            ("read by", ", ".join(one.consumers) or "nobody declared"),
            ("meaning", waits(one.rule, one.producers)),
            ("kept", ", ".join(kept)),
            ("home", f"{one.home.policy} {one.home.step}".strip()),
        ):
            if value:
                console.print(f"  [dim]{label:<8}[/] {escape(value)}", soft_wrap=True)


def _show_estimate(console: Console, result: Estimate) -> None:
    from penstock.units import format_duration

    table = _table("", "time", "saved")
    for column in table.columns[1:]:
        column.justify = "right"
    for label, seconds in (
        ("one after the other (batch)", result.batch),
        ("streamed, files when closed", result.by_file),
        ("streamed, records as written", result.by_record),
        ("ideal overlap", result.ideal),
    ):
        table.add_row(label, format_duration(seconds), "" if seconds == result.batch else f"{result.gain(seconds):.0%}")
    console.print(table)
    console.print(
        f"\nInput and output alone: {format_duration(result.io_batch)} in batch, {format_duration(result.io_by_file)} "
        f"file by file ({result.io_gain:.0%} less), at best {format_duration(result.io_ideal)}."
    )
    if result.compute:
        least, most = map(format_duration, result.bounds)
        console.print(
            f"Computing takes {format_duration(result.compute)}. A program that computes while it reads and writes "
            f"shortens the batch run too: it takes between {least} and {most}."
        )
