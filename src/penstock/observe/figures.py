"""Drawings of an analysis and of a sweep as files, with matplotlib, which is an extra and imported on demand."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.errors import ConfigError
from penstock.observe.analysis import Analysis
from penstock.units import format_duration

__all__ = ["check_figure", "draw_analysis", "draw_comparison"]

_FORMATS = (".png", ".svg", ".pdf")
_MOST_BARS = 12


def check_figure(path: str) -> None:
    """Refuse a file that could not be drawn, before there is anything to draw."""
    if os.path.splitext(path)[1].lower() not in _FORMATS:
        raise ConfigError(f"--plot {path}: the name must end in {', '.join(_FORMATS)}")
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise ConfigError(f"--plot {path}: there is no directory {folder}")
    _pyplot()


def draw_analysis(analysis: Analysis, path: str, title: str) -> None:
    """Units in use, I/O and waiting tasks over time; critical path and waiting by reason."""
    plt = _pyplot()
    over_time = analysis.over_time
    times = [(index + 0.5) * over_time.step for index in range(len(over_time.units))]
    figure, axes = plt.subplots(2, 2, figsize=(12, 7), constrained_layout=True)
    figure.suptitle(f"{title}: {format_duration(analysis.makespan)}")

    units, queue = axes[0]
    units.fill_between(times, over_time.units, step="mid", color="tab:green", alpha=0.7, label="computing units")
    if analysis.cpus:
        units.axhline(analysis.cpus, color="grey", linewidth=0.8, linestyle="--")
    if any(over_time.transferring):
        units.step(times, over_time.transferring, where="mid", color="tab:purple", label="I/O tasks")
    units.set(xlabel="seconds", title="in use", ylim=(0, None))
    units.legend(loc="best", framealpha=0.8)
    queue.fill_between(times, over_time.waiting, step="mid", color="tab:orange", alpha=0.7)
    queue.set(xlabel="seconds", title="ready tasks waiting", ylim=(0, None))

    path_parts = {f"{name} runs": seconds for name, seconds in analysis.critical_path.functions.items()}
    path_parts |= {f"waiting for {why}": seconds for why, seconds in analysis.critical_path.reasons.items()}
    if program := analysis.critical_path.seconds.get("program"):
        path_parts["the program itself"] = program
    _bars(axes[1][0], path_parts, "critical path, seconds", "tab:blue")
    _bars(axes[1][1], analysis.waiting, "what tasks waited for, seconds of all tasks", "tab:orange")
    _save(plt, figure, path)


def draw_comparison(rows: Sequence[tuple[Mapping[str, Any], float]], path: str, title: str) -> None:
    """The makespan of each combination of settings, as bars."""
    plt = _pyplot()
    figure, axes = plt.subplots(figsize=(9, 1.5 + 0.35 * len(rows)), constrained_layout=True)
    labels = [", ".join(f"{name}={value}" for name, value in settings.items()) for settings, _ in rows]
    best = min((seconds for _, seconds in rows), default=0.0)
    colours = ["tab:green" if seconds <= best else "tab:blue" for _, seconds in rows]
    drawn = axes.barh(range(len(rows)), [seconds for _, seconds in rows], color=colours)
    axes.bar_label(drawn, [format_duration(seconds) for _, seconds in rows], padding=3)
    axes.set_yticks(range(len(rows)), labels)
    axes.invert_yaxis()
    axes.set(xlabel="makespan in seconds", title=title)
    _save(plt, figure, path)


def _bars(axes: Any, parts: Mapping[str, float], title: str, colour: str) -> None:
    largest = sorted(parts.items(), key=lambda part: -part[1])[:_MOST_BARS]
    axes.barh([name for name, _ in largest], [seconds for _, seconds in largest], color=colour)
    axes.invert_yaxis()
    axes.set(title=title)


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise ConfigError(
            "--plot needs matplotlib, which is not installed: pip install 'penstock[plot]' (plots in the terminal "
            "need nothing)"
        ) from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def _save(plt: Any, figure: Any, path: str) -> None:
    try:
        figure.savefig(path, dpi=120)
    except OSError as error:
        raise ConfigError(f"--plot {path}: cannot write it: {error.strerror}") from None
    finally:
        plt.close(figure)
