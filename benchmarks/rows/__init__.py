"""The benchmarks, one module each. A module joins the table by having `ROWS` and a place in `ORDER`.

A figure that only we have is measured by the module itself, run as a script: `python -m benchmarks.rows.NAME`.
"""

from importlib import import_module

from benchmarks.row import Row

ORDER = (
    "tasks",
    "bulk_map",
    "latency",
    "imports",
    "first_result",
    "array_shared",
    "array_made",
    "array_parts",
    "result_sizes",
    "store_reuse",
    "finished_task",
    "pending_task",
    "million_tasks",
    "tracked_objects",
    "temporaries",
    "collections",
    "object_programs",
    "engine_scaling",
    "io_scaling",
    "generations",
    "simulator",
    "eager_overhead",
    "eager_stream",
    "eager_decomposition",
    "eager_web",
    "constrained_task",
    "hmmer",
    "variants",
    "kmeans_checkpoints",
    "learned_task",
    "learned_regret",
    "learned_processes",
    "overlap_real_disk",
    "io_schedulers",
    "validation",
    "persistent_local",
    "persistent_redis",
    "persistent_cluster",
    "mpi_start",
    "mpi_programs",
    "streaming_calls",
    "streaming_costs",
    "streaming_earlier_run",
    "streaming_memory",
    "streaming_nodes",
    "streaming_shapes",
    "streaming_overlap",
    "streaming_workflows",
)


def all_rows() -> list[Row]:
    rows: list[Row] = []
    for name in ORDER:
        rows.extend(import_module(f"benchmarks.rows.{name}").ROWS)
    return rows
