"""How objects are pickled: picklers that are kept for the next object, and types that travel better than by default.

A pickler hands its frames, and long byte strings as they are, to a sink. Nothing is joined there, so what is large is
copied once, to where it is stored. Arrays that are not contiguous, which NumPy would put into the stream, are gathered
and travel beside it like all others; so do memory views, which cannot be pickled at all otherwise.
"""

from __future__ import annotations

import copyreg
import functools
import io
import pickle
import sys
from collections.abc import Callable
from typing import Any

from penstock.data.admission import FREE, Admission, Claim, Overdrawn, estimate
from penstock.data.own_classes import leave_own_classes

__all__ = ["Pickled", "by_value", "names_main", "pickled", "pickled_specially"]

#: the stream in parts, the buffers beside it, and the claim on memory, which is released once they are stored
Pickled = tuple[list[bytes], list[pickle.PickleBuffer], Claim | None]

#: picklers of longer streams are dropped: their memory of objects met has grown, and would be cleared each time
_SHORT = 4096
_NEVER = 1 << 62
#: byte strings and texts from this length on are parts of their own; all else is in frames
_PAYLOAD = 64 * 1024
#: what a frame begins with, the first of a stream and all others
_FRAMES = (pickle.PROTO[0], pickle.FRAME[0])
#: how types are reduced: what copyreg knows, and ours
_reducers: dict[type, Callable[[Any], Any]] = {}
#: how many copyreg knew when we last asked
_known = -1


class Sink:
    """Takes what a pickler writes, and sees to it that the memory for it is claimed."""

    __slots__ = ("_limit", "admission", "buffers", "claim", "obj", "parts", "size")

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.buffers: list[pickle.PickleBuffer] = []
        #: what is being pickled, and who grants memory for it; None: nobody asks
        self.obj: object = None
        self.admission: Admission | None = None
        self.claim: Claim | None = None
        self.size = 0
        self._limit = FREE

    def write(self, part: bytes) -> None:
        """Take what comes next."""
        self.parts.append(part)
        self.size += len(part)
        if self.size > self._limit:
            self._limit = self._covered(self.size)

    def _covered(self, size: int) -> int:
        """How long the stream may get before we are asked again."""
        if self.admission is None:
            return _NEVER
        if self.claim is None:
            self.claim = self.admission.claim(max(2 * size, estimate(self.obj)))
        elif not self.claim.grow(2 * size):
            # To wait for more while holding something is how everybody ends up waiting.
            raise Overdrawn(size)
        return self.claim.covers

    def empty(self) -> None:
        """Forget what was written, and keep the claim."""
        self.parts.clear()
        self.buffers.clear()
        self.size = 0
        self._limit = FREE if self.claim is None else self.claim.covers

    def claim_anew(self, size: int) -> None:
        """Let the claim go and wait for one that is large enough."""
        assert self.claim is not None and self.admission is not None
        self.claim.release()
        self.claim = None
        self.claim = self.admission.claim(size)

    def release(self) -> None:
        """Give the claim back, if there is one."""
        if self.claim is not None:
            self.claim.release()
            self.claim = None


def new_pickler(sink: Sink, *, by_value: bool = False) -> pickle.Pickler:
    """A pickler into a sink; ``by_value`` carries code and classes that others cannot import."""
    if len(copyreg.dispatch_table) != _known:
        _learn_reducers()
    if by_value:
        return _by_value()(sink, 5, buffer_callback=sink.buffers.append)
    pickler = pickle.Pickler(sink, 5, buffer_callback=sink.buffers.append)
    pickler.dispatch_table = _reducers
    return pickler


@functools.cache
def _by_value() -> type[pickle.Pickler]:
    import cloudpickle

    leave_own_classes()

    class ByValue(cloudpickle.Pickler):  # type: ignore[misc]
        # It has a table as an attribute of the class, and looks at no other.
        dispatch_table = cloudpickle.Pickler.dispatch_table.new_child(_ours)

    return ByValue


def by_value(obj: object) -> bytes:
    """The pickle of a function or class that others cannot import, with all that it needs."""
    file = io.BytesIO()
    _by_value()(file, 5).dump(obj)
    return file.getvalue()


def _learn_reducers() -> None:
    """Take over what was registered with copyreg. NumPy registers something too, so its coming is never missed."""
    global _known
    _known = len(copyreg.dispatch_table)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        _ours[numpy.ndarray] = _reduce_array
    _reducers.update(copyreg.dispatch_table)
    _reducers.update(_ours)


class _Kept:
    """A pickler and its sink, for one small object after the other."""

    __slots__ = ("clear", "dump", "sink")

    def __init__(self) -> None:
        self.sink = Sink()
        pickler = new_pickler(self.sink)
        self.dump = pickler.dump
        self.clear = pickler.clear_memo


#: those that nobody is using
_spare: list[_Kept] = []


