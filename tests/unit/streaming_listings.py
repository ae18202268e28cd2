"""Coordination files after the descriptions and listings of the language's specification, as Python values.

Tests read them as JSON text, through ``text``.
"""

from __future__ import annotations

import copy
import json
from typing import Any


def text(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=1)


def changed(document: dict[str, Any], *way: str | int, to: object) -> dict[str, Any]:
    """A copy with one value replaced, or added; ``...`` removes it."""
    copied: Any = copy.deepcopy(document)
    at = copied
    for key in way[:-1]:
        at = at[key]
    if to is ...:
        del at[way[-1]]
    else:
        at[way[-1]] = to
    result: dict[str, Any] = copied
    return result


#: S writes files, Q reads them
SYNTHETIC: dict[str, Any] = {
    "name": "one-to-one",
    "IO_Graph": [
        {
            "name": "S",
            "output_stream": ["file*.dat"],
            "streaming": [{"name": ["file*.dat"], "committed": "on_close", "mode": "no_update"}],
        },
        {"name": "Q", "input_stream": ["file*.dat"]},
    ],
}

#: files that are closed ten times
TEN_CLOSES: dict[str, Any] = {
    "name": "ten",
    "IO_Graph": [
        {
            "name": "writer",
            "output_stream": ["file1.dat", "file2.dat"],
            "streaming": [{"name": ["file1.dat"], "committed": "on_close:10"}],
        },
        {"name": "reader", "input_stream": ["file1.dat", "file2.dat"]},
    ],
}

#: one file is final when another is
DEPENDENT: dict[str, Any] = {
    "name": "dependent",
    "IO_Graph": [
        {
            "name": "writer",
            "output_stream": ["file1.dat", "file2.dat"],
            "streaming": [
                {"name": ["file1.dat"], "committed": "on_close", "mode": "update"},
                {"name": ["file2.dat"], "committed": "on_file", "files_deps": ["file1.dat"], "mode": "update"},
            ],
        },
        {"name": "reader", "input_stream": ["file1.dat", "file2.dat"]},
    ],
}

#: S → {W, X, Z} → Y on three nodes
DEPLOYMENT: dict[str, Any] = {
    "name": "deployment",
    "IO_Graph": [
        {"name": "S", "output_stream": ["file*.dat"]},
        {"name": "W", "input_stream": ["file1.dat"], "output_stream": ["file4.dat"]},
        {"name": "X", "input_stream": ["file2.dat"], "output_stream": ["file5.dat"]},
        {"name": "Z", "input_stream": ["file3.dat"], "output_stream": ["file6.dat"]},
        {"name": "Y", "input_stream": ["file4.dat", "file5.dat", "file6.dat"], "output_stream": ["file-out.dat"]},
    ],
    "permanent": ["file-out.dat"],
    "home_node_policy": {
        "create": ["file1.dat"],
        "manual": [
            {"name": ["file2.dat", "file4.dat"], "app_node": "X"},
            {"name": ["file5.dat"], "app_node": "W:1"},
            {"name": ["file3.dat", "file6.dat"], "app_node": "Z"},
            {"name": ["file-out.dat"], "app_node": "Y"},
        ],
    },
}

