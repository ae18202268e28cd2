"""Handlers for what the program says: calls, cancellations, and data it provides or lets go."""

from __future__ import annotations

from math import inf

from penstock.engine.failures import fail_consumers_of, fail_for_want_of, finish_without_outputs
from penstock.engine.lifetimes import (
    chain_file,
    drop_if_unused,
    hold_segments,
    hold_states,
    keep_replaced,
    release_segments,
)
from penstock.engine.nodes import most_processes
from penstock.engine.outcomes import release_successors, settle
from penstock.engine.pauses import begin_pause
from penstock.engine.placement import kill, make_ready, recall
from penstock.engine.relief import note_dropped
from penstock.engine.segment_store import note_segment, note_value
from penstock.engine.state import IOTaskRecord, State, TaskRecord, VersionRecord
from penstock.errors import ConstraintError, InternalError
from penstock.model.data import FileRef, Value, VersionId, segments_of
from penstock.model.events import CancelRequested, Provided, Released, SegmentMade, SegmentReleased, Submitted
from penstock.model.resources import Node, Requirements, StorageLayer
from penstock.model.tasks import Failure, FailureKind, TaskCall, TaskState
from penstock.storage.redirect import usable

__all__ = ["cancel", "ensure_possible", "new_record", "provide", "release", "release_segment", "segment_made", "submit"]


def submit(state: State, event: Submitted) -> None:
    """Enter a call into the graph; it is ready at once if all it reads exists."""
    call = event.call
    versions = state.versions
    if call.reads and not versions.keys() >= set(call.reads):  # before anything of the call is entered
        unknown = [number for number in call.reads if number not in versions]
        raise InternalError(f"task {call.spec.name}#{call.task} reads versions that are gone: {unknown}")
    task = state.tasks[call.task] = new_record(state, call)
    blocker: VersionRecord | None = None
    for number in call.reads:
        version = versions[number]
        version.uses += 1
        if version.outcome is None:
            if number in state.open_files and number in call.streams:
                state.open_files[number].readers[task] = None
                continue
            version.release_later(task)
            task.missing += 1
        elif version.for_consumers is not None:
            blocker = version
    for number in call.writes:
        versions[number] = VersionRecord(number)
    if event.replaces:
        keep_replaced(state, event.replaces)
    for number in event.released:
        _let_go(state, number)
    if call.outputs:
        _chain_files(state, task)
    if call.segments:
        hold_segments(state, call.segments)
        if state.store is not None:
            _note_segments(state, call)
    if event.pause:
        begin_pause(state, task, event.pause)
    if blocker is not None:
        fail_for_want_of(state, task, blocker, called_after=True)
    elif state.ledger.shrunk and state.is_hopeless(task.requirements):
        # Whoever asked before the first call of this function was told otherwise.
        finish_without_outputs(state, task, Failure(FailureKind.UNPLACEABLE, "no node is left that could run it"))
    elif not task.missing:
        make_ready(state, task)


def _note_segments(state: State, call: TaskCall) -> None:
    for value in (call.args, *call.slots):
        if type(value) is Value:
            note_value(state, value)


def new_record(state: State, call: TaskCall) -> TaskRecord:
    """What is remembered of a call that is not over."""
    spec = call.spec
    need = spec.requirements
    if not need.io:
        return TaskRecord(call, call.task, need, spec.priority)
    function = spec.function
    if need.auto is not None:
        # A function that was sent anew has another number; what learns its constraint must see one function.
        function = state.learners.setdefault((spec.identity or spec.name, need.auto), function)
    return IOTaskRecord(call, call.task, need, spec.priority, function=function)


def _chain_files(state: State, task: TaskRecord) -> None:
    for number, output in zip(task.call.writes[task.call.returns :], task.call.outputs, strict=True):
        if output.file is not None:
            chain_file(state, state.versions[number], output.file)
            state.versions[number].temp = output.temp