def pickled(obj: object, admission: Admission | None = None) -> Pickled:
    """Pickle an object. Making a pickler costs more than pickling most objects does, so there are some at hand."""
    if len(copyreg.dispatch_table) != _known:
        _learn_reducers()
    kept = _spare.pop() if _spare else _Kept()
    sink = kept.sink
    sink.admission, sink.obj = admission, obj
    try:
        kept.dump(obj)
    except Overdrawn as error:
        sink.claim_anew(2 * error.size)
        return _written(obj, sink, new_pickler)
    except BaseException:
        sink.release()
        raise
    parts, buffers = sink.parts, sink.buffers
    if len(parts) > 1 or len(parts[0]) > _SHORT:
        return parts, buffers, sink.claim
    kept.clear()
    sink.obj = None
    small = [parts.pop()], buffers.copy(), None
    buffers.clear()
    sink.size = 0
    _spare.append(kept)
    return small


def names_main(parts: list[bytes]) -> bool:
    """Whether a stream may refer to what the main program defines.

    Long byte strings and texts are not looked at: to search them takes longer than to copy them.
    """
    if len(parts) == 1:
        return b"__main__" in parts[0]
    return any(b"__main__" in part for part in parts if len(part) < _PAYLOAD or part[0] in _FRAMES)


def pickled_specially(
    obj: object,
    admission: Admission | None = None,
    *,
    by_value: bool,
    find: Callable[[Any], int | None] | None = None,
    watcher: Any = None,
) -> Pickled:
    """Pickle an object with references to slots wherever ``find`` knows one, however deep, or with code by value.

    ``find`` is asked about every object there is, numbers and strings too: what it costs is what pickling costs.
    ``watcher.buffers`` is the list of buffers while it grows.
    """
    sink = Sink()
    sink.admission, sink.obj = admission, obj
    if watcher is not None:
        watcher.buffers = sink.buffers

    def make(sink: Sink) -> pickle.Pickler:
        pickler = new_pickler(sink, by_value=by_value)
        if find is not None:
            pickler.persistent_id = find  # type: ignore[method-assign]  # an attribute costs less than a method
        return pickler

    return _written(obj, sink, make)


def _written(obj: object, sink: Sink, make: Callable[[Sink], pickle.Pickler]) -> Pickled:
    while True:
        sink.empty()
        try:
            make(sink).dump(obj)
            return sink.parts, sink.buffers, sink.claim
        except Overdrawn as error:
            sink.claim_anew(2 * error.size)
        except BaseException:
            sink.release()
            raise


# --- types ----------------------------------------------------------------------------------------------------------


def _reduce_array(array: Any) -> Any:
    """An array in pieces is gathered: NumPy would copy it into the stream, and out of it again."""
    flags, dtype = array.flags, array.dtype
    if dtype.kind in "mM":  # dates, of which NumPy makes no buffers
        return _dates, (array.view("i8"), dtype)
    if (flags.forc and flags.writeable) or dtype.hasobject:
        return array.__reduce_ex__(5)
    if not flags.forc:
        return array.copy("A").__reduce_ex__(5)
    from penstock.data.writable import changeable  # needs ctypes, which takes 9 ms to import

    return changeable(array).__reduce_ex__(5)


def _dates(numbers: Any, dtype: Any) -> Any:
    return numbers.view(dtype)


def _reduce_view(view: memoryview) -> Any:
    if len(view.format) != 1 or (view.nbytes == 0 and view.ndim != 1):
        raise TypeError(f"cannot pickle a memoryview of format {view.format!r} and shape {view.shape}")
    memory: Any = view.tobytes() if not view.contiguous else _memory(view)
    return _view, (pickle.PickleBuffer(memory), view.format, view.shape)


def _memory(view: memoryview) -> Any:
    """The bytes of a view. A PickleBuffer must not have the view itself: CPython crashes when both are garbage."""
    import ctypes

    from penstock.data.adoption import address

    memory: Any = (ctypes.c_char * view.nbytes).from_address(address(view))
    memory.owner = view
    return memory


def _view(buffer: Any, format: str, shape: tuple[int, ...]) -> memoryview:
    view = memoryview(buffer).cast("B")
    shaped: memoryview = view.cast(format, shape) if len(view) else view.cast(format)  # type: ignore[call-overload]
    return shaped


def _reduce_text_file(file: io.TextIOWrapper) -> Any:
    """cloudpickle would send a copy of what is in the file: nobody would see what is read or written there."""
    for name in ("stdout", "stderr"):
        if file is getattr(sys, name):
            return getattr, (sys, name)
    raise TypeError(
        f"cannot pickle the open file {getattr(file, 'name', '?')!r}; pass its path and open it in the task"
    )


#: ours alone
_ours: dict[type, Callable[[Any], Any]] = {memoryview: _reduce_view, io.TextIOWrapper: _reduce_text_file}
