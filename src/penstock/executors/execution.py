"""Carry out one attempt in this process: rebuild the arguments, call the function, collect what it made.

Shared by worker processes and by the inline executor, so that debugging in the main program's own thread meets the
same copies, the same read-only arrays and the same errors as running in parallel.
"""

from __future__ import annotations

import inspect
import reprlib
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from penstock.data.segments import Access, SegmentLost, Segments
from penstock.data.serializer import NONE, InPlace, dump, dump_stream, load
from penstock.data.slots import ElementFailed, FailedElement, Slots, current
from penstock.errors import SerializationError
from penstock.executors.coroutines import plain
from penstock.executors.early import Channel, Mismatch, Possible, following
from penstock.executors.inside import depth
from penstock.executors.lost_inputs import unreadable
from penstock.executors.nested import forget_unlooked, raise_unlooked
from penstock.executors.outside import Stance, watch
from penstock.executors.strict import GlobalWatch, InputWatch
from penstock.executors.tracebacks import describe, is_of_body
from penstock.executors.updated import Updated
from penstock.executors.wire import STREAM, Define, Done, Error, Run, by_items
from penstock.executors.written_files import Layers, WrittenFiles, is_for_want_of_room
from penstock.model.data import FileRef, Slot, Value
from penstock.model.tasks import Failure, FailureKind

if TYPE_CHECKING:
    from penstock.data.parts import Parts
    from penstock.executors.read_cache import ReadCache
    from penstock.executors.stream_files import AttemptStreams

__all__ = ["Function", "carry_out", "define"]


class Function:
    """A function as this process knows it."""

    def __init__(
        self,
        body: Callable[..., Any],
        name: str,
        returns: int,
        parameters: list[str],
        ahead: int = 0,
        *,
        private: bool = False,
    ) -> None:
        self.body = body
        #: calls it
        self.called = body
        self.name = name
        self.returns = returns
        #: how many outputs of a stream may be unused before it is held back; 0 is without limit
        self.ahead = ahead
        #: its body yields its outputs
        self.generator = inspect.isgeneratorfunction(body)
        #: its outputs are only those that it hands over
        self.hands_over = self.generator or returns == STREAM
        #: what it returns, for messages
        self.returned = f"the value that task {name} returned"
        #: how it may use arrays among its arguments
        self.access = Access.COPY if private else Access.READ
        self._parameters = parameters

    def parameter(self, place: object) -> str:
        """The name of an argument, for messages."""
        if isinstance(place, int) and place < len(self._parameters):
            return repr(self._parameters[place])
        return repr(place)


def define(message: Define, segments: Segments) -> Function:
    """Rebuild a function from its code, or stand in one that says why it cannot be."""
    try:
        body = plain(load(message.code, segments))
        raise_unlooked()  # of tasks that its module called when it was imported just now
    except BaseException as error:
        forget_unlooked()
        reason = error

        def body(*args: Any, **kwargs: Any) -> Any:
            raise SerializationError(
                f"the code of task {message.name} cannot be loaded in a worker process: "
                f"{type(reason).__name__}: {reason}"
            ) from reason

    return Function(body, message.name, message.returns, message.parameters, message.ahead, private=message.private)


#: what of ``current`` belongs to a task, when there is none and when one begins
_OF_NO_TASK: dict[str, Any] = dict.fromkeys(
    ("slots", "loaded", "written", "staged", "unfilled", "mapped", "building", "built", "parts")
)


