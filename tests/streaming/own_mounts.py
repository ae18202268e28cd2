"""Whether programs can have a view of their own of a directory on this machine, and how to have it refused."""

from __future__ import annotations

import subprocess
import tempfile
from functools import cache

import pytest
from tests.own_place import memory_dir

from penstock.streaming.private_view import reason_against

__all__ = ["need_own_mounts", "refusing_own_mounts"]

_REFUSING = ["unshare", "-Ur", "sh", "-c", 'echo 0 > /proc/sys/user/max_mnt_namespaces && exec "$@"', "sh"]


@cache
def _reason() -> str:
    with tempfile.TemporaryDirectory() as folder:
        return reason_against(folder, str(memory_dir()))


def need_own_mounts() -> None:
    """Skip a test that cannot be run here."""
    if _reason():
        pytest.skip(f"programs cannot have a view of their own here: {_reason()}")


@cache
def refusing_own_mounts() -> tuple[str, ...]:
    """What to put in front of a command so that the kernel allows it no mounts; nothing where it allows none anyway."""
    if _reason():
        return ()
    if subprocess.run([*_REFUSING, "true"], check=False, capture_output=True).returncode:
        pytest.skip("the kernel cannot be kept from allowing mounts here: no user namespaces")
    return tuple(_REFUSING)
