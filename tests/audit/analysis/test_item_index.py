"""Positions of items by hashes of their ids."""

from __future__ import annotations

import os
import tracemalloc

import numpy as np
import pytest

from audit.analysis.rows.item_index import ItemIndex, positions_of
from audit.analysis.rows.packed import PackedRows
from audit.spool import Room, mapped
from backends.errors import ConfigError
from suites.base import IdentifiedInterval, Row


def ids_of(*given: str):
    return lambda: iter(given)


def test_an_index_is_a_mapping_in_order():
    index = ItemIndex(ids_of("b", "", "half a character \ud83d", "a#"))
    assert dict(index) == {"b": 0, "": 1, "half a character \ud83d": 2, "a#": 3}
    assert ("a#" in index, "a" in index, 3 in index, index.get("x"), len(index)) == (True, False, False, None, 4)
    with pytest.raises(KeyError):
        index["a"]


def test_equal_indices_are_shared_and_others_are_not():
    first = positions_of(ids_of("a", "b"))
    assert positions_of(ids_of("a", "b"), first) is first
    for other in (("b", "a"), ("a",), ("a", "b", "c"), ("a", "c")):
        assert dict(positions_of(ids_of(*other), first) or {}) == {item: at for at, item in enumerate(other)}


def test_ids_that_occur_twice_have_no_index():
    assert positions_of(ids_of("a", "b", "a")) is None
    rows = PackedRows.of(Row(item, {}, {"x": IdentifiedInterval.exact(1.0)}) for item in ("a", "b", "a"))
    assert dict(rows.positions) == {"a": 0, "b": 1}


def test_an_item_takes_few_bytes_of_an_index():
    """It took 150, in a dict with its id."""
    n = 50_000
    tracemalloc.start()
    try:
        index = ItemIndex(lambda: (f"template {i % 25}/occupation {i}" for i in range(n)))
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert index["template 7/occupation 49982"] == 49982
    assert held < 30 * n


def test_a_mapped_array_is_what_it_was():
    for array in (np.arange(10.0), np.arange(400_000, dtype=np.intp).reshape(-1, 2), np.zeros(0)):
        again = mapped(array)
        assert (again.tobytes(), again.dtype, again.shape) == (array.tobytes(), array.dtype, array.shape)


def test_many_mapped_arrays_need_few_open_files():
    before = len(os.listdir("/proc/self/fd"))
    arrays = [mapped(np.full(200_000, float(i))) for i in range(100)]
    assert len(os.listdir("/proc/self/fd")) - before < 6
    assert [array[-1] for array in arrays] == [float(i) for i in range(100)]
    arrays[3][0] = 7.0
    assert (arrays[2][-1], arrays[4][0]) == (2.0, 4.0)


def test_a_full_temporary_folder_is_told_before_it_is_written(monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    monkeypatch.setattr("audit.spool._room", Room())
    with pytest.raises(ConfigError, match=r"TMPDIR.*cannot be put aside there: No space left"):
        mapped(np.zeros(2**20))