def carry_out(
    run: Run,
    function: Function,
    segments: Segments,
    layers: Layers,
    *,
    strict: bool,
    channel: Channel | None = None,
    alone: bool = False,
    cache: ReadCache | None = None,
    stance: Stance | None = None,
) -> Done | Error:
    """Run one attempt and say how it ended; never raises.

    What the body hands over before its end goes to ``channel``. ``alone``: nothing else runs in this process.
    ``cache`` has objects that earlier tasks read. ``stance`` undoes what an item of a map changes around it.
    """
    started = time.perf_counter()
    # What this thread is at, as a plain dict: to go through the object would be felt by short tasks.
    here = current.__dict__
    outside = _OF_NO_TASK
    if alone:
        here["mapped"] = []
        here["building"] = segments
    else:  # others may drop a result unseen, so that it must refer to segments of its own: nothing is ``mapped``
        depth.tasks += 1
        outside = {**outside, "slots": current.slots, "loaded": current.loaded, "written": current.written}
        here["mapped"] = here["building"] = None
    here["loaded"] = {}
    files: WrittenFiles | None = None
    streams: AttemptStreams | None = None
    if run.outputs or run.stream is not None:
        files = WrittenFiles(run, function, segments, layers)
        if run.stream is not None:
            streams = _streams(run, function, segments, files, channel)
    release: Possible | None = None
    if (function.returns != -1 or run.outputs) and run.items < 0:
        release = Possible(run, function, segments, files, channel)
        following(release, alone=alone)
    try:
        if run.items >= 0:
            outputs: list[Slot | None] = list(_carry_out_items(run, function, segments, stance))
        elif run.outputs or (strict and function.access is Access.READ):
            files = files or WrittenFiles(run, function, segments, layers)
            outputs = _carry_out_call(run, function, segments, files, release, streams, cache, strict=strict)
        else:
            if run.slots:
                here["slots"] = _filled(run, segments, {}, cache)
                args, kwargs = load(run.args, segments, function.access, slots=True)
                if here.get("unfilled") is not None:
                    here["unfilled"].fill()
            else:
                args, kwargs = load(run.args, segments, function.access)
            result = function.called(*args, **kwargs)
            if function.generator and release is not None:
                result = release.get().run(result)
            raise_unlooked()
            if here["loaded"]:
                _stage_objects((), function, strict=strict)
            if here.get("built") is not None:
                here["built"].offer()
            outputs = _returned(result, function, segments, release)
            del result, args, kwargs  # who has an array of the store after this has kept it
            if streams is not None:
                streams.await_ends()
        if here.get("built") is not None:
            here["built"].finish(outputs)
        staged = here.get("staged")
        if staged is not None and files is None:
            files = WrittenFiles(run, function, segments, layers)  # none, but states are delivered with files
        if files is not None and (files.finished or staged is not None):
            files.deliver(outputs, started, channel, staged)
        return Done(run.task, run.attempt, outputs, time.perf_counter() - started)
    except BaseException as error:
        if files is not None:
            files.withdraw()
        if current.built is not None:
            current.built.withdraw()
        if current.staged is not None:
            current.staged.withdraw()
        if current.parts is not None:
            current.parts.withdraw()
        if isinstance(error, SegmentLost) and not is_of_body(error):
            lost = unreadable(error, (run.args, *run.slots), segments)
            return Error(run.task, run.attempt, lost, time.perf_counter() - started)
        failure = replace(_failure(error, function), arguments=_arguments(run, segments))
        if run.layer and is_for_want_of_room(error):
            failure = replace(failure, kind=FailureKind.STORAGE_FULL)
        return Error(run.task, run.attempt, failure, time.perf_counter() - started)
    finally:
        if not alone:
            depth.tasks -= 1
        here.update(outside)
        if release is not None:
            following(None, alone=alone)
        if streams is not None:
            streams.leave()
        forget_unlooked()
        if files is not None:
            files.clear()


def _streams(
    run: Run, function: Function, segments: Segments, files: WrittenFiles, channel: Channel | None
) -> AttemptStreams:
    from penstock.executors.stream_files import AttemptStreams

    return AttemptStreams(run, function, segments, files, channel)


def _parts(run: Run, segments: Segments) -> Parts:
    from penstock.data.parts import Parts

    return Parts(segments, run.task)


def _arguments(run: Run, segments: Segments) -> str:
    """The arguments in short, for the message; whatever goes wrong here must not hide what went wrong before."""
    try:
        loaded = load(run.args, segments, slots=bool(run.slots or run.outputs))
        if run.items >= 0:
            return ""
        *_, args, kwargs = loaded
        return ", ".join([*map(reprlib.repr, args), *(f"{name}={reprlib.repr(kwargs[name])}" for name in kwargs)])
    except Exception:
        return ""


def _failure(error: BaseException, function: Function) -> Failure:
    if isinstance(error, ElementFailed):
        return Failure(
            FailureKind.DEPENDENCY,
            error.failure.message,
            error.failure.exception,
            error.failure.traceback,
            (*error.failure.path, function.name),
        )
    return describe(error, function.name)