def provide(state: State, event: Provided) -> None:
    """Take a version from the program itself: a shared object, a file that exists, an element of a map."""
    version = state.versions.get(event.version)
    if version is None:
        version = state.versions[event.version] = VersionRecord(event.version)
        if type(event.value) is FileRef:
            # It lay there before: nobody waits for it, so there is nobody to tell.
            chain_file(state, version, event.value.path)
            version.outcome = event.value
            version.borrowed = True
            return
    if version.outcome is not None:
        raise InternalError(f"version {event.version} was provided, but it exists already")
    if isinstance(event.value, Failure):
        fail_consumers_of(state, version, event.value)
    elif event.value is not None:
        hold_segments(state, segments_of(event.value))
        if type(event.value) is Value:
            note_value(state, event.value)
            hold_states(state, event.value.states)
        version.bytes_at = event.bytes_at
        freed: list[TaskRecord] = []
        settle(state, version, event.value, freed)
        release_successors(state, freed)


def release(state: State, event: Released) -> None:
    """The program holds versions no longer."""
    for number in event.versions:
        _let_go(state, number)


def _let_go(state: State, number: VersionId) -> None:
    version = state.versions.get(number)
    if version is not None:
        version.held = False
        if state.store is not None and state.store.records:
            note_dropped(state, state.store, version)
        drop_if_unused(state, version)


def segment_made(state: State, event: SegmentMade) -> None:
    """The program stored buffers and holds them."""
    hold_segments(state, (event.segment,))
    note_segment(state, event.segment, event.size, spilled=event.spilled)


def release_segment(state: State, event: SegmentReleased) -> None:
    """The program holds a segment no longer."""
    release_segments(state, (event.segment,))


def cancel(state: State, event: CancelRequested) -> None:
    """Give a task up; one that has started only if its worker may be killed."""
    task = state.tasks.get(event.task)
    if task is None:
        return
    doom = Failure(FailureKind.CANCELLED, "it was cancelled", path=(task.label,))
    lane = task.lane
    if lane is None:
        finish_without_outputs(state, task, doom)
    elif task.state is TaskState.QUEUED:
        task.spare_started = not event.kill and (task.doom is None or task.spare_started)
        task.doom = doom
        recall(state, lane)
    elif event.kill:
        task.spare_started = False
        task.doom = doom
        kill(state, lane)


def ensure_possible(state: State, name: str, need: Requirements) -> None:
    """Refuse requirements that no node of this run can ever meet, naming the most that there is."""
    if not state.ledger.joined or not state.is_hopeless(need):
        return
    nodes = state.ledger.examples() if state.elastic else [record.node for record in state.ledger.nodes.values()]
    if not nodes:
        raise ConstraintError(f"task {name} cannot run: no node is left. Start again, or add a node.")
    for resource, count in need.countable:
        _refuse_countable(name, resource, count, nodes)
    if need.io:
        _refuse_io(name, need, nodes)
    if need.processes > 1:
        _refuse_gang(state, name, need, nodes)
    largest = max(nodes, key=lambda node: (node.cpus, node.memory))
    offered = "".join(f", {key} {value!r}" for key, value in largest.properties)
    raise ConstraintError(
        f"task {name} requires {_wanted(need)}, which no node can ever give: the largest, {largest.name!r}, has "
        f"{largest.cpus} computing units and {largest.memory / 1e9:.3g} GB of memory{offered}. "
        f"Lower the @constraint or run on a larger machine."
    )


def _wanted(need: Requirements) -> str:
    wanted = [f"computing_units={need.cpus}"]
    if need.memory:
        wanted.append(f"memory_size={need.memory / 1e9:.3g}GB")
    wanted += [f"{resource}={count}" for resource, count in need.countable]
    return ", ".join(wanted + [f"{key}={value!r}" for key, value in need.properties])


