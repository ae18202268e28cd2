"""The closing summary of a run, as lines of text, from the same tally as the live view."""

from __future__ import annotations

from penstock.observe.device_tally import ConstraintTally, DeviceTally
from penstock.observe.tally import FunctionTally, Tally
from penstock.units import format_count, format_duration, format_rate, format_size

__all__ = ["summary_lines"]

_HEADINGS = ("task", "done", "failed", "mean", "total", "rate")
_STORAGE_HEADINGS = ("storage", "written", "rate", "in use", "flushed")
_LEARNED_HEADINGS = ("learned", "storage_bw", "at a time", "epochs", "tasks in them")


def summary_lines(tally: Tally, log_path: str | None = None, *, colour: bool = False, width: int = 120) -> list[str]:
    """What happened, by function and by storage device, what failed and why (cut to ``width``), where to read more."""
    lines = [_headline(tally)]
    if tally.functions:
        lines += ["", *_table([_HEADINGS, *map(_row, tally.functions.values())])]
    used = [device for device in tally.storage.devices.values() if device.first is not None or device.flushes]
    if used:
        lines += ["", *_table([_STORAGE_HEADINGS, *(_device_row(device, tally.elapsed) for device in used)])]
    if tally.storage.spilled:
        moved = f"{format_size(tally.storage.spilled)} to disk, {format_size(tally.storage.restored)} back"
        lines += ["", f"  large objects moved for want of memory: {moved}"]
    if tally.storage.constraints:
        lines += ["", *_table([_LEARNED_HEADINGS, *map(_constraint_row, tally.storage.constraints.values())])]
    if failures := _failures(tally, width):
        lines += ["", *(_red(line) if colour else line for line in failures)]
    if log_path is not None:
        lines += ["", f"  event log: {log_path}"]
    return lines


def _headline(tally: Tally) -> str:
    functions = tally.functions.values()
    done = sum(function.done for function in functions)
    parts = [f"{format_count(done)} {'task' if done == 1 else 'tasks'} done"]
    for count, word in (
        (sum(function.failed for function in functions), "failed"),
        (sum(function.cancelled for function in functions), "cancelled"),
        (sum(function.pending for function in functions), "never ended"),
        (tally.retried, "tried again"),
        (tally.lost, "results lost" if tally.lost > 1 else "result lost"),
        (tally.run_again, "tasks run again" if tally.run_again > 1 else "task run again"),
        (tally.workers_died, "workers lost" if tally.workers_died > 1 else "worker lost"),
    ):
        if count:
            parts.append(f"{format_count(count)} {word}")
    text = f"penstock: {', '.join(parts)} in {format_duration(tally.elapsed)}"
    if tally.elapsed and done:
        cpus = f"{tally.cpus} CPU" + ("s" if tally.cpus > 1 else "")
        text += f" ({format_count(done / tally.elapsed)}/s; {cpus}, {_utilisation(tally):.0%} busy)"
    return text


def _utilisation(tally: Tally) -> float:
    return min(1.0, tally.busy / (tally.elapsed * tally.cpus))


def _row(function: FunctionTally) -> tuple[str, ...]:
    span = function.last - function.first
    return (
        function.name,
        format_count(function.done),
        format_count(function.failed),
        format_duration(function.seconds / function.done) if function.done else "–",
        format_duration(function.seconds) if function.done else "–",
        f"{format_count(function.done / span)}/s" if function.done and span > 0 else "–",
    )


def _device_row(device: DeviceTally, elapsed: float) -> tuple[str, ...]:
    seconds = device.seconds_in_use(elapsed)
    shared = device.seconds_shared(elapsed)
    beside = f", shared for {format_duration(shared)}" if shared else ""
    files = f"{format_count(device.flushes)} {'file' if device.flushes == 1 else 'files'}"
    return (
        device.name,
        format_size(device.written),
        f"{format_rate(device.written / seconds)} of {format_rate(device.limit)}{beside}" if seconds else "–",
        f"{seconds / elapsed:.0%}" if elapsed else "–",
        f"{format_size(device.flushed)} in {files}" if device.flushes else "–",
    )


def _constraint_row(constraint: ConstraintTally) -> tuple[str, ...]:
    chosen = constraint.concurrency
    return (
        f"{constraint.function} on {constraint.layer}",
        "not yet" if chosen is None else format_rate(constraint.value),
        "–" if chosen is None else format_count(chosen),
        format_count(constraint.epochs) if constraint.epochs else "earlier runs" if constraint.remembered else "–",
        format_count(constraint.tasks) if constraint.tasks else "–",
    )


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  "
        + row[0].ljust(widths[0])
        + "".join("  " + cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        for row in rows
    ]


def _failures(tally: Tally, width: int) -> list[str]:
    lines = []
    for failure in tally.failures:
        line = f"  failed: {failure.name} (task {failure.task}): {' '.join(failure.message.split())}"
        lines.append(line if len(line) <= width else line[: width - 1] + "…")
    failed = sum(function.failed for function in tally.functions.values())
    if lines and failed > len(lines):
        lines.append(f"  … and {format_count(failed - len(lines))} more failed")
    return lines


def _red(text: str) -> str:
    return f"\x1b[31m{text}\x1b[0m"