def _carry_out_call(
    run: Run,
    function: Function,
    segments: Segments,
    files: WrittenFiles,
    release: Possible | None,
    streams: AttemptStreams | None,
    cache: ReadCache | None,
    *,
    strict: bool,
) -> list[Slot | None]:
    in_place: InPlace = {}
    current.slots = _filled(run, segments, in_place, cache)
    if any(output.use is not None for output in run.outputs):
        current.parts = _parts(run, segments)
    current.written = files.place()
    access = Access.IN_PLACE if run.args_in_place else Access.COPY
    *_, args, kwargs = load(run.args, segments, access, in_place, slots=True, writable=run.writable_buffers)
    if current.unfilled is not None:
        current.unfilled.fill()
    arguments: dict[int | str, Any] = {**dict(enumerate(args)), **kwargs}
    if streams is not None:
        streams.begin_writing()
    updated = Updated(function, arguments, run.outputs)
    watches: list[InputWatch | GlobalWatch] = []
    if strict:
        watches.append(InputWatch(function.name, function.body, args, kwargs, run.outputs, updated.objects()))
        watches.append(GlobalWatch(function.name, function.body))
    if current.parts is not None:
        current.parts.begin()
    result = function.called(*args, **kwargs)
    if function.generator and release is not None:
        result = release.get().run(result)
    raise_unlooked()
    for one in watches:
        one.compare()
    files.ensure_left_alone()
    objects = updated.objects()
    if current.loaded:
        _stage_objects(objects, function, strict=strict)
    if current.built is not None:
        current.built.offer()
    outputs = _returned(result, function, segments, release, in_place)
    if streams is not None:
        streams.await_ends()
    for index, (output, obj) in enumerate(zip(run.outputs, objects, strict=True)):
        if output.file is not None:
            over = release is not None and release.get().is_over(index)
            finished = None if over else files.finish(output)
            outputs.append(finished if finished is None or streams is None else streams.judge(finished))
        elif output.use is not None:
            outputs.append(NONE)
        else:
            what = f"argument {function.parameter(output.path[0])} of task {function.name}, after the task,"
            outputs.append(dump(obj, segments, what, in_place))
    return outputs


def _filled(run: Run, segments: Segments, in_place: InPlace, cache: ReadCache | None) -> Slots:
    """The slots of an attempt."""
    contents, changed_in_place, writable = run.slots, frozenset(run.in_place), frozenset(run.writable)

    def fill(index: int) -> Any:
        content = contents[index]
        if type(content) is FileRef:
            return content.path
        assert type(content) is Value
        if index in changed_in_place:
            return load(content, segments, Access.IN_PLACE, in_place, inside=True)
        current.writable = current.updating = index in writable
        try:
            if cache is not None and not current.writable:
                return cache.object(content, lambda: load(content, segments, inside=True))
            return load(content, segments, Access.COPY if current.writable else Access.READ, inside=True)
        finally:
            current.writable, current.updating = True, False

    return Slots(len(contents), fill)


def _stage_objects(updated: Sequence[Any], function: Function, *, strict: bool) -> None:
    """Write the persistent objects that the task has changed where nobody sees them before all else has succeeded."""
    from penstock.persistent.context import Outgoing

    current.staged = Outgoing(function.name, updated, strict=strict)


def _returned(
    result: Any, function: Function, segments: Segments, release: Possible | None, in_place: InPlace | None = None
) -> list[Slot | None]:
    """The return value as one value per declared return."""
    if release is not None:
        if function.hands_over:
            return release.get().rest(result)
        if release.release is not None and release.release.used:
            return release.release.rest(result)
    returns, what = function.returns, function.returned
    if result is None and returns <= 1:
        return [NONE]
    if returns == 1 or returns == -1:
        return [dump(result, segments, what, in_place)]
    if returns == 0:
        raise Mismatch(f"task {function.name} declares returns=0 but returned a value of type {type(result).__name__}")
    if not isinstance(result, tuple | list):
        raise Mismatch(
            f"task {function.name} declares returns={function.returns} "
            f"but returned one value of type {type(result).__name__}"
        )
    if len(result) != function.returns:
        raise Mismatch(f"task {function.name} declares returns={function.returns} but returned {len(result)} values")
    return [dump(part, segments, what, in_place) for part in result]


def _carry_out_items(run: Run, function: Function, segments: Segments, stance: Stance | None) -> tuple[Value, Value]:
    """A piece of a map: call the function on each item, keep going past those that fail.

    Gives the results, with a mark where one failed, and the failures by position.
    """
    results: list[Any] = []
    failures: dict[int, Failure] = {}
    items, body, append = by_items(load(run.args, segments)), function.called, results.append
    changes = watch.changes
    changes.clear()
    while True:
        try:
            # The loop is inside, because entering a try for each of a million items would be felt.
            for item in items:
                if changes and stance is not None:
                    stance.back()
                    changes.clear()
                append(body(*item))
            break
        except Exception as error:
            failures[len(results)] = describe(error, function.name)
            append(FailedElement(failures[len(results)]))
    what = f"a value that task {function.name} returned"
    if current.loaded:
        _stage_objects((), function, strict=False)
    if current.built is not None:
        current.built.offer()
    try:
        packed = dump(results, segments, what)
    except SerializationError:
        for position, result in enumerate(results):
            try:
                dump_stream(result, what)
            except SerializationError as error:
                failures[position] = describe(error, function.name)
                results[position] = FailedElement(failures[position])
        packed = dump(results, segments, what)
    return packed, dump(failures, segments, "failures") if failures else NONE
