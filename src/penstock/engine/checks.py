"""The invariants of the engine as code. Tests call ``check`` after every event; it costs far too much for a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from penstock.engine.devices import DeviceRecord
from penstock.engine.engine import Engine
from penstock.engine.ledger import Lane, NodeRecord
from penstock.engine.origins import MOST, MOST_BYTES
from penstock.engine.placed_files import follows_placed
from penstock.engine.state import IOTaskRecord, State, TaskRecord, VersionRecord
from penstock.engine.store_checks import check_store, stored_segments
from penstock.errors import InternalError
from penstock.model.data import FileRef, SegmentId, Value, VersionId, segments_of
from penstock.model.tasks import FINAL, Failure, FailureKind, TaskState

__all__ = ["check"]


def check(engine: Engine, program_segments: Mapping[SegmentId, int] | None = None) -> None:
    """Raise InternalError if the engine's records contradict each other.

    ``program_segments`` says how often the program holds each segment; without it, counts that are too high cannot
    be told from segments that the program holds.
    """
    state = engine.state
    for node in state.ledger.nodes.values():
        _check_node(state, node)
    _check_open_nodes(state)
    _check_devices(state)
    lanes = [lane for node in state.ledger.nodes.values() for lane in node.lanes]
    for lane in lanes:
        _check_lane(state, lane)
    _check_lane_sets(state, set(lanes))
    _check_holders(state)
    _check_gangs(state)
    _check_reservation(state)
    uses = Counter(number for task in state.tasks.values() for number in task.call.reads)
    for number in uses:
        _require(number in state.versions, f"version {number} is read by an unfinished task, but is forgotten")
    for task in state.tasks.values():
        _check_task(state, task)
    _check_open_files(state)
    for number in state.early:
        _require(number in state.tasks, f"task {number} has handed over outputs, but is over")
    for number, until in state.pauses.items():
        _require(number in state.tasks, f"task {number} pauses, but is over")
        _require((until, number) in state.pause_ends, f"the pause of task {number} will not end")
    _check_replaced(state)
    _check_origins(state)
    ready = sum(task.state is TaskState.READY for task in state.tasks.values())
    held = len(state.ready) + len(state.io_ready) + len(state.gangs)
    _require(ready == held, f"{ready} tasks are READY, but {held} are in the ready sets")
    for version in state.versions.values():
        _check_version(state, version, uses[version.version])
    for file in state.files:
        _check_chain(state, file)
    _check_segments(state, program_segments)
    if state.store is not None:
        check_store(state, state.store)
    _check_states(state)


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise InternalError(otherwise)


def _require_of(state: State, task: TaskRecord, holds: bool, otherwise: str) -> None:
    if not holds:
        story = state.story.of(task.task)
        raise InternalError(f"task {task.label}, {task.state.name}, {otherwise}; its story:\n{story}")


# --- tokens and lanes -----------------------------------------------------------------------------------------------


def _check_node(state: State, node: NodeRecord) -> None:
    held = [(lane.queue[0].requirements, 1) for lane in node.lanes if lane.queue]
    held = [(need, processes) for need, processes in held if need.processes == 1]
    for gang, hosts in state.ledger.gangs.items():
        held += [(state.tasks[gang].requirements, processes) for host, processes in hosts if host is node]
    cpus = sum(need.cpus * processes for need, processes in held)
    memory = sum(need.memory * processes for need, processes in held)
    _require(
        node.free_cpus >= 0 and node.free_cpus + cpus == node.node.cpus,
        f"node {node.name} has {node.node.cpus} computing units: {node.free_cpus} free and {cpus} held",
    )
    _require(
        node.free_memory >= 0 and node.free_memory + memory == node.node.memory,
        f"node {node.name} has {node.node.memory} bytes: {node.free_memory} free and {memory} held",
    )
    for name, total in node.node.countable:
        free = node.free_countable[name]
        taken = [number for lane in node.lanes if lane.queue for number in _numbers(state, lane.queue[0], name)]
        right = sorted(free + taken) == list(range(total))
        _require(right, f"node {node.name} has {total} {name}: {free} free and {taken} held")
    for io, noted in ((False, node.idle), (True, node.idle_io)):
        idle = {lane for lane in node.lanes if lane.io is io and not lane.queue and lane.open and not lane.dying}
        _require(len(noted) == len(idle) and set(noted) == idle, f"node {node.name} has a wrong list of idle lanes")
    heads_io = [lane.queue[0] for lane in node.lanes if lane.queue and lane.io]
    unlayered = sum(not head.requirements.layered for head in heads_io)
    _require(node.unlayered == unlayered, f"node {node.name} counts {node.unlayered} I/O attempts of {unlayered}")


def _numbers(state: State, holder: TaskRecord, name: str) -> tuple[int, ...]:
    need = holder.requirements.countable
    numbers = state.ledger.numbers.get(holder.task, ())
    _require_of(state, holder, [count for _, count in need] == list(map(len, numbers)), f"holds {numbers} of {need}")
    return next((held for (one, _), held in zip(need, numbers, strict=True) if one == name), ())


def _check_open_nodes(state: State) -> None:
    ledger = state.ledger
    could = {node for node in ledger.nodes.values() if node.free_cpus > 0 and node.idle}
    _require(set(ledger.open) == could, "the nodes noted as open are not those with a free unit and an idle lane")
    could = {node for node in ledger.nodes.values() if node.idle_io}
    _require(set(ledger.open_io) == could, "the nodes noted as open for I/O are not those with an idle executor")


def _check_devices(state: State) -> None:
    attempts = [task for node in state.ledger.nodes.values() for lane in node.lanes for task in lane.queue]
    io = [task for task in attempts if isinstance(task, IOTaskRecord)]
    stored = _stored(state)
    for device in state.ledger.devices():
        holders = {task.task: task for task in io if task.device is device}
        taken = sum(task.bandwidth for task in holders.values()) + sum(device.moves.values())
        whole = device.layer.bandwidth
        _require(device.holders == holders, f"device {device.name} has a wrong list of holders")
        _require(
            device.free_bandwidth >= 0 and device.free_bandwidth + taken + device.others == whole,
            f"device {device.name} has {whole} B/s: {device.free_bandwidth} free, {taken} held and {device.others} "
            "of other programs",
        )
        may_owe = not device.owed or not device.free_bandwidth
        _require(may_owe and min(device.owed, device.others) >= 0, f"device {device.name} owes {device.owed} B/s")
        reserved = sum(task.requirements.capacity for task in io if task.room is device)
        _require(device.reserved == reserved, f"device {device.name} sets {device.reserved} aside for {reserved}")
        held = stored[device] + device.taken
        _require(device.stored == held, f"device {device.name} counts {device.stored} bytes in files of {held}")
        course = device.course
        if course is not None:
            _require(course in state.courses.values(), f"device {device.name} is kept for nobody")
            if course.open:
                others = [task for task in holders.values() if task.tuner is not course.tuner]
                _require(not others, f"an epoch of {course.name} shares device {device.name}")


def _stored(state: State) -> Counter[DeviceRecord]:
    """Bytes of files on each device, by what is known of the files."""
    stored: Counter[DeviceRecord] = Counter()
    for device, size in (*state.at_home.values(), *state.discarding.values()):
        stored[device] += size
    for astray in state.astray.values():
        stored[astray.device] += astray.size
    stored += stored_segments(state)
    for version in state.versions.values():
        placed = version.placed
        if version.home is not None:
            stored[version.home[0]] += version.home[1]
        if placed is not None:
            if not placed.temp and version.scratch is not None:
                _require(not placed.device.temporary, f"{version.file} is to last, but lies on {placed.device.name}")
            if version.scratch is not None:
                stored[placed.device] += placed.size
            if isinstance(placed.moving, DeviceRecord):
                stored[placed.moving] += placed.size
            for _, device in placed.old:
                stored[device] += placed.size
    return stored


def _check_lane(state: State, lane: Lane) -> None:
    where = f"on lane {lane.index} of node {lane.node.name}"
    for task in lane.queue:
        _require_of(state, task, task.lane is lane, f"stands {where} but does not know it")
        _require_of(state, task, state.tasks.get(task.task) is task, f"stands {where} but is over")
        _require_of(state, task, task.attempt > 0, f"stands {where} without an attempt")
    if not lane.queue:
        return
    head, *behind = lane.queue
    _require_of(state, head, head.state is TaskState.RUNNING, f"is the head {where}")
    _require_of(state, head, state.ledger.holders.get(head.task) is lane.node, f"is the head {where}, without tokens")
    for task in behind:
        _require_of(state, task, task.state is TaskState.QUEUED, f"stands behind another {where}")
        same = task.requirements == head.requirements
        _require_of(state, task, same, f"stands {where} behind {head.label}, which requires something else")
        _require_of(state, task, task.task not in state.ledger.holders, f"holds tokens, but is not the head {where}")


def _check_lane_sets(state: State, lanes: set[Lane]) -> None:
    backlogged = {lane for lane in lanes if len(lane.queue) > 1}
    _require(set(state.backlogged) == backlogged, "the lanes noted as backlogged are not those with attempts waiting")
    for lane in (*state.hungry, *state.hungry_io):
        may = lane in lanes and bool(lane.queue) and lane.open and not lane.recalling and not lane.dying
        _require(may, f"lane {lane.index} of node {lane.node.name} may be sent nothing, but is noted as hungry")


def _check_holders(state: State) -> None:
    heads = {lane.queue[0].task: node for node in state.ledger.nodes.values() for lane in node.lanes if lane.queue}
    _require(state.ledger.holders == heads, "the tasks noted as holding tokens are not the heads of lanes")
    _require(state.ledger.numbers.keys() <= heads.keys(), "units that are told apart are held by nobody")


def _check_gangs(state: State) -> None:
    ledger = state.ledger
    gangs = {task for task in ledger.holders if state.tasks[task].requirements.processes > 1}
    _require(set(ledger.gangs) == gangs, "the gangs noted as running are not those that hold tokens")
    guests: dict[NodeRecord, set[int]] = {node: set() for node in ledger.nodes.values()}
    for number, hosts in ledger.gangs.items():
        gang = state.tasks[number]
        need = gang.requirements
        assert gang.lane is not None
        running = sum(processes for _, processes in hosts)
        # One whose node was lost is being killed, and holds what it had elsewhere.
        whole = running == need.processes or (running < need.processes and gang.lane.dying)
        _require_of(state, gang, whole, f"runs {running} of {need.processes} processes")
        _require_of(state, gang, hosts[0][0] is gang.lane.node, f"begins on node {hosts[0][0].name}, without a lane")
        limit = need.processes_per_node or need.processes
        _require_of(state, gang, all(0 < processes <= limit for _, processes in hosts), "is spread wrongly")
        for node, _ in hosts[1:]:
            _require_of(state, gang, node in guests, f"holds tokens of node {node.name}, which is gone")
            guests[node].add(number)
    for node, expected in guests.items():
        _require(set(node.guests) == expected, f"node {node.name} has a wrong list of guests")


def _check_reservation(state: State) -> None:
    current = state.reservations.current
    reserved = {} if current is None else dict(current.nodes)
    for node in state.ledger.nodes.values():
        kept = node.kept
        _require((kept is not None) == (node in reserved), f"node {node.name} is kept for nobody, or is not kept")
        if kept is not None and current is not None:
            processes = reserved[node]
            right = (kept.cpus, kept.memory) == (current.need.cpus * processes, current.need.memory * processes)
            right = right and kept.countable == dict(current.need.countable)
            within = kept.cpus <= node.node.cpus and kept.memory <= node.node.memory
            _require(right and within and kept.admits(current.need), f"too much or too little of {node.name} is kept")


# --- tasks ----------------------------------------------------------------------------------------------------------


def _check_task(state: State, task: TaskRecord) -> None:
    now = task.state
    _require_of(state, task, now not in FINAL, "is over but remembered")
    on_lane = now in (TaskState.RUNNING, TaskState.QUEUED)
    _require_of(state, task, (task.lane is not None) == on_lane, f"has lane {task.lane}")
    if task.lane is not None:
        _require_of(state, task, task in task.lane.queue, "is not on its lane")
    else:
        _require_of(state, task, task.doom is None, "is doomed but on no lane")
        _require_of(state, task, task.task not in state.ledger.holders, "holds tokens but is on no lane")
    open_to_it = {number for number in task.call.streams if task in _readers(state, number)}
    if on_lane:
        # What was lost since the attempt was sent; it has the old content, or will say that it has not.
        open_to_it |= {number for number in task.call.reads if task not in state.versions[number].waiters}
    missing = sum(state.versions[number].outcome is None for number in task.call.reads if number not in open_to_it)
    missing += state.store is not None and state.store.waits(task.task)
    missing += task.task in state.pauses
    _require_of(state, task, task.missing == missing, f"counts {task.missing} missing versions of {missing}")
    waits = now is TaskState.WAITING
    interrupted = task.task in state.interrupted
    _require_of(state, task, waits == bool(missing) or interrupted, f"misses {missing} versions")
    if interrupted:
        assert task.lane is not None
        _require_of(state, task, task.lane.dying or task.lane.recalling, "is to be ended, but nobody ends it")
    for number in task.call.reads:
        version = state.versions[number]
        outlived = interrupted and task.doom is not None
        outlived = outlived or (on_lane and (number in state.origins.makers or _is_lost(version.outcome)))
        failed = type(version.outcome) is Failure and not outlived
        _require_of(state, task, not failed, f"needs version {number}, which failed")
        if version.outcome is None and number not in open_to_it:
            _require_of(state, task, task in version.waiters, f"is not among those that version {number} will release")


def _is_lost(outcome: object) -> bool:
    return type(outcome) is Failure and outcome.kind is FailureKind.LOST


def _readers(state: State, version: VersionId) -> Collection[TaskRecord]:
    opened = state.open_files.get(version)
    return () if opened is None else opened.readers


def _check_open_files(state: State) -> None:
    writers = {number: task for task in state.tasks.values() for number in task.call.writes}
    for number, opened in state.open_files.items():
        writer = writers.get(number)
        written = writer is not None and writer.state is TaskState.RUNNING
        _require(written, f"nobody writes version {number}, which is open")
        _require(state.versions[number].outcome is None, f"version {number} is open, but exists")
        for reader in opened.readers:
            _require_of(state, reader, state.tasks.get(reader.task) is reader, f"reads version {number}, but is over")
            _require_of(state, reader, number in reader.call.streams, f"cannot read version {number} as a stream")
    for number in state.interrupted:
        _require(number in state.tasks, f"task {number} is to be ended, but is over")


def _check_replaced(state: State) -> None:
    kept = Counter(before for before in state.replaced.values() if before > 0)
    _require(kept == state.kept, "the versions kept for those that replace them are not those that are replaced")
    for number, before in state.replaced.items():
        version = state.versions.get(number)
        unmade = version is not None and (version.outcome is None or type(version.outcome) is Failure)
        _require(unmade, f"version {number} still has what it replaced")
        _require(before <= 0 or before in state.versions, f"version {before} is kept, but is forgotten")


def _check_origins(state: State) -> None:
    for number in state.recoveries:
        _require(number in state.tasks, f"task {number} recovers from a loss, but is over")
    origins = state.origins
    known = {number: origin.call.task for origin in origins.by_task.values() for number in origin.call.writes}
    _require(origins.makers == known, "the versions of which the origin is known are not those of the origins")
    nbytes = sum(origin.nbytes for origin in origins.by_task.values())
    _require(origins.nbytes == nbytes, f"origins take {nbytes} bytes, but {origins.nbytes} are counted")
    _require(len(origins.by_task) <= MOST and nbytes <= MOST_BYTES, "too many origins are kept")
    for origin in origins.by_task.values():
        live = sum(number in state.versions for number in origin.call.writes)
        _require(origin.live == live, f"the origin of {origin.label} counts {origin.live} versions of {live}")
        _require(bool(live or origin.dependents), f"the origin of {origin.label} is of no use, but is kept")
    makers = {number for task in state.tasks.values() for number in task.call.writes}
    for version in state.versions.values():
        made = version.outcome is not None or version.version not in origins.makers or version.version in makers
        _require(made, f"version {version.version} was lost, and nobody makes it again")


# --- data -----------------------------------------------------------------------------------------------------------


def _check_version(state: State, version: VersionRecord, uses: int) -> None:
    name = f"version {version.version}"
    _require(version.uses == uses, f"{name} counts {version.uses} uses, but {uses} unfinished tasks read it")
    _require(version.outcome is None or not version.waiters, f"{name} is settled, but tasks wait for it")
    failed = type(version.outcome) is Failure
    _require(failed == (version.for_consumers is not None), f"{name} has an outcome that consumers do not see")
    if version.outcome is not None and not version.held and not version.uses:
        needed = version.scratch is not None or follows_placed(state, version) or version.version in state.kept
        _require(needed, f"{name} lives although nobody can read it")
    if version.file is not None:
        _require(version.version in state.files.get(version.file, ()), f"{name} is missing in the chain of its file")
    else:
        _require(version.scratch is None and not version.published, f"{name} is no file but has a private copy")
    on_layer = version.placed is not None and version.scratch is not None
    listed = version.version in state.placed
    _require(on_layer == listed, f"{name} is on a storage layer, or not, and the list says otherwise")


def _check_chain(state: State, file: str) -> None:
    numbers = list(state.files[file])
    _require(bool(numbers), f"the chain of {file} is empty")
    blocked = False
    for number in numbers:
        version = state.versions.get(number)
        _require(version is not None and version.file == file, f"version {number} is in the chain of {file} wrongly")
        assert version is not None
        if version.scratch is not None:
            found = version.outcome.path if type(version.outcome) is FileRef else None
            _require(found == version.scratch, f"version {number} is not in its private copy")
            named = version.published or number in state.publishing
            # At the end of a run, what is missing in between will never be made.
            _require(
                state.draining or named != blocked, f"version {number} of {file} has its name too early or too late"
            )
            waited_for = blocked or version.uses > 0 or number in state.publishing or version.placed is not None
            _require(waited_for, f"the private copy {version.scratch} is kept for nobody")
        moving = version.placed is not None and version.placed.moving is not None
        blocked = blocked or version.outcome is None or version.uses > 0 or number in state.publishing or moving


def _check_states(state: State) -> None:
    counted: Counter[str] = Counter()
    for version in state.versions.values():
        if type(version.outcome) is Value:
            counted.update(version.outcome.states)
    _require(
        dict(counted) == state.object_states, f"states of objects count {state.object_states}, not {dict(counted)}"
    )


def _check_segments(state: State, program: Mapping[SegmentId, int] | None) -> None:
    counted: Counter[SegmentId] = Counter()
    for version in state.versions.values():
        counted.update(segments_of(version.outcome))
    for task in state.tasks.values():
        counted.update(task.call.segments)
    for recovery in state.recoveries.values():
        counted.update(recovery.spent)
    for segment, holders in state.segments.items():
        known = counted[segment] + (0 if program is None else program.get(segment, 0))
        right = holders >= max(known, 1) if program is None else holders == known
        _require(right, f"segment {segment} counts {holders} holders, but {known} are known")
    for segment in (counted | Counter(program or {})).keys() - state.segments.keys():
        raise InternalError(f"segment {segment} is held, but was freed")