def _refuse_countable(name: str, resource: str, count: int, nodes: list[Node]) -> None:
    """Refuse more of a countable resource than any node has."""
    most = max(dict(node.countable).get(resource, 0) for node in nodes)
    if count <= most:
        return
    known = ", ".join(sorted({one for node in nodes for one, _ in node.countable})) or "nothing"
    there = f"no node has more than {most}" if most else f"no node has any (what is counted here: {known})"
    raise ConstraintError(
        f"task {name} requires {resource}={count}, and {there}. Say how many there are: {resource} = {count} in the "
        f"table [resources.countable] of penstock.toml, or penstock run --countable {resource}={count}."
    )


def _refuse_gang(state: State, name: str, need: Requirements, nodes: list[Node]) -> None:
    """Refuse a gang that all nodes together cannot hold, unless not even one process of it fits any."""
    largest = max(nodes, key=lambda node: most_processes(node, need))
    if not most_processes(largest, need):
        return
    limit = f", at most {need.processes_per_node} to a node" if need.processes_per_node else ""
    raise ConstraintError(
        f"task {name} requires {need.processes} processes at once, each with {_wanted(need)}{limit}, which the nodes "
        f"can never hold: together they have room for {state.ledger.room_for_gang(need, ever=state.elastic)}, the "
        f"largest, {largest.name!r}, for {most_processes(largest, need)}. Ask for fewer processes, or give the run "
        f"more nodes or computing units (the setting cpus may exceed the cores of a machine)."
    )


def _refuse_io(name: str, need: Requirements, nodes: list[Node]) -> None:
    """Refuse what an I/O task asks of storage, if that is what no node can give."""
    if not any(node.io_executors for node in nodes):
        raise ConstraintError(f"task {name} is an I/O task, but no node has I/O executors. Set io_executors.")
    if not need.layered:
        return
    layers = [layer for node in nodes for layer in usable(node.storage, need)]
    if not layers:
        raise ConstraintError(f"task {name} requires storage, but no node has a storage layer. Describe one.")
    fastest = max(layers, key=lambda layer: layer.bandwidth)
    roomiest = max(layers, key=lambda layer: inf if layer.capacity is None else layer.capacity)
    bandwidth = need.bandwidth if need.auto is None else need.auto.least
    spared = sorted({layer.name for node in nodes for layer in node.storage} - {layer.name for layer in layers})
    others = f" ({', '.join(spared)} {'is' if len(spared) == 1 else 'are'} for temporary files only)" if spared else ""
    if bandwidth > fastest.bandwidth:
        raise ConstraintError(
            f"task {name} requires storage_bw={_exact_rate(bandwidth)}, which no storage layer can ever give: the "
            f"fastest, {fastest.name!r}, has {_exact_rate(fastest.bandwidth)}{others}. Lower the @constraint, "
            f"or describe a faster layer."
        )
    if roomiest.capacity is not None and need.capacity > roomiest.capacity:
        raise ConstraintError(
            f"task {name} requires storage_size={_exact(need.capacity)}, which no storage layer can ever give: "
            f"the largest, {roomiest.name!r}, has {_exact(roomiest.capacity)}{others}. Lower the @constraint, or "
            f"describe a larger layer."
        )
    if not any(_holds(layer, need, bandwidth) for layer in layers):
        offered = ", ".join(f"{layer.name} {_exact_rate(layer.bandwidth)}, {_size(layer)}" for layer in layers)
        raise ConstraintError(
            f"task {name} requires storage_bw={_exact_rate(bandwidth)} and storage_size={_exact(need.capacity)} "
            f"together, which no storage layer can ever give ({offered}){others}. Lower the @constraint."
        )


def _holds(layer: StorageLayer, need: Requirements, bandwidth: float) -> bool:
    return bandwidth <= layer.bandwidth and (layer.capacity is None or need.capacity <= layer.capacity)


def _size(layer: StorageLayer) -> str:
    return "without limit" if layer.capacity is None else _exact(layer.capacity)


def _exact(size: float) -> str:
    """A size to six digits: three would make 6001 MB and 6000 MB the same."""
    return f"{size / 1e9:.6g} GB" if size >= 1e9 else f"{size / 1e6:.6g} MB"


def _exact_rate(rate: float) -> str:
    return f"{_exact(rate)}/s"
