"""Carries out the engine's commands on virtual time: lanes, attempts, and what is asked of file systems.

    command ─▶ Executor.carry_out ─▶ clock, transfers ─▶ post(event)

The head of a lane runs and the others wait behind it, as with real workers. Whatever takes no time is answered at once.
A node that is lost answers nothing any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import inf

from penstock.model import events
from penstock.model.commands import Command, Discard, Free, Kill, Launch, Move, Publish, Recall, Sample, Warm
from penstock.model.resources import Node
from penstock.model.tasks import Failure, FailureKind
from penstock.sim.attempts import Attempt, Courses, Lane
from penstock.sim.clock import Clock
from penstock.sim.files import Files, MakeDevice, Stored, make_device
from penstock.sim.network import Links, Network, Objects
from penstock.sim.transfers import TransferDevice, Transfers
from penstock.sim.work import NO_COSTS, Costs, WorkOf

__all__ = ["Executor"]


class Executor:
    """All nodes of a simulation."""

    def __init__(
        self,
        work: WorkOf,
        clock: Clock[Callable[[], None]],
        post: Callable[[events.Event], None],
        *,
        network: Network | None = None,
        costs: Costs = NO_COSTS,
        io_costs: Costs = NO_COSTS,
        stream_bandwidth: Mapping[str, float] | None = None,
        room: Mapping[str, int] | None = None,
        device: MakeDevice = make_device,
        fetched: Callable[[Launch, float, int], None],
    ) -> None:
        """``fetched`` is told of attempts whose data came from other nodes: how long that took, and how many bytes."""
        self.files = Files(stream_bandwidth or {}, room or {}, device)
        self.links = Links(network)
        self.transfers = Transfers(clock)
        #: computing units times seconds that attempts held them, by node
        self.busy: dict[str, float] = {}
        self._objects = Objects(self.links, self.transfers)
        self._courses = Courses(clock, self.transfers, self.files, self.links, self._objects, fetched, self._tell)
        self._work = work
        self._clock = clock
        self._post = post
        self._costs = costs
        self._io_costs = io_costs
        self._lanes: dict[str, list[Lane]] = {}
        #: when the last I/O executor that was started takes tasks, by node
        self._last_started: dict[str, float] = {}
        #: gangs that have processes on a node, but their lane on another one
        self._guests: dict[str, dict[Attempt, None]] = {}

    # --- nodes --------------------------------------------------------------------------------------------------------

    def join(self, node: Node) -> None:
        """A node is there from now on."""
        costs, io_costs, now = self._costs, self._io_costs, self._clock.now
        compute = [Lane(costs, now + costs.start + number * costs.each, io=False) for number in range(node.cpus)]
        io = [Lane(io_costs, inf if io_costs.start else now, io=True) for _ in range(node.io_executors)]
        self._lanes[node.name] = compute + io
        self.busy.setdefault(node.name, 0.0)
        self.files.join(node)
        self.links.join(node.name)

    def lose(self, name: str) -> None:
        """A node is gone, with what runs there and the files on its own devices."""
        self._last_started.pop(name, None)
        for lane in self._lanes.pop(name, ()):
            if lane.attempts:
                self._leave(lane.attempts[0])
            for attempt in lane.attempts:
                self._courses.break_off(attempt)
        self.files.lose(name)
        self._objects.lose(name)
        self._post(events.NodeLost(name))
        for gang in list(self._guests.get(name, ())):
            self._end(gang, _host_lost(name))

    def has(self, name: str) -> bool:
        """Whether a node is there."""
        return name in self._lanes

    # --- commands -----------------------------------------------------------------------------------------------------

    def carry_out(self, command: Command) -> None:
        """Do what the engine asks, or begin it."""
        match command:
            case Launch():
                self.launch(command)
            case Recall(node, lane):
                if node in self._lanes:
                    self._recall(node, lane)
            case Kill(node, lane):
                if node in self._lanes:
                    self._kill(node, lane)
            case Warm(node, executors):
                if node in self._lanes:
                    self._warm(node, executors)
            case Sample(node, layer):
                if node in self._lanes:
                    self._sample(node, layer)
            case Publish():
                self._publish(command)
            case Move():
                self._move(command)
            case Discard(path, tell):
                self.files.remove(path)
                if tell:
                    self._post(events.Discarded(path))
            case Free(segment):
                self._objects.free(segment)
            case _:
                pass  # who waits for values is told by whoever drives the engine

    def _tell(self, lane: Lane, event: events.Event) -> None:
        """News of a lane, which keep their order."""
        told = lane.costs.told
        if told:
            self._clock.at(self._clock.now + told, partial(self._post, event))
        else:
            self._post(event)

    # --- attempts -----------------------------------------------------------------------------------------------------

    def launch(self, launch: Launch) -> None:
        """Send an attempt to its lane."""
        lanes = self._lanes.get(launch.node)
        if lanes is None:
            return  # the engine will hear that the node is gone
        lane = lanes[launch.lane]
        attempt = Attempt(launch, lane, self._begin, self._end)
        lane.attempts.append(attempt)
        if launch.hosts and self._is_doomed(attempt):
            return
        if len(lane.attempts) == 1:
            self._take_up(attempt, lane.costs.first)

    def _is_doomed(self, gang: Attempt) -> bool:
        """Whether a node on which a gang was to have processes is gone already: then so is the gang."""
        hosts = gang.launch.hosts
        for host, _ in hosts[1:]:
            self._guests.setdefault(host, {})[gang] = None
        gone = [host for host, _ in hosts if host not in self._lanes]
        if gone:
            self._end(gang, _host_lost(gone[0]))
        return bool(gone)

    def _take_up(self, attempt: Attempt, gap: float) -> None:
        """An attempt is the head of its lane: it begins when its process is there and has got to it."""
        lane, now = attempt.lane, self._clock.now
        if lane.ready == inf:
            self._start(attempt.launch.node, lane)
        begin = max(now, lane.ready) + gap
        if begin > now:
            self._clock.at(begin, attempt.begin)
        else:
            self._begin(attempt)

    def _start(self, node: str, lane: Lane) -> None:
        """Start the process of an I/O executor; a node's come one after the other."""
        lane.ready = self._clock.now + lane.costs.start
        if node in self._last_started:
            lane.ready = max(lane.ready, self._last_started[node] + lane.costs.each)
        self._last_started[node] = lane.ready

    def _warm(self, node: str, executors: int) -> None:
        """Have so many I/O executors there, and tell when they are."""
        io = [lane for lane in self._lanes[node] if lane.io]
        ready = self._clock.now
        for lane in io[:executors]:
            if lane.ready == inf:
                self._start(node, lane)
            ready = max(ready, lane.ready)
        if ready > self._clock.now:
            self._clock.at(ready, partial(self._post, events.Warmed(node)))
        else:
            self._post(events.Warmed(node))

    def _sample(self, node: str, layer: str) -> None:
        """Tell how many bytes attempts have transferred on a layer."""
        device = self.files.device(node, layer)
        now = self._clock.now
        running = (lane.attempts[0].transfer for lane in self._lanes[node] if lane.io and lane.attempts)
        under_way = sum(device.transferred(now, one) for one in running if one is not None and device in one.devices)
        self._post(events.Sampled(node, layer, self._courses.transferred.get((node, layer), 0.0) + under_way))

    def _begin(self, attempt: Attempt) -> None:
        launch = attempt.launch
        attempt.started = now = self._clock.now
        attempt.work = work = self._work(launch)
        if launch.slots or launch.call.outputs or work.traffic or work.ready:
            attempt.course = self._courses.course(attempt, work)
            attempt.proceed()
        elif work.seconds:
            self._clock.at(now + work.seconds, attempt.computed)
        else:
            self._end(attempt, None)

    def _end(self, attempt: Attempt, failure: Failure | None) -> None:
        launch, work = attempt.launch, attempt.work
        seconds = self._leave(attempt)
        lane = attempt.lane
        attempts = lane.attempts
        attempts.popleft()
        failure = failure or (None if work is None else work.failure)
        if failure is None:
            attempt.alive = False
            outputs = self._courses.outputs(attempt)
            self._tell(lane, events.Finished(launch.task, launch.attempt, outputs, seconds))
        else:
            self._courses.break_off(attempt)
            self._tell(lane, events.Failed(launch.task, launch.attempt, failure, seconds))
        if attempts:
            self._take_up(attempts[0], lane.costs.next)

    def _leave(self, attempt: Attempt) -> float:
        """The head of a lane is over; how long it ran."""
        launch = attempt.launch
        seconds = self._clock.now - attempt.started if attempt.started >= 0 else 0.0
        cpus = launch.call.spec.requirements.cpus
        if not launch.hosts:
            self.busy[launch.node] += cpus * seconds
        for host, processes in launch.hosts:
            self.busy[host] += cpus * processes * seconds
            if host != launch.node:
                self._guests[host].pop(attempt, None)
        return seconds

    def _recall(self, node: str, number: int) -> None:
        lane = self._lanes[node][number]
        attempts = lane.attempts
        waiting = tuple(attempt.launch.task for attempt in list(attempts)[1:])
        while len(attempts) > 1:
            attempts.pop()
        self._tell(lane, events.Recalled(node, number, waiting))

    def _kill(self, node: str, number: int) -> None:
        """The head ends with its process; what was behind it is given back first."""
        self._recall(node, number)
        lane = self._lanes[node][number]
        if lane.attempts:
            attempt = lane.attempts.popleft()
            self._leave(attempt)
            self._courses.break_off(attempt)
        lane.ready = self._clock.now + lane.costs.start
        self._tell(lane, events.WorkerLost(node, number, "its process was killed"))

    # --- files --------------------------------------------------------------------------------------------------------

    def _publish(self, publish: Publish) -> None:
        stored = self.files.stored(publish.source)
        if stored is None:  # it went with its node
            self._post(events.Published(publish.version, publish.source))
            return
        if publish.link:
            self.files.link(publish.target, publish.source)
        else:
            self.files.put(publish.target, stored)
        self._post(events.Published(publish.version, publish.target))

    def _move(self, move: Move) -> None:
        old = self.files.stored(move.source)
        if old is None:
            self._not_moved(move, "the node that it was on was lost")
            return
        goal, path = self._goal(move, old)
        fits = self.files.take_room(goal, old.size)
        if fits < old.size:
            assert goal is not None
            self.files.give_room(goal, fits)
            self._not_moved(move, f"no space left on {goal.name}")
            return
        devices = [device for device in (old.device, goal) if device is not None]
        self.transfers.start(devices if old.size else (), old.size, partial(self._moved, move, old, goal, path))

    def _goal(self, move: Move, old: Stored) -> tuple[TransferDevice | None, str]:
        """The device that a file goes to, and its path there."""
        if not move.layer:
            return self.files.home(old.node, move.name), move.name
        path = self.files.path_on(old.node, move.layer, -move.version, move.name)
        return self.files.device(old.node, move.layer), path

    def _moved(self, move: Move, old: Stored, goal: TransferDevice | None, path: str) -> None:
        if self.files.stored(move.source) is not old:
            self.files.give_room(goal, old.size)
            self._not_moved(move, "the node that it was on was lost")
            return
        self.files.put(path, Stored(old.node, goal, old.size))
        if path != move.name:
            self.files.link(move.name, path)
        self._post(events.Moved(move.version, path))

    def _not_moved(self, move: Move, why: str) -> None:
        self._post(events.Moved(move.version, move.source, why))


def _host_lost(name: str) -> Failure:
    return Failure(FailureKind.DIED, f"node {name}, on which it had processes, was lost")
