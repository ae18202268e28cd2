"""Tables of pandas and Arrow: their columns are read in the store, where the task that made them has put them.

These libraries take a while to import; only this file does it, and only when its tests run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.data.adoption import address
from penstock.data.segments import Segments
from penstock.data.serializer import dump, load

LONG = 20_000


@pytest.fixture(scope="module")
def pandas() -> Any:
    return pytest.importorskip("pandas")


@pytest.fixture(scope="module")
def arrow() -> Any:
    return pytest.importorskip("pyarrow")


class Travelled:
    """An object that went through the store, and what of it lies there."""

    def __init__(self, obj: Any, folder: Path) -> None:
        segments = Segments(str(folder), str(folder), 1)
        value = dump(obj, segments, "it")
        #: bytes that were written
        self.size = sum(path.stat().st_size for path in folder.glob("s1*"))
        ranges: list[tuple[int, int]] = []
        plain = segments.map

        def mapping(*args: Any, **options: Any) -> Any:
            mapped = plain(*args, **options)
            ranges.append((address(mapped.view), address(mapped.view) + len(mapped.view)))
            return mapped

        segments.map = mapping  # type: ignore[method-assign]
        self.obj = load(value, segments)
        self._ranges = ranges
        segments.close()

    def holds(self, place: Any) -> bool:
        start = place.__array_interface__["data"][0] if isinstance(place, np.ndarray) else place
        return any(low <= start < high for low, high in self._ranges)


def frame(pandas: Any) -> Any:
    numbers = np.arange(LONG)
    return pandas.DataFrame(
        {
            "a": numbers * 1.5,
            "b": numbers * 2.5,
            "whole": numbers,
            "yes": numbers % 2 == 0,
            "day": pandas.date_range("2020-01-01", periods=LONG, freq="min"),
            "kind": pandas.Categorical.from_codes(numbers.astype("i4") % 300, categories=[f"k{i}" for i in range(300)]),
        }
    )


def test_blocks_of_a_frame_are_read_in_the_store(pandas: Any, tmp_path: Path) -> None:
    original = frame(pandas)
    travelled = Travelled(original, tmp_path)
    pandas.testing.assert_frame_equal(travelled.obj, original)
    for column in ("a", "b", "whole", "day"):
        assert travelled.holds(travelled.obj[column].to_numpy().view("i8")), column
    assert travelled.size < 1.1 * original.memory_usage(deep=True).sum()


def test_rows_and_columns_cut_out_of_a_frame_are_written_alone(pandas: Any, tmp_path: Path) -> None:
    rows = frame(pandas).iloc[5_000:15_000]
    travelled = Travelled(rows, tmp_path)
    pandas.testing.assert_frame_equal(travelled.obj, rows)
    assert travelled.holds(travelled.obj["a"].to_numpy())
    assert travelled.size < 1.2 * rows.memory_usage(deep=True).sum()


def test_strings_of_a_frame_that_are_arrow_arrays_are_read_in_the_store(
    pandas: Any, arrow: Any, tmp_path: Path
) -> None:
    original = pandas.DataFrame({"text": pandas.array([f"word {i}" for i in range(LONG)], dtype="string[pyarrow]")})
    travelled = Travelled(original, tmp_path)
    pandas.testing.assert_frame_equal(travelled.obj, original)
    [chunk] = arrow.chunked_array(travelled.obj["text"].array.__arrow_array__()).chunks
    assert all(travelled.holds(buffer.address) for buffer in chunk.buffers() if buffer is not None and buffer.size)


def test_strings_of_a_frame_that_are_objects_come_back(pandas: Any, tmp_path: Path) -> None:
    original = pandas.DataFrame({"text": np.array([f"word {i}" for i in range(LONG)], dtype=object)}, dtype=object)
    pandas.testing.assert_frame_equal(Travelled(original, tmp_path).obj, original)


def test_series_and_index_come_back_and_are_not_copied(pandas: Any, tmp_path: Path) -> None:
    series = pandas.Series(np.arange(1.0 * LONG), index=pandas.Index(np.arange(LONG) * 10), name="s")
    travelled = Travelled(series, tmp_path)
    pandas.testing.assert_series_equal(travelled.obj, series)
    assert travelled.holds(travelled.obj.to_numpy()) and travelled.holds(travelled.obj.index.to_numpy())


def tables(arrow: Any) -> dict[str, Any]:
    numbers = arrow.array(np.arange(LONG * 1.0))
    words = arrow.array([f"word {i}" for i in range(LONG)])
    gaps = arrow.array([None if i % 7 == 0 else i for i in range(LONG)])
    return {
        "numbers": numbers,
        "words": words,
        "with gaps": gaps,
        "slice": words[5_000:],
        "lists": arrow.array([[i, i + 1] for i in range(LONG)]),
        "dictionary": arrow.array(["a", "b"] * LONG).dictionary_encode(),
        "chunked": arrow.chunked_array([numbers, numbers]),
        "batch": arrow.record_batch({"numbers": numbers, "words": words}),
        "table": arrow.table({"numbers": numbers, "words": words}),
    }


def buffers_of(obj: Any) -> list[Any]:
    for parts in ("columns", "chunks"):
        if hasattr(obj, parts):
            return [buffer for part in getattr(obj, parts) for buffer in buffers_of(part)]
    return [buffer for buffer in obj.buffers() if buffer is not None]


@pytest.mark.parametrize(
    "name", ["numbers", "words", "with gaps", "slice", "lists", "dictionary", "chunked", "batch", "table"]
)
def test_arrow_data_is_written_once_and_read_in_the_store(name: str, arrow: Any, tmp_path: Path) -> None:
    original = tables(arrow)[name]
    travelled = Travelled(original, tmp_path)
    assert travelled.obj.equals(original)
    travelled.obj.validate(full=True)
    large = [buffer for buffer in buffers_of(travelled.obj) if buffer.size > 1 << 16]
    assert large and all(travelled.holds(buffer.address) for buffer in large)
    written = sum({buffer.address: buffer.size for buffer in buffers_of(original)}.values())
    assert travelled.size <= 2 * written  # the parts of a chunked array may be one and the same
    assert name in ("chunked",) or travelled.size <= 1.05 * written + 1024
