"""What ``penstock run`` does: flags become settings of the runtime that the program starts, and its run is in view.

flags ──▶ settings checked ──▶ program loaded ──▶ run directory ──▶ program runs ──▶ runtime stopped ──▶ summary
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

from penstock.cli.program import ProgramNotFound, load_program, print_exception, run_program
from penstock.errors import ConfigError
from penstock.runtime.config import load_config

if TYPE_CHECKING:
    from types import CodeType

    from penstock.cli.quick import RunRequest
    from penstock.cli.watch import Watch

__all__ = ["launch"]

_USAGE = 2
_INTERRUPTED = 130
_TERMINATED = 143
#: seconds; ``timeout`` and batch systems send a signal to the process and then to its group
_ONE_REQUEST = 1.0


class _Terminated(BaseException):
    """Somebody, a batch system as a rule, wants the program to end and gives it a moment to do so."""


def _heed_termination() -> None:
    """End in order at SIGTERM: files that tasks have finished are brought home.

    If they are already on their way, they arrive first; asked again, the program ends at once.
    """
    from penstock.runtime.late_signals import put_off

    asked: float | None = None

    def end() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise _Terminated

    def heed(number: int, frame: object) -> None:
        nonlocal asked
        now = time.monotonic()
        if asked is not None and now - asked < _ONE_REQUEST:
            return
        # Noted before anything is called: there the next signal may come, and find that it is the second.
        is_first, asked = asked is None, now
        if not (is_first and put_off(end)):
            end()

    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, heed)


def launch(request: RunRequest) -> int:
    """Run a program to its end, with its tasks, and return the exit status."""
    flags = dict(request.flags)
    try:
        loaded = load_config(flags)
        if loaded.origins["scheduler"] != "default":
            from penstock.runtime.policies import ready_set

            ready_set(loaded.config.scheduler)
        code = load_program(request.app, request.args, as_module=request.as_module)
    except (ConfigError, ProgramNotFound) as error:
        print(f"penstock: {error}", file=sys.stderr)
        return _USAGE
    except SyntaxError as error:
        print_exception(error)
        return 1

    made = None
    if loaded.origins["run_dir"] == "default" and loaded.config.log is not False:
        flags["run_dir"] = made = _new_run_dir(request.app)

    from penstock.cli.watch import Watch
    from penstock.runtime import session

    watch = Watch(shown=loaded.config.progress is not False)
    session.configure(**flags)
    session.on_start.append(watch.attach)
    status = _run_to_end(code, watch)
    if made is not None:
        _remove_if_empty(made)
    return status


def _run_to_end(code: CodeType, watch: Watch) -> int:
    from penstock.runtime import session

    error: BaseException | None = None
    _heed_termination()
    try:
        status = run_program(code)
        session.finish()  # waits for the tasks that nobody waited for
    except BaseException as caught:
        error = caught
        status = _INTERRUPTED if isinstance(caught, KeyboardInterrupt) else 1
        if isinstance(caught, _Terminated):
            status = _TERMINATED
        elif caught is session.unusable:
            status = _USAGE
        try:
            session.stop(abort=True)
        except _Terminated:  # put off until files were home; what ended the program is told all the same
            status = _TERMINATED
    watch.close()
    sys.stdout.flush()
    if isinstance(error, KeyboardInterrupt):
        print("penstock: interrupted", file=sys.stderr)
    elif isinstance(error, _Terminated):
        print("penstock: terminated", file=sys.stderr)
    elif error is not None and error is session.unusable:
        print(f"penstock: {error}", file=sys.stderr)
    elif error is not None:
        print_exception(error)
    watch.print_summaries(sys.stderr)
    return status


def _new_run_dir(app: str) -> str | None:
    """A fresh directory for this run, or None where none can be made."""
    parent = os.path.join(os.getcwd(), ".penstock")
    name = f"{os.path.basename(app).removesuffix('.py')}-{time.strftime('%Y%m%d-%H%M%S')}"
    try:
        if not os.path.isdir(parent):
            os.makedirs(parent, exist_ok=True)
            with open(os.path.join(parent, ".gitignore"), "w", encoding="utf-8") as file:
                file.write("*\n")
        for number in itertools.count(1):
            path = os.path.join(parent, name if number == 1 else f"{name}-{number}")
            try:
                os.mkdir(path)
                return path
            except FileExistsError:
                continue
    except OSError as error:
        print(f"penstock: no event log is kept: cannot write in {parent}: {error.strerror}", file=sys.stderr)
    return None


def _remove_if_empty(path: str) -> None:
    try:
        os.rmdir(path)  # a program that called no task leaves nothing to look at
    except OSError:
        pass
