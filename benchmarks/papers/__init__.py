"""Published experiments, replayed at their published scale by the simulator: `python -m benchmarks.papers [names]`.

Each module named below has a `TITLE` and a function `replay() -> Replay`. It builds the published program, runs it in
the published ways, and holds what comes out against what was published. Nothing is fitted per experiment, except where
its figures say so.
"""

#: modules of this package, in the order in which they are shown
EXPERIMENTS: tuple[str, ...] = (
    "hmmer",
    "variants",
    "kmeans",
    "hyper_parameters",
    "layers_hmmer",
    "layers_alignment",
    "layers_synthetic",
    "geospatial",
    "gwas",
    "scaling",
    "mpi_processes",
    "eager_warc",
    "eager_alignment",
    "eager_decomposition",
    "eager_messages",
)
#: those in which the measured cost of a decision decides the figures: nothing else of ours runs beside them
ALONE: tuple[str, ...] = ("geospatial", "scaling")
#: the longest of the others, begun first so that it is not the last to end
LONGEST = "gwas"
