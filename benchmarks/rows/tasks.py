"""Empty tasks with a future each, submitted one by one: one measurement, three budgets."""

from benchmarks.row import PEERS, Budget, Measurement, Row

TASKS = Measurement("tasks_per_second", better="more", peers=PEERS)

ROWS = [
    Row("tasks, a future each", "tasks/s", TASKS, Budget(20_000)),
    Row("tasks against graph systems", "tasks/s", TASKS, Budget(10, against=("ray", "dask", "parsl"))),
    Row("tasks against apply_async", "tasks/s", TASKS, Budget(2, against=("mpire",))),
]
