"""The shape of the published geospatial program: 75,259 tasks, from those that want a whole node to those of one CPU.

Published are the number of tasks, the range of constraints, and that the last part has tasks shorter than the latency
of the old scheduler. How many tasks of which kind there are, and how many nodes, is not: those numbers are chosen here.
"""

from __future__ import annotations

__all__ = ["LONG", "NODES", "SHORT", "TASKS", "WIDTHS", "widths"]

TASKS = 75_259
#: chosen: the same study ran other programs with the old scheduler on fifteen or sixteen nodes
NODES = 16
#: computing units of the kinds in the first part, in the order of the program; chosen
WIDTHS = (48, 24, 12, 4, 1)
#: tasks of the last part, all of one computing unit: chosen as three quarters
SHORT = TASKS * 3 // 4
#: tasks of the first part
LONG = TASKS - SHORT


def widths() -> list[int]:
    """Computing units of each task, in the order in which the program calls them."""
    return [WIDTHS[index * len(WIDTHS) // LONG] for index in range(LONG)] + [1] * SHORT
