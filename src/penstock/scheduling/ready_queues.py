"""The fast ready set: decides as the naive one does, at a cost that grows neither with ready tasks nor with nodes.

    ready tasks ── by requirements ──► group ─┬─ everywhere: queue of all its tasks, by the score they have anywhere
                                              │    └─ anywhere: nodes where the group fits (places.py), best first
                                              └─ near[node]: queue of those that score higher on that node
                                                   └─ nearby: nodes with such a queue, by its head, best first

A task is put in order once, when it is added. All tasks of a group fit a node or none does, so the best placement of a
group is the better of two: the head of ``everywhere`` on the first node of ``anywhere``, and the first of ``nearby``.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush

from msgspec import Struct

from penstock.errors import InternalError
from penstock.model.resources import Requirements
from penstock.scheduling.places import Nodes, Places, Rank
from penstock.scheduling.policy import Policy, SparsePolicy
from penstock.scheduling.reference import NaiveReadySet
from penstock.scheduling.view import NodeView, ReadySet, ReadyTask

__all__ = ["ReadyQueues", "ready_set"]

#: dead entries a queue may hold beyond the number of its live ones
_DEAD_ALLOWED = 32

#: requirements of which the nodes are kept in order although no such task is ready: the next may come at once
_KEPT = 16


def ready_set(policy: Policy) -> ReadySet:
    """The fastest ready set that can serve this policy."""
    return ReadyQueues(policy) if isinstance(policy, SparsePolicy) else NaiveReadySet(policy)


class _Held(Struct, eq=False):
    """A task from the moment it is added until it is removed; adding it again makes another one."""

    task: ReadyTask
    group: _Group
    #: nodes in whose queues it stands, besides ``group.everywhere``
    near: Sequence[str] = ()
    removed: bool = False

    def __lt__(self, other: _Held) -> bool:
        # Reached only by entries of one serial, of which all but one are removed: any order will do.
        return False


#: (-priority, -score, serial, what it stands for): the smallest is served first
_Entry = tuple[int, float, int, _Held]


class _Queue:
    """Entries in order, the removed ones among them until they come to the front or become too many.

    Most entries arrive in order: after all others (fifo) or before them (lifo). Those make up ``run``, a sorted
    deque, at constant cost; only the others pay for a heap. The first entry of each is always live.
    """

    __slots__ = ("heap", "live", "run")

    def __init__(self) -> None:
        self.run: deque[_Entry] = deque()
        self.heap: list[_Entry] = []
        #: entries not removed; the rest are dead
        self.live = 0

    def push(self, entry: _Entry) -> None:
        self.live += 1
        run = self.run
        if not run or entry > run[-1]:
            run.append(entry)
        elif entry < run[0]:
            run.appendleft(entry)
        else:
            heappush(self.heap, entry)

    def head(self) -> _Entry:
        """The first live entry; there must be one."""
        run, heap = self.run, self.heap
        if not heap:
            return run[0]
        return min(run[0], heap[0]) if run else heap[0]

    def lost_one(self) -> None:
        """One of the entries was removed: forget it if it stands in front, else once there are too many such."""
        self.live -= 1
        run, heap = self.run, self.heap
        while run and run[0][3].removed:
            run.popleft()
        while heap and heap[0][3].removed:
            heappop(heap)
        if len(run) + len(heap) > 2 * self.live + _DEAD_ALLOWED:
            self.run = deque(entry for entry in run if not entry[3].removed)
            self.heap = [entry for entry in heap if not entry[3].removed]
            heapify(self.heap)


class _Group:
    """The ready tasks that have the same requirements."""

    __slots__ = ("anywhere", "everywhere", "near", "nearby", "requirements")

    def __init__(self, requirements: Requirements) -> None:
        self.requirements = requirements
        #: every task of the group, at the score it has on any node
        self.everywhere = _Queue()
        #: by node name, the tasks that score higher there, at that score; no queue in it is without live entries
        self.near: dict[str, _Queue] = {}
        #: the nodes where the group fits, by load and index; made when first asked for
        self.anywhere: Places | None = None
        #: the nodes in ``near`` where the group fits, by the head of their queue, load and index; likewise
        self.nearby: Places | None = None

    def stand_near(self, name: str, entry: _Entry) -> None:
        queue = self.near.get(name)
        if queue is None:
            queue = self.near[name] = _Queue()
        queue.push(entry)

    def leave_near(self, name: str) -> None:
        queue = self.near[name]
        queue.lost_one()
        if not queue.live:
            del self.near[name]

    def best(self, node: NodeView) -> _Entry:
        """The entry served first on this node; the group must not be empty.

        The head of ``everywhere`` may be a task that scores higher here than that entry says. Then it stands in
        ``near`` as well, and the head of that queue is at least as good as its true score.
        """
        head = self.everywhere.head()
        queue = self.near.get(node.name)
        return head if queue is None else min(head, queue.head())


class ReadyQueues:
    """Ready tasks grouped by requirements and kept in order, for policies whose score is sparse."""

    def __init__(self, policy: SparsePolicy) -> None:
        self._sparse_score = policy.sparse_score
        self._idle_first = policy.idle_first
        self._held: dict[int, _Held] = {}
        #: none of them is empty
        self._groups: dict[Requirements, _Group] = {}
        #: an emptied group to use again: with a single task in flight, groups come and go with every task
        self._spare: _Group | None = None
        self._nodes: Nodes[NodeView] = Nodes(few=1)
        #: without a step in between: they are called whenever an attempt starts or ends
        self.node_changed = self._nodes.changed
        self.node_gone = self._nodes.gone
        #: ``anywhere`` of groups that are gone, the one least recently used first
        self._kept: OrderedDict[Requirements, Places] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def add(self, task: ReadyTask) -> None:
        serial = task.serial
        if serial in self._held:
            raise InternalError(f"task {task.task} (serial {serial}) became ready twice")
        everywhere, higher = self._sparse_score(task)
        requirements = task.requirements
        group = self._groups.get(requirements)
        if group is None:
            group = self._new_group(requirements)
        held = self._held[serial] = _Held(task, group)
        before = -task.priority
        group.everywhere.push((before, -everywhere, serial, held))
        if higher:
            held.near = [name for name, score in higher.items() if score > everywhere]
            for name in held.near:
                group.stand_near(name, (before, -higher[name], serial, held))
            if group.nearby is not None:
                self._look_near(group.nearby, held.near)

    def remove(self, task: ReadyTask) -> None:
        held = self._held.pop(task.serial, None)
        if held is None:
            raise InternalError(f"task {task.task} (serial {task.serial}) is to be removed, but is not ready")
        held.removed = True
        group = held.group
        for name in held.near:
            group.leave_near(name)
        group.everywhere.lost_one()
        if not group.everywhere.live:
            self._drop_group(group)

    def propose(self) -> tuple[ReadyTask, NodeView] | None:
        nodes = self._nodes.by_index
        if len(nodes) == 1:
            return self._propose_on(next(iter(nodes.values())))
        best: Rank | None = None
        found: _Held | None = None
        for group in self._groups.values():
            head = group.everywhere.head()
            # Even on an idle node it comes after what was found, unless tasks score higher somewhere.
            if best is not None and not group.near and (head[0], head[1], 0, head[2]) > best:
                continue
            place = (group.anywhere or self._make_anywhere(group)).best()
            if place is None:
                continue
            rank: Rank = (head[0], head[1], place[0], head[2], place[1])
            held = head[3]
            if group.near:
                near = (group.nearby or self._make_nearby(group)).best()
                if near is not None and near < rank:
                    rank = near
                    held = group.near[nodes[near[4]].name].head()[3]
            if best is None or rank < best:
                best, found = rank, held
        return None if best is None or found is None else (found.task, nodes[best[4]])

    def _propose_on(self, node: NodeView) -> tuple[ReadyTask, NodeView] | None:
        """The same, if there is no other node: nothing but the tasks is to be compared."""
        best: _Entry | None = None
        for requirements, group in self._groups.items():
            entry = group.best(node) if group.near else group.everywhere.head()
            if (best is None or entry < best) and node.fits(requirements):
                best = entry
        return None if best is None else (best[3].task, node)

    def heads(self) -> Iterable[ReadyTask]:
        return (group.everywhere.head()[3].task for group in self._groups.values())

    def next_alike(self, node: NodeView, requirements: Requirements) -> ReadyTask | None:
        group = self._groups.get(requirements)
        return None if group is None else group.best(node)[3].task

    def _new_group(self, requirements: Requirements) -> _Group:
        group = self._spare
        if group is None:
            group = _Group(requirements)
        else:
            self._spare = None
            group.requirements = requirements
        if self._kept:
            group.anywhere = self._kept.pop(requirements, None)
        self._groups[requirements] = group
        return group

    def _drop_group(self, group: _Group) -> None:
        del self._groups[group.requirements]
        if group.anywhere is not None:
            self._kept[group.requirements] = group.anywhere
            group.anywhere = group.nearby = None
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        self._spare = group

    def _make_anywhere(self, group: _Group) -> Places:
        requirements, idle_first = group.requirements, self._idle_first

        def rank(node: NodeView) -> Rank | None:
            if not node.fits(requirements):
                return None
            return (node.used_cpus if idle_first else 0), node.index

        group.anywhere = Places(self._nodes, rank, self._nodes.by_index.values)
        return group.anywhere

    def _make_nearby(self, group: _Group) -> Places:
        requirements, near, idle_first = group.requirements, group.near, self._idle_first
        by_name = self._nodes.by_name

        def rank(node: NodeView) -> Rank | None:
            queue = near.get(node.name)
            if queue is None or not node.fits(requirements):
                return None
            entry = queue.head()
            return entry[0], entry[1], (node.used_cpus if idle_first else 0), entry[2], node.index

        def candidates() -> Iterable[NodeView]:
            return (by_name[name] for name in near if name in by_name)

        group.nearby = Places(self._nodes, rank, candidates)
        return group.nearby

    def _look_near(self, nearby: Places, names: Iterable[str]) -> None:
        by_name = self._nodes.by_name
        for name in names:
            node = by_name.get(name)
            if node is not None:
                nearby.look(node)
