"""What ``penstock stream run`` and ``serve`` do: file and options become a hosted workflow, and its end an exit status.

file ──▶ workflow ──▶ directory and settings ──▶ hosting (server, table, placement) ──▶ steps, or signals ──▶ message
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from penstock.errors import ConfigError, PenstockError
from penstock.streaming.guard import Guard
from penstock.streaming.language.limits import parse_limit
from penstock.streaming.language.model import Workflow
from penstock.streaming.language.workflow import read_workflow
from penstock.units import parse_duration, parse_size

if TYPE_CHECKING:
    from penstock.runtime.config import Config
    from penstock.streaming.hosting import Hosting, Settings
    from penstock.streaming.nodes.peers import NodeSettings

__all__ = ["NodesRequest", "Request", "launch_run", "launch_serve"]

_USAGE = 2

#: variables of other runtimes of the language that have no meaning here, and why
_WITHOUT_MEANING = {
    "CAPIO_FILE_INIT_SIZE": "files grow by themselves",
    "CAPIO_WRITER_CACHE_SIZE": "writes go to the page cache",
    "CAPIO_READER_CACHE_SIZE": "reads come from the page cache",
    "CAPIO_N_ELEMS_DATA_BUFS": "there are no data buffers",
    "CAPIO_WINDOW_DATA_BUFS_SIZE": "there are no data buffers",
    "CAPIO_LOG_DIR": "there is one event log, see --log",
    "CAPIO_LOG_PREFIX": "there is one event log, see --log",
    "CAPIO_MAX_LOG_LEVEL": "there is one event log, see --log",
}


class NodesRequest(NamedTuple):
    """What was said of several nodes."""

    nodes: str | None = None
    node: str | None = None
    listen: str | None = None
    token_file: str | None = None
    prefetch: str | None = None
    lost_after: str | None = None


class Request(NamedTuple):
    """What was asked for on the command line."""

    file: str
    directory: str | None
    memory: bool | None
    strict: bool
    limit: str | None
    stall: str
    log: bool
    among: NodesRequest = NodesRequest()


def launch_run(request: Request, *, batch: bool, output: str | None, progress: bool | None) -> int:
    """Run a workflow to its end and return the exit status."""

    def run(guard: Guard) -> int:
        workflow, root = _read(request)
        if batch:
            return asyncio.run(_run_batch(workflow, root, output, guard))
        _repeat_warnings(workflow)
        settings = _settings(workflow, root, request)
        return asyncio.run(_run(workflow, root, request, settings, output, progress, guard))

    return _guarded(run)


def launch_serve(request: Request) -> int:
    """Serve a workflow until a signal comes, and return the exit status."""

    def run(guard: Guard) -> int:
        workflow, root = _read(request)
        return asyncio.run(_serve(workflow, root, request, _settings(workflow, root, request), guard))

    return _guarded(run)


def _guarded(run: Callable[[Guard], int]) -> int:
    guard = Guard()
    try:
        return run(guard)
    except PenstockError as error:
        print(f"penstock: {error}", file=sys.stderr)
        return _USAGE
    except KeyboardInterrupt:  # before anything was started
        return 128 + signal.SIGINT
    finally:
        guard.close()


def _read(request: Request) -> tuple[Workflow, str]:
    """The workflow, and its directory."""
    given = request.directory or os.environ.get("CAPIO_DIR")
    workflow = read_workflow(request.file, os.path.abspath(given) if given else "")
    root = given or workflow.directory
    if not root:
        raise ConfigError(
            f"{request.file} does not say which directory to stream through: set CAPIO_DIR, or give --dir"
        )
    if request.limit is not None:
        try:
            workflow = msgspec.structs.replace(workflow, limit=parse_limit(request.limit))
        except ConfigError as error:
            raise ConfigError(f"--limit: {error}") from None
    for name, reason in _WITHOUT_MEANING.items():
        if name in os.environ:
            print(f"penstock: {name} has no effect: {reason}", file=sys.stderr)
    return workflow, os.path.abspath(root)


def _repeat_warnings(workflow: Workflow) -> None:
    """What ``stream check`` would warn of: not everybody asks it first."""
    from penstock.streaming.language.check_warnings import remarks

    for remark in remarks(workflow):
        if remark.warning:
            print(f"penstock: {workflow.name}: {remark.message}", file=sys.stderr)


def _settings(workflow: Workflow, root: str, request: Request) -> Settings:
    """How it is to be streamed. Gives this process mounts of its own, where they help: before it has other threads."""
    from penstock.streaming.hosting import Settings
    from penstock.streaming.mounts import have_own_mounts
    from penstock.streaming.placement import true_root
    from penstock.streaming.private_view import reason_against

    memory = workflow.form == "json" if request.memory is None else request.memory
    stall = parse_duration(request.stall)
    place, capacity = _memory(files=memory)
    nodes = _node_settings(request.among)
    own_mounts = memory and not reason_against(true_root(root), place)
    if own_mounts:
        have_own_mounts()
    return Settings(memory, request.strict, own_mounts, workflow.limit or 0, stall, place, capacity, nodes)


def _memory(*, files: bool) -> tuple[str, int | None]:
    """Where memory is, and how much of it may be taken: shared memory, but for files the first layer that is memory."""
    from penstock.runtime.config import load_config
    from penstock.runtime.directories import SHARED_MEMORY, memory_parent

    config = load_config({}).config
    layer = _memory_layer(config) if files else None
    return layer or (memory_parent(config) or SHARED_MEMORY, None)


def _memory_layer(config: Config) -> tuple[str, int | None] | None:
    from penstock.runtime.found_layers import find_layers
    from penstock.runtime.layers import described_layers

    found = find_layers(memory=config.memory_dir)
    memories = {os.stat(one.layer.mount).st_dev for one in found if one.kind == "memory"}
    for layer in described_layers(config) or ():
        if os.path.isdir(layer.mount) and os.stat(layer.mount).st_dev in memories:
            return layer.mount, layer.capacity
    return None


def _node_settings(among: NodesRequest) -> NodeSettings | None:
    from penstock.streaming.nodes.peers import (
        LOST_AFTER,
        SHORTEST_LOST_AFTER,
        NodeSettings,
        chosen_node,
        read_nodes,
        read_token,
        split_address,
    )

    if among.nodes is None:
        if among != NodesRequest(token_file=among.token_file):
            raise ConfigError(
                "--node, --listen, --prefetch and --lost-after are for several nodes: name them all with --nodes"
            )
        return None
    nodes = read_nodes(among.nodes)
    own = chosen_node(nodes, among.node)
    lost_after = LOST_AFTER if among.lost_after is None else parse_duration(among.lost_after)
    if lost_after < SHORTEST_LOST_AFTER:
        raise ConfigError(
            f"--lost-after {among.lost_after}: a busy node may be silent for that long; "
            f"give it {SHORTEST_LOST_AFTER:.0f}s at least"
        )
    if among.token_file is None:
        raise ConfigError(
            "nodes know each other by a shared secret: make one with (umask 077; openssl rand -hex 32 > FILE), "
            "give it to all nodes, and say --token-file FILE"
        )
    settings = NodeSettings(nodes, own, read_token(among.token_file))
    listen = split_address(among.listen, "--listen") if among.listen else None
    prefetch = among.prefetch or os.environ.get("CAPIO_PREFETCH_DATA_SIZE")
    ahead = settings.prefetch if prefetch is None else parse_size(prefetch, "B")
    return msgspec.structs.replace(settings, listen=listen, prefetch=ahead, lost_after=lost_after)


def _heed_signals(hosting: Hosting, received: list[int]) -> None:
    loop = asyncio.get_running_loop()

    def stop(number: int) -> None:
        received.append(number)
        hosting.stop(f"it was ended by {signal.Signals(number).name}")

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop, number)


async def _run(
    workflow: Workflow,
    root: str,
    request: Request,
    settings: Settings,
    output: str | None,
    progress: bool | None,
    guard: Guard,
) -> int:
    from penstock.cli.stream_log import StreamLog
    from penstock.cli.stream_view import View
    from penstock.streaming.hosting import Hosting
    from penstock.streaming.running import run_steps
    from penstock.streaming.steps import refuse_programs

    refuse_programs(workflow, root)
    received: list[int] = []
    view = View(workflow, output, progress)
    log = StreamLog(workflow, request.log, view.tell)
    try:
        hosting = Hosting(workflow, root, settings, log.tell)
        _heed_signals(hosting, received)
        guard.mind(hosting.root)
        async with hosting:
            with view.following(hosting):
                outcome = await run_steps(hosting, view.relay, log.tell, guard)
            # Where it failed, the last words say where the log is.
            view.sum_up(hosting.status(), None if outcome.status else log.path)
    except BaseException:
        log.close(ok=False)
        view.close()
        raise
    log.close(ok=not outcome.status)
    view.close()
    return _conclude(workflow, outcome.status, outcome.message, received, log.path)


def _conclude(workflow: Workflow, status: int, message: str, received: list[int], log: str | None) -> int:
    if received:
        print(f"penstock: {workflow.name}: {signal.Signals(received[0]).name}, all steps were ended", file=sys.stderr)
        return 128 + received[0]
    if status:
        where = f"\nevent log: {log}" if log else ""
        print(f"penstock: {workflow.name}: {message}{where}", file=sys.stderr)
    return status


async def _run_batch(workflow: Workflow, root: str, output: str | None, guard: Guard) -> int:
    from penstock.cli.stream_view import View
    from penstock.streaming.batch import run_batch
    from penstock.streaming.folders import lock_directory
    from penstock.streaming.placement import repair, true_root
    from penstock.streaming.steps import exit_status, told_failure

    view = View(workflow, output, False)
    stopping = asyncio.Event()
    received: list[int] = []
    loop = asyncio.get_running_loop()

    def stop(number: int) -> None:
        received.append(number)
        stopping.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop, number)
    root = true_root(root)
    guard.mind(root)
    with lock_directory(root):
        repair(root)
        steps = await run_batch(workflow, root, view.relay, stopping, guard)
    view.close()
    failed = next((step for step in steps if step.status), None)
    message = told_failure(failed, []) if failed else ""
    return _conclude(workflow, exit_status(failed.status or 0) if failed else 0, message, received, None)


async def _serve(workflow: Workflow, root: str, request: Request, settings: Settings, guard: Guard) -> int:
    from penstock.cli.stream_log import StreamLog
    from penstock.cli.stream_view import View
    from penstock.streaming.hosting import Hosting

    received: list[int] = []
    view = View(workflow, None, False)
    log = StreamLog(workflow, request.log, view.tell)
    try:
        hosting = Hosting(workflow, root, settings, log.tell)
        _heed_signals(hosting, received)
        guard.mind(hosting.root)
        async with hosting:
            print(f"penstock: {workflow.name} is served in {hosting.root}", flush=True)
            await hosting.stopping.wait()
            await hosting.finish()
            if hosting.traffic:
                print(f"penstock: {hosting.traffic}", flush=True)
    finally:
        log.close(ok=bool(received))
    if not received and hosting.stop_reason:
        print(f"penstock: {workflow.name}: {hosting.stop_reason}", file=sys.stderr)
        return 1
    return 0
