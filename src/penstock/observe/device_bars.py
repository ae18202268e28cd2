"""Storage in the live view: a bar for each device that was used, and what is known of learned constraints.

Drawn from the same snapshot as the table of functions, below it. Without colours the bars say the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.observe.device_tally import ConstraintTally, DeviceLine
from penstock.observe.tally import Snapshot
from penstock.units import format_count, format_rate, format_size, parse_size

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

__all__ = ["DeviceBars", "constraint_text", "storage_part"]

_LONGEST_NAME = 16
_SHORTEST_BAR, _LONGEST_BAR = 5, 32
_GAP = 2
#: an empty line and the headings
_FRAME = 2
#: the columns right of the bar and their least widths, which keep them from dancing as numbers grow
_COLUMNS = {"used": 15, "running": 7, "waiting": 7, "rate": 9, "room": 14}


def storage_part(snapshot: Snapshot) -> str:
    """The devices in use, as part of a line of text; empty if there are none."""
    busy = [device for device in snapshot.devices if device.running]
    parts = [f"{device.name} {_in_unit_of(device.limit, device.used)}/{format_rate(device.limit)}" for device in busy]
    if parts and snapshot.waiting:
        parts.append(f"{format_count(snapshot.waiting)} waiting")
    return ", ".join(parts)


def constraint_text(constraint: ConstraintTally) -> str:
    """What a learned constraint is, or how far learning is."""
    if constraint.concurrency is not None:
        return f"{format_rate(constraint.value)}, {format_count(constraint.concurrency)} at a time"
    return f"learning {format_rate(constraint.value)}" if constraint.value else "learning"


class DeviceBars:
    """The part of the view below the table of functions, in at most ``most_lines`` lines."""

    def __init__(self, snapshot: Snapshot, console: Console, most_lines: int) -> None:
        room = max(0, most_lines - _FRAME)
        self._console = console
        self._waiting = snapshot.waiting
        self._devices = _busiest(snapshot.devices, room)
        # They belong to devices; where there is no room for those, they say nothing.
        self._constraints = snapshot.constraints[: room - len(self._devices)] if self._devices else []

    @property
    def height(self) -> int:
        """How many lines it takes."""
        return _FRAME + len(self._devices) + len(self._constraints) if self._devices else 0

    def parts(self) -> list[RenderableType]:
        """What to draw, from top to bottom."""
        from rich.text import Text

        if not self._devices:
            return []
        return [Text(), self._table(), *map(_constraint_line, self._constraints)]

    def _table(self) -> Table:
        from rich.table import Table
        from rich.text import Text

        # There is one queue for all devices. It is told once, beside the fastest that is in use.
        queue = next((device for device in self._devices if device.running), self._devices[0])
        rows = [_cells(device, self._waiting if device is queue else None) for device in self._devices]
        columns = self._fitting(rows)
        widths = {column: _width(column, rows) for column in columns}
        name = min(_LONGEST_NAME, max(len("storage"), *(len(device.name) for device in self._devices)))
        spare = self._console.width - name - _GAP - sum(_GAP + width for width in widths.values())
        bar = max(_SHORTEST_BAR, min(_LONGEST_BAR, spare))
        table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="dim")
        table.add_column("storage", overflow="ellipsis", no_wrap=True, width=name)
        table.add_column("", no_wrap=True, width=bar)
        for column, width in widths.items():
            table.add_column(column, justify="right", no_wrap=True, width=width)
        for device, cells in zip(self._devices, rows, strict=True):
            row: list[RenderableType] = [
                Text(device.name),
                self._bar(device, bar),
                *(cells[column] for column in columns),
            ]
            table.add_row(*row, style="" if device.running else "dim")
        return table

    def _fitting(self, rows: list[dict[str, str]]) -> list[str]:
        """The columns that a narrow terminal has room for, the most telling first."""
        columns = [column for column in _COLUMNS if any(row[column] for row in rows)]
        left = self._console.width - len("storage") - _GAP - _SHORTEST_BAR
        while columns and sum(_GAP + _width(column, rows) for column in columns) > left:
            columns.pop()
        return columns

    def _bar(self, device: DeviceLine, length: int) -> Text:
        from rich.text import Text

        full, empty = ("#", "-") if self._console.options.ascii_only else ("█", "░")
        share = device.used / device.limit if device.limit else 0.0
        cells = min(length, round(share * length))
        if device.used:
            cells = max(cells, 1)
        return Text.assemble((full * cells, "cyan"), (empty * (length - cells), "dim"))


def _busiest(devices: list[DeviceLine], room: int) -> list[DeviceLine]:
    """As many devices as there is room for: those in use first, in their usual order."""
    order = sorted(range(len(devices)), key=lambda index: (not devices[index].running, index))
    return [devices[index] for index in sorted(order[:room])]


def _cells(device: DeviceLine, waiting: int | None) -> dict[str, str]:
    capacity = device.capacity
    return {
        "used": f"{_in_unit_of(device.limit, device.used)} of {format_rate(device.limit)}",
        "running": f"[cyan]{device.running}[/]" if device.running else "0",
        "waiting": "" if waiting is None else format_count(waiting),
        "rate": format_rate(device.rate) if device.rate else "–",
        "room": "" if capacity is None else f"{_in_unit_of(capacity, device.stored)} of {format_size(capacity)}",
    }


def _width(column: str, rows: list[dict[str, str]]) -> int:
    from rich.text import Text

    return max(_COLUMNS[column], *(Text.from_markup(row[column]).cell_len for row in rows))


def _constraint_line(constraint: ConstraintTally) -> Text:
    from rich.text import Text

    text = f"  {constraint.function} on {constraint.layer}: {constraint_text(constraint)}"
    return Text(text, style="" if constraint.learning else "dim", no_wrap=True, overflow="ellipsis")


def _in_unit_of(whole: float, part: float) -> str:
    """Print ``part`` without a unit, to stand before ``whole``, which has one."""
    unit = format_size(whole).split()[1]
    return format_count(part / parse_size(f"1{unit}"))
