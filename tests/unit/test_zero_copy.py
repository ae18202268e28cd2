"""What goes to the store is written once, and what comes out of it is not copied: told by addresses and by bytes."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.data import adoption, picklers, spilled
from penstock.data.adoption import address
from penstock.data.segments import Access, Segments
from penstock.data.serializer import LARGE, dump, dump_stream, load
from penstock.errors import SerializationError
from penstock.model.data import Piece, Value


class Store(Segments):
    """A store that remembers what it has mapped and how much was written to it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder), str(folder), 1)
        self.mapped: list[tuple[int, int]] = []
        self.written = 0

    def map(self, *args: Any, **options: Any) -> Any:
        mapping = super().map(*args, **options)
        start = address(mapping.view)
        self.mapped.append((start, start + len(mapping.view)))
        return mapping

    def holds_bytes_of(self, exporter: Any) -> bool:
        start = exporter.__array_interface__["data"][0] if isinstance(exporter, np.ndarray) else address(exporter)
        return any(low <= start < high for low, high in self.mapped)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    store = Store(tmp_path)
    plain = os.pwrite

    def counting(descriptor: int, data: Any, offset: int) -> int:
        written = plain(descriptor, data, offset)
        store.written += written
        return written

    monkeypatch.setattr(spilled.os, "pwrite", counting)
    yield store
    store.close()


LONG = 20_000
RECORDS = np.zeros(LONG, dtype=[("key", "i4"), ("value", "f8", 3)])
RECORDS["key"] = np.arange(LONG)

