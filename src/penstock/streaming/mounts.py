"""The kernel's calls for mounts that only this process and its children see, and nothing else.

A process may have mounts of its own if it may administer the machine; anybody else gets them together with a user
namespace, in which everybody is who they were: own user and group are mapped to themselves. What such a namespace ends
with is its last process, so nothing stays mounted after any kill.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence

__all__ = ["bind", "have_own_mounts", "is_user_namespace_needed", "join_mounts", "mount_overlay", "unmount"]

_NEW_MOUNTS, _NEW_USER = 0x00020000, 0x10000000
_BIND, _RECURSIVE, _SLAVE = 0x1000, 0x4000, 0x80000
_DETACH = 2
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def is_user_namespace_needed() -> bool:
    """Whether this process lacks the right to mount (CAP_SYS_ADMIN)."""
    with open("/proc/self/status", encoding="ascii") as file:
        capabilities = next(int(line.split()[1], 16) for line in file if line.startswith("CapEff:"))
    return not capabilities >> 21 & 1


def have_own_mounts() -> None:
    """From now on, what this process mounts is seen by it and its children only. It must have one thread."""
    if is_user_namespace_needed():
        user, group = os.geteuid(), os.getegid()
        _check(_libc.unshare(_NEW_USER | _NEW_MOUNTS), "unshare(CLONE_NEWUSER)")
        for file, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{file}", "w", encoding="ascii") as writing:
                writing.write(text)
    else:
        _check(_libc.unshare(_NEW_MOUNTS), "unshare(CLONE_NEWNS)")
    # What others mount later (automounters do) is still seen here; what is mounted here, nowhere else.
    _mount("none", "/", None, _RECURSIVE | _SLAVE, None)


def _mount(source: str, target: str, kind: str | None, flags: int, options: str | None) -> None:
    words = (None if word is None else os.fsencode(word) for word in (source, target, kind))
    result = _libc.mount(*words, ctypes.c_ulong(flags), None if options is None else os.fsencode(options))
    _check(result, f"mount {kind or source}")


def _is_initial_user_namespace() -> bool:
    with open("/proc/self/uid_map", encoding="ascii") as file:
        return file.read().split() == ["0", "0", "4294967295"]


def mount_overlay(lower: Sequence[str], upper: str, work: str, target: str) -> None:
    """Show ``upper`` over ``lower`` at ``target``; what programs change there goes to ``upper``."""
    descriptors: dict[str, int] = {}
    try:
        for path in (*lower, upper, work):  # by descriptor: a path with colons or commas would need quoting
            descriptors[path] = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        spelled = {path: f"/proc/self/fd/{descriptor}" for path, descriptor in descriptors.items()}
        options = [
            f"lowerdir={':'.join(spelled[path] for path in lower)}",
            f"upperdir={spelled[upper]}",
            f"workdir={spelled[work]}",
            # One device number for all files, where their inode numbers leave room: `du -x` and its like go by it.
            "xino=on",
            # Whatever is in the upper directory is there whole, under its own name: it is read from there.
            "metacopy=off",
            "redirect_dir=nofollow",
            "index=off",
        ]
        if not _is_initial_user_namespace():
            options.append("userxattr")  # its marks in attributes that everybody may set
        _mount("penstock", target, "overlay", 0, ",".join(options))
    finally:
        for descriptor in descriptors.values():
            os.close(descriptor)


def bind(source: str, target: str) -> None:
    """Show a directory, with what is mounted in it, at another place."""
    _mount(source, target, None, _BIND | _RECURSIVE, None)


def unmount(target: str) -> None:
    """Take away what is mounted at a place; whoever has files of it open keeps them."""
    _check(_libc.umount2(os.fsencode(target), _DETACH), f"umount {target}")


def join_mounts(pid: int) -> None:
    """See what another process of this user has mounted; the working directory stays that of the same name."""
    here = os.getcwd()
    for name, kind in (("user", _NEW_USER), ("mnt", _NEW_MOUNTS)):
        theirs = f"/proc/{pid}/ns/{name}"
        if os.stat(theirs).st_ino != os.stat(f"/proc/self/ns/{name}").st_ino:
            descriptor = os.open(theirs, os.O_RDONLY | os.O_CLOEXEC)
            try:
                _check(_libc.setns(descriptor, kind), f"setns {theirs}")
            finally:
                os.close(descriptor)
    os.chdir(here)
