"""`python -m benchmarks.validation.once PROGRAM RUN_DIR [--cpus N] [--bandwidth MB/s]`: one run that leaves its log."""

import argparse

from benchmarks.storage.device import layer, mounted
from benchmarks.validation.programs import PROGRAMS

IO_EXECUTORS = 16


def run(program: str, run_dir: str, cpus: int, bandwidth: float) -> None:
    from penstock import Runtime

    with mounted() as device:
        storage = [layer(device)]
        kept = {"run_dir": run_dir, "log": True, "keep_run_dir": "always", "tuning": "off"}
        with Runtime(cpus=cpus, io_executors=IO_EXECUTORS, storage=storage, **kept):
            PROGRAMS[program](device, bandwidth)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("run_dir")
    parser.add_argument("--cpus", type=int, default=2)
    parser.add_argument("--bandwidth", type=float, default=0.0)
    options = parser.parse_args()
    run(options.program, options.run_dir, options.cpus, options.bandwidth)


if __name__ == "__main__":
    main()