ARRAYS = {
    "C order": np.arange(2.0 * LONG).reshape(2, -1),
    "Fortran order": np.asfortranarray(np.arange(2.0 * LONG).reshape(2, -1)),
    "every second": np.arange(2.0 * LONG)[::2],
    "backwards": np.arange(1.0 * LONG)[::-1],
    "columns of a table": np.arange(4.0 * LONG).reshape(-1, 4)[:, 1:3],
    "records": RECORDS,
    "a field of records": RECORDS["value"],
    "dates": np.arange(LONG).astype("datetime64[s]"),
    "dates, backwards": np.arange(LONG).astype("datetime64[s]")[::-1],
    "lengths of time": np.arange(LONG).astype("timedelta64[ns]"),
    "text of fixed length": np.full(LONG, "word"),
    "big-endian": np.arange(LONG, dtype=">i8"),
    "one value, repeated": np.broadcast_to(np.float64(1.5), (LONG,)),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_array_is_written_once_and_read_where_it_lies(name: str, store: Store) -> None:
    array = ARRAYS[name]
    value = dump(array, store, "it")
    assert store.written == array.nbytes
    found = load(value, store)
    assert found.dtype == array.dtype and np.array_equal(found, array)
    assert store.holds_bytes_of(found)
    assert not found.flags.writeable
    assert found.flags.f_contiguous == (name == "Fortran order" or found.ndim == 1)


@pytest.mark.parametrize(
    "array",
    [np.zeros((0, 3)), np.array(5.0), np.arange(5), np.arange(10)[::3], np.array([[1, None], ["x", 2]], dtype=object)],
    ids=["empty", "scalar", "short", "short, strided", "objects"],
)
def test_array_that_is_small_or_of_objects_travels_in_the_stream(array: Any, store: Store) -> None:
    value = dump(array, store, "it")
    assert type(value.data) is bytes and store.written == 0
    found = load(value, store)
    assert found.shape == array.shape and found.dtype == array.dtype and np.array_equal(found, array)


def test_subclasses_keep_their_type_and_arrays_are_found_inside_of_other_objects(store: Store) -> None:
    masked = np.ma.masked_array(np.arange(1.0 * LONG), mask=np.arange(LONG) % 2 == 0)
    found = load(dump(masked, store, "it"), store)
    assert type(found) is np.ma.MaskedArray and np.ma.allequal(found, masked)
    half = load(dump({"half": np.arange(1.0 * LONG)[::2], "whole": [np.arange(LONG)]}, store, "it"), store)
    assert store.holds_bytes_of(half["half"]) and store.holds_bytes_of(half["whole"][0])


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_bytes_are_written_once_and_copied_once_when_read(kind: Any, store: Store) -> None:
    content = kind(os.urandom(1 << 20))
    value = dump(content, store, "it")
    assert 1 << 20 <= store.written < (1 << 20) + 100
    found = load(value, store)
    assert type(found) is kind and found == content
    assert not store.holds_bytes_of(found)  # such objects own their memory


def test_long_bytes_are_not_copied_on_the_way_to_the_store(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    content, other = os.urandom(1 << 20), bytearray(1 << 20)
    parts: list[Any] = []
    plain = store.write
    monkeypatch.setattr(store, "write", lambda buffers: parts.extend(buffers) or plain(buffers))
    dump([content, other], store, "it")
    [stream] = parts
    assert any(part is content for part in stream) and any(part is other for part in stream)


@pytest.mark.parametrize(
    "view",
    [
        memoryview(bytes(range(256)) * 400),
        memoryview(np.arange(20_000.0)),
        memoryview(np.arange(20_000.0).reshape(2, -1)),
        memoryview(np.arange(40_000.0))[::2],
        memoryview(b"abc"),
        memoryview(b""),
        memoryview(np.zeros(0)),
    ],
    ids=["bytes", "numbers", "matrix", "strided", "short", "empty", "no numbers"],
)
def test_memory_view_comes_back_as_one(view: memoryview, store: Store) -> None:
    found = load(dump(view, store, "it"), store)
    assert type(found) is memoryview and (found.format, found.shape) == (view.format, view.shape)
    assert found.tolist() == view.tolist()
    assert found.readonly
    assert store.holds_bytes_of(found) == (view.nbytes > LARGE)


def test_memory_view_of_records_is_refused_by_name(store: Store) -> None:
    with pytest.raises(SerializationError, match="the result cannot be pickled.*memoryview of format"):
        dump(memoryview(RECORDS), store, "the result")


def test_buffers_can_be_written_where_that_was_asked_for(store: Store) -> None:
    value = dump(np.zeros(LONG), store, "it")
    copy = load(value, store, Access.COPY)
    copy += 1
    assert load(value, store).sum() == 0
    load(value, store, Access.IN_PLACE, {})[:] = 2
    assert load(value, store).sum() == 2 * LONG


def test_large_stream_in_frames_is_one_piece(store: Store) -> None:
    content = {number: str(number) for number in range(30_000)}
    value = dump(content, store, "it")
    assert type(value.data) is Piece and value.buffers == ()
    assert load(value, store) == content
    assert load(value, store, slots=True) == content  # by way of a file, as calls with slots are read
    both = dump([content, np.arange(LONG), b"x" * 8 * LONG], store, "it")
    found = load(both, store, slots=True)
    assert found[0] == content and found[2] == b"x" * 8 * LONG and store.holds_bytes_of(found[1])


def test_types_registered_with_copyreg_are_heard(store: Store) -> None:
    import copyreg

    class Temperature:
        def __init__(self, degrees: float) -> None:
            self.degrees = degrees

    dump(Temperature(1.0), store, "it")  # picklers that are kept know nothing of it yet
    copyreg.pickle(Temperature, lambda one: (float, (one.degrees,)))  # type: ignore[arg-type, return-value]
    try:
        assert load(dump(Temperature(20.0), store, "it"), store) == 20.0
    finally:
        del copyreg.dispatch_table[Temperature]
        picklers._reducers.pop(Temperature, None)


class Nested:
    """Pickles another object while it is being pickled."""

    def __reduce__(self) -> Any:
        return list, (dump_stream([1, np.arange(3)], "inner")[0],)


class Broken:
    def __reduce__(self) -> Any:
        raise RuntimeError("no")


def test_pickler_in_use_or_interrupted_is_not_used_again(store: Store) -> None:
    assert load(dump([Nested(), Nested()], store, "it"), store)[0][:2] == [0x80, 5]
    for _ in range(3):
        with pytest.raises(SerializationError, match="RuntimeError: no"):
            dump([np.arange(3), Broken()], store, "it")
        assert load(dump([np.arange(3), 5], store, "it"), store)[1] == 5


def test_objects_are_not_kept_alive_by_picklers(store: Store) -> None:
    import weakref

    array = np.arange(5)
    gone = weakref.ref(array)
    dump([array], store, "it")
    del array
    assert gone() is None


# --- adoption -------------------------------------------------------------------------------------------------------


def mapped(value: Value, store: Store) -> tuple[Any, list[Any]]:
    """A value's array, and the mapping that it lies in."""
    [piece] = value.pieces()
    mapping = store.map(piece.segment, spilled=False, access=Access.READ).view
    return np.frombuffer(mapping, count=piece.size // 8), [(piece.segment, False, mapping)]


def adopted(arrays: list[Any], maps: list[Any]) -> list[Piece | None]:
    return adoption.adopted([pickle.PickleBuffer(array).raw() for array in arrays], {}, maps)


def test_buffer_in_a_mapping_is_the_piece_that_it_is(store: Store) -> None:
    array, maps = mapped(dump(np.arange(1.0 * LONG), store, "it"), store)
    [segment] = [one[0] for one in maps]
    whole, part, other = adopted([array, array[1_000:11_000], np.zeros(LONG)], maps)
    assert whole == Piece(segment, False, 0, 8 * LONG)
    assert part is None  # it would change with the whole
    assert adopted([array[1_000:11_000]], maps) == [Piece(segment, False, 8_000, 80_000)]
    assert other is None
    assert np.array_equal(load(Value(dump_stream(array, "it")[0], (whole,)), store), array)


def test_small_part_of_a_segment_does_not_keep_all_of_it(store: Store) -> None:
    array, maps = mapped(dump(np.arange(1.0 * LONG), store, "it"), store)
    eighth = LONG // 8
    assert adopted([array[: eighth - 1]], maps) == [None]
    assert adopted([array[:eighth]], maps) != [None]
    assert None not in adopted([array[:2_000], array[3_000:5_000]], maps)  # together they are worth it
