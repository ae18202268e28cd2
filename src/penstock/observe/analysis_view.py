"""An analysis as a person wants to see it in a terminal: the headline, bars, the critical path, a plot over time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console, Group, OverflowMethod, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.observe.analysis import Analysis, DeviceUse, FunctionUse, NodeUse
from penstock.observe.area_plot import area_plot
from penstock.units import format_count, format_duration, format_rate, format_size

__all__ = ["analysis_view", "bar"]

#: nodes that are listed one by one; more are summed up
_FEW_NODES = 4
_MOST_ROWS = 7
_SHORTEST_BAR, _LONGEST_BAR = 8, 40
_LONGEST_LABEL = 38


def analysis_view(analysis: Analysis, console: Console, title: str) -> RenderableType:
    """All of it, for the width of the console."""
    parts: list[RenderableType] = [Text(title, style="bold"), _headline(analysis), *_failures(analysis, console)]
    for heading, table in (
        ("tasks", _functions_table(analysis, console)),
        ("computing units in use", _nodes_table(analysis.nodes, console)),
        ("storage", _devices_table(analysis.devices, console)),
        ("what determined the end (critical path)", _path_table(analysis, console)),
        ("what tasks waited for before they ran, all together", _waiting_table(analysis, console)),
    ):
        if table is not None:
            parts += [Text(), Text(heading, style="bold"), table]
    parts += _plots(analysis, console)
    return Group(*parts)


def bar(share: float, length: int, style: str, *, ascii_only: bool) -> Text:
    """A part of a whole as a bar; what is not nothing is seen."""
    full, empty = ("#", ".") if ascii_only else ("█", "░")
    cells = min(length, round(share * length))
    if share > 0:
        cells = max(1, cells)
    return Text.assemble((full * cells, style), (empty * (length - cells), "dim"))


def _headline(analysis: Analysis) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    table.add_column(style="dim")
    table.add_column()
    for name, value in _facts(analysis):
        table.add_row(f"  {name}", Text(value, style="bold" if name == "makespan" else ""))
    return table


def _facts(analysis: Analysis) -> Iterator[tuple[str, str]]:
    """The numbers that sum it all up, by name."""
    yield "makespan", format_duration(analysis.makespan)
    if analysis.end > analysis.makespan * 1.001 + 1e-3:
        yield "end", f"{format_duration(analysis.end)}, when the run was over"
    tasks = [f"{format_count(analysis.done)} done"]
    for count, word in (
        (analysis.failed, "failed"),
        (analysis.cancelled, "cancelled"),
        (analysis.retried, "tried again"),
    ):
        if count:
            tasks.append(f"{format_count(count)} {word}")
    yield "tasks", ", ".join(tasks)
    if analysis.cpus:
        each = f"{format_count(analysis.tasks_per_core)} {'task' if analysis.tasks_per_core == 1 else 'tasks'} each"
        yield "cores", f"{format_count(analysis.cpus)}, {analysis.utilisation:.0%} in use, {each}"
    if analysis.io_seconds:
        share = analysis.io_seconds / analysis.makespan
        yield "I/O", f"{format_duration(analysis.io_seconds)}, {share:.0%} of the time"
    alone = analysis.makespan - analysis.parallel_seconds
    if alone > 0.01 * analysis.makespan:
        yield "alone", f"{format_duration(alone)} with at most one task running, {alone / analysis.makespan:.0%}"
    gaps = analysis.gaps
    if gaps.mean:
        yield "gaps", f"{format_duration(gaps.mean)} between two tasks on a core, at most {format_duration(gaps.most)}"
    if analysis.dropped:
        yield "warning", f"the log lacks {format_count(analysis.dropped)} records, so all of this is incomplete"


def _failures(analysis: Analysis, console: Console) -> list[Text]:
    """What failed and why, a line each."""
    lines = [
        Text(f"  failed: {failure.name} (task {failure.task}): {' '.join(failure.message.split())}", style="red")
        for failure in analysis.failures
    ]
    if more := analysis.failed - len(lines):
        lines.append(Text(f"  and {format_count(more)} more failed", style="red"))
    for line in lines:
        line.truncate(console.width, overflow="crop" if console.options.ascii_only else "ellipsis")
    return [Text(), *lines] if lines else []


def _bars(
    rows: Sequence[tuple[str, float, Sequence[str], str]], console: Console, headings: Sequence[str] = ()
) -> Table:
    """Rows of a label, a share of 1 as a bar, further cells, and the bar's style."""
    columns = len(rows[0][2])
    label = min(_LONGEST_LABEL, max(len(row[0]) for row in rows), max(12, console.width // 2))
    cells = [max(len(text) for text in (*(row[2][i] for row in rows), *headings[i : i + 1])) for i in range(columns)]
    spare = console.width - 2 - label - 2 - sum(2 + width for width in cells)
    while cells and spare < _SHORTEST_BAR:
        spare += 2 + cells.pop()
    length = max(_SHORTEST_BAR, min(_LONGEST_BAR, spare))
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=bool(headings), header_style="dim")
    cut: OverflowMethod = "crop" if console.options.ascii_only else "ellipsis"
    table.add_column("", width=label + 2, no_wrap=True, overflow=cut)
    table.add_column("", width=length, no_wrap=True)
    for index, width in enumerate(cells):
        table.add_column(headings[index] if headings else "", width=width, justify="right", no_wrap=True)
    for name, share, texts, style in rows:
        drawn = bar(share, length, style, ascii_only=console.options.ascii_only)
        table.add_row(Text("  " + name), drawn, *map(Text, texts[: len(cells)]))
    return table


def _functions_table(analysis: Analysis, console: Console) -> Table | None:
    functions = sorted(analysis.functions, key=lambda function: -function.seconds)
    whole = sum(function.seconds for function in functions)
    if not whole:
        return None
    again = any(function.attempts > function.tasks for function in functions)

    def cells(of: Sequence[FunctionUse], mean: str) -> list[str]:
        counts = [sum(function.tasks for function in of), sum(function.attempts for function in of)]
        total = sum(function.seconds for function in of)
        return [format_duration(total), *map(format_count, counts[: 1 + again]), mean]

    rows: list[tuple[str, float, Sequence[str], str]] = []
    for function in functions[:_MOST_ROWS]:
        style = "magenta" if function.io else "green"
        rows.append((function.name, function.seconds / whole, cells([function], format_duration(function.mean)), style))
    if others := functions[_MOST_ROWS:]:
        share = sum(function.seconds for function in others) / whole
        rows.append((_others(len(others)), share, cells(others, ""), "dim"))
    return _bars(rows, console, ("in total", "calls", *(["attempts"] if again else []), "mean"))


def _others(count: int) -> str:
    return "1 other" if count == 1 else f"{count} others"


def _nodes_table(nodes: list[NodeUse], console: Console) -> Table | None:
    if not nodes:
        return None
    if len(nodes) <= _FEW_NODES:
        rows = [(f"{node.name} ({node.cpus})", node.utilisation, _node_cells(node), "green") for node in nodes]
        return _bars(rows, console)
    rows = []
    kinds: dict[int, list[NodeUse]] = {}
    for node in nodes:
        kinds.setdefault(node.cpus, []).append(node)
    for cpus, alike in kinds.items():
        mean = sum(node.utilisation for node in alike) / len(alike)
        tasks = format_count(sum(node.tasks for node in alike))
        label = f"{len(alike)} {'node' if len(alike) == 1 else 'nodes'} of {cpus} {'core' if cpus == 1 else 'cores'}"
        rows.append((label, mean, (f"{mean:.0%}", f"{tasks} tasks"), "green"))
        least, most = (choose(alike, key=lambda node: node.utilisation) for choose in (min, max))
        if most.utilisation > least.utilisation:
            rows.append((f"  least: {least.name}", least.utilisation, _node_cells(least), "green dim"))
            rows.append((f"  most: {most.name}", most.utilisation, _node_cells(most), "green dim"))
    return _bars(rows, console)


def _node_cells(node: NodeUse) -> tuple[str, str]:
    return f"{node.utilisation:.0%}", f"{format_count(node.tasks)} {'task' if node.tasks == 1 else 'tasks'}"


def _devices_table(devices: list[DeviceUse], console: Console) -> Table | None:
    """One row per layer; devices of the same name on several nodes are taken together."""
    layers: dict[str, list[DeviceUse]] = {}
    for device in devices:
        if device.busy or device.written or device.moved:
            layers.setdefault(device.layer, []).append(device)
    if not layers:
        return None
    rows = []
    for name, alike in layers.items():
        count = len(alike)
        held = sum(device.held for device in alike) / count
        busy = sum(device.busy for device in alike) / count
        rate = sum(device.rate for device in alike) / count
        written = sum(device.written + device.moved for device in alike)
        cells = (
            f"{held:.0%}",
            f"{busy:.0%}",
            format_size(written),
            f"{format_rate(rate)} of {format_rate(alike[0].limit)}" if rate else "",
        )
        rows.append((name if count == 1 else f"{name} ({count} devices)", held, cells, "magenta"))
    return _bars(rows, console, ("held", "in use", "written", "rate"))


def _path_table(analysis: Analysis, console: Console) -> Table | None:
    path = analysis.critical_path
    rows = [(f"{name} runs", seconds, "cyan") for name, seconds in path.functions.items()]
    rows += [(f"waiting for {reason}", seconds, "yellow") for reason, seconds in path.reasons.items()]
    for kind, label in (("fetching data", "fetching data"), ("program", "the program itself")):
        if path.seconds.get(kind):
            rows.append((label, path.seconds[kind], "blue"))
    return _shares(rows, analysis.makespan, console)


def _waiting_table(analysis: Analysis, console: Console) -> Table | None:
    rows = [(reason, seconds, "yellow") for reason, seconds in analysis.waiting.items()]
    return _shares(rows, sum(analysis.waiting.values()), console)


def _shares(rows: Iterable[tuple[str, float, str]], whole: float, console: Console) -> Table | None:
    """The largest parts of a whole, and what remains."""
    order = sorted((row for row in rows if row[1] > 0), key=lambda row: -row[1])
    if not order or whole <= 0:
        return None
    shown = order[:_MOST_ROWS]
    if rest := sum(seconds for _, seconds, _ in order[_MOST_ROWS:]):
        shown.append((_others(len(order) - _MOST_ROWS), rest, "dim"))
    return _bars(
        [
            (label, seconds / whole, (f"{seconds / whole:.0%}", format_duration(seconds)), style)
            for label, seconds, style in shown
        ],
        console,
    )


def _plots(analysis: Analysis, console: Console) -> list[RenderableType]:
    over_time = analysis.over_time
    parts: list[RenderableType] = []
    width = min(console.width, 120) - 2
    for heading, values, top, style in (
        ("computing units in use over time", over_time.units, float(analysis.cpus), "green"),
        ("I/O tasks running over time", over_time.transferring, 0.0, "magenta"),
        ("ready tasks waiting over time", over_time.waiting, 0.0, "yellow"),
    ):
        if not any(values):
            continue
        drawn = area_plot(
            values,
            span=analysis.makespan,
            width=width,
            top=top,
            style=style,
            height=7 if not parts else 4,
            ascii_only=console.options.ascii_only,
        )
        parts += [Text(), Text(heading, style="bold"), drawn]
    return parts
