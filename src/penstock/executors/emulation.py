"""Emulated storage devices for tests and benchmarks, as layers describe them; `paced_files` slows `open` under them.

The real file does the work, so let a mount be faster than what it emulates.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from urllib.parse import quote

from penstock.executors.emulated_device import EmulatedDevice, EmulatedStream
from penstock.model.resources import StorageLayer

__all__ = ["EmulatedDevice", "EmulatedStream", "from_layers"]


def from_layers(layers: Sequence[StorageLayer], state_dir: str) -> list[EmulatedDevice]:
    """The devices of those ``layers`` that are emulated; all processes must name the same ``state_dir``."""
    return [
        EmulatedDevice(layer.mount, layer.curve, os.path.join(state_dir, f"device-{quote(layer.name, safe='')}"))
        for layer in layers
        if layer.curve
    ]