#: one chromosome; the merged directory has one name everywhere, unlike in the source
GENOMES: dict[str, Any] = {
    "name": "1000genomes",
    "IO_Graph": [
        {
            "name": "download",
            "output_stream": ["data*"],
            "streaming": [{"name": ["data*"], "committed": "on_close", "mode": "no_update"}],
        },
        {
            "name": "individuals",
            "input_stream": ["data*"],
            "output_stream": ["chr1-*"],
            "streaming": [
                {"dirname": ["chr1-*"], "committed": "n_files:2504", "mode": "no_update"},
                {"name": ["chr1-*/*"], "committed": "on_close", "mode": "no_update"},
            ],
        },
        {
            "name": "individuals_merge",
            "input_stream": ["chr1-*"],
            "output_stream": ["chr1n"],
            "streaming": [
                {"dirname": ["chr1n"], "committed": "n_files:2504", "mode": "no_update"},
                {"name": ["chr1n/*"], "committed": "on_close", "mode": "no_update"},
            ],
        },
        {
            "name": "sifting",
            "input_stream": ["data*"],
            "output_stream": ["sifted.SIFT.chr1.txt"],
            "streaming": [{"name": ["sifted.SIFT.chr1.txt"], "committed": "on_close", "mode": "no_update"}],
        },
        {
            "name": "mutations_overlap",
            "input_stream": ["chr1n", "sifted.SIFT.chr1.txt"],
            "output_stream": ["mutations.tar.gz"],
        },
        {"name": "frequency", "input_stream": ["chr1n", "sifted.SIFT.chr1.txt"], "output_stream": ["frequency.tar.gz"]},
    ],
    "permanent": ["mutations.tar.gz", "frequency.tar.gz"],
}

#: a simulation whose number of files is not known, and whose headers are rewritten
WEATHER: dict[str, Any] = {
    "name": "weather",
    "IO_Graph": [
        {
            "name": "wrf",
            "output_stream": ["wrfout_*"],
            "streaming": [
                {"dirname": ["."], "committed": "on_termination", "mode": "no_update"},
                {"name": ["./*"], "committed": "on_close"},
            ],
        },
        {"name": "plot", "input_stream": ["wrfout_*"], "output_stream": ["images"]},
    ],
    "permanent": ["images", "wrfout_*"],
    "exclude": ["namelist.input"],
}

#: K = 20 pieces, M = 9 results, named through aliases
MAPREDUCE: dict[str, Any] = {
    "name": "mapreduce",
    "aliases": [
        {"group_name": "pieces", "files": [f"piece{number}" for number in range(20)]},
        {"group_name": "results", "files": [f"result{number}" for number in range(9)]},
        {"group_name": "everything", "files": ["pieces", "results", "total"]},
    ],
    "IO_Graph": [
        {
            "name": "split",
            "output_stream": ["pieces"],
            "streaming": [{"name": ["pieces"], "committed": "on_close", "mode": "no_update"}],
        },
        {
            "name": "mapreduce",
            "input_stream": ["pieces"],
            "output_stream": ["results"],
            "streaming": [{"name": ["results"], "committed": "on_close", "mode": "no_update"}],
        },
        {"name": "merge", "input_stream": ["results"], "output_stream": ["total"]},
    ],
    "permanent": ["total"],
    "home_node_policy": {"hashing": ["everything"]},
}

LISTINGS = {one["name"]: one for one in (SYNTHETIC, TEN_CLOSES, DEPENDENT, DEPLOYMENT, GENOMES, WEATHER, MAPREDUCE)}

#: everything the TOML form can say
FULL_TOML = """\
name = "weather"
directory = "work"
limit = "256MB"
permanent = ["*.png"]
exclude = ["logs"]
temporary = ["scratch"]

[aliases]
hourly = ["wrfout_*", "wrfrst_*"]

[[step]]
name = "simulate"
command = "./wrf.exe"
output = ["hourly"]
cwd = "run"
env = { OMP_NUM_THREADS = "4" }

[[step.stream]]
files = ["hourly"]
commit = "on_close"
fire = "update"

[[step]]
name = "plot"
command = ["python", "plot.py", "out/"]
input = ["hourly"]
output = ["out"]
sizes = "so_far"
instances = 2

[[step.stream]]
directories = ["out"]
commit = "n_files:24"
fire = "no_update"

[[step.stream]]
files = ["out/*"]
commit = "on_file"
after = ["wrfout_last"]

[homes]
create = ["wrfrst_*"]
hashing = ["out"]

[[homes.manual]]
files = ["wrfout_*"]
step = "plot:1"
"""
