"""Rows and responses that are packed come back as they were, and give the figures that they gave."""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import resource
import threading
from dataclasses import astuple, replace

import numpy as np
import pytest

from audit import spool
from audit.analysis.rows import table
from audit.analysis.rows.packed import BLOCK, PackedRows
from audit.analysis.rows.response_blocks import _MOST_OPEN, ItemResponse, ResponseBlocks
from audit.analysis.rows.table import RowTable
from audit.spool import Spool
from backends.errors import ConfigError
from suites.base import IdentifiedInterval, Row

LEVELS = ("a", "b", 1, True, 1.0, 0, False, None, "é\ud83d", 2.5)


def numbers(rng: random.Random) -> IdentifiedInterval:
    low = rng.choice((0.0, -0.0, rng.random(), 5e-324))
    return rng.choice(
        (
            IdentifiedInterval.exact(low),
            IdentifiedInterval(None, low, low + 1),
            IdentifiedInterval(low, low - rng.random(), low + 1),
            IdentifiedInterval(0.0, -0.0, 0.0),
            IdentifiedInterval.exact(1),
            IdentifiedInterval(1, 0, 2.0),
            IdentifiedInterval(low, low, low, draw_variance=rng.random()),
            IdentifiedInterval(low, low, low + 1, draw_variance=None),
        )
    )


def mixed_rows(n: int, seed: int = 0) -> list[Row]:
    """Rows of several shapes: missing, derived, with memberships, with levels that are equal but not the same."""
    rng = random.Random(seed)
    rows = []
    for i in range(n):
        factors = {name: rng.choice(LEVELS) for name in ("x", "y", "z")[: rng.randint(0, 3)]}
        if rng.random() < 0.2:
            factors = dict(reversed(factors.items()))
        values = {name: numbers(rng) for name in ("p", "q")[: rng.randint(0, 2)]}
        row = Row(f"i{i}", factors, values)
        if not values and rng.random() < 0.5:
            row = replace(row, missing=rng.choice(("refusal", "", "not asked")))
        if rng.random() < 0.1:
            row = replace(row, sources=(f"i{i}a", f"i{i}b"), memberships={"member": ("m1", "m2")})
        rows.append(row)
    return rows


def exactly(row: Row) -> str:
    """A row with the type and the sign of each part."""
    return repr(row)


def test_packed_rows_come_back_with_types_and_signs() -> None:
    rows = mixed_rows(2 * BLOCK + 7)
    packed = PackedRows.of(iter(rows))
    assert list(map(exactly, packed)) == list(map(exactly, rows))
    assert (len(packed), exactly(packed[BLOCK]), exactly(packed[-1])) == (
        len(rows),
        exactly(rows[BLOCK]),
        exactly(rows[-1]),
    )
    assert list(map(exactly, packed[5:9])) == list(map(exactly, rows[5:9]))
    with pytest.raises(IndexError):
        packed[len(rows)]


def test_no_rows_are_packed_to_none() -> None:
    assert (list(PackedRows.of([])), len(PackedRows.of([]))) == ([], 0)
    assert RowTable(PackedRows.of([])).quantity("p").value.size == 0


def test_table_of_packed_rows_is_that_of_the_rows() -> None:
    rows = mixed_rows(3 * BLOCK)
    plain, packed = RowTable(rows), RowTable(PackedRows.of(rows))
    reasons = {row.missing for row in rows}
    for reason in reasons:
        assert np.array_equal(plain.missing_for(reason.__eq__), packed.missing_for(reason.__eq__))
    assert np.array_equal(plain.missing, [row.missing is not None or not row.values for row in rows])
    assert [list(map(repr, plain.levels.names(of))) for of in "xyz"] == [
        list(map(repr, packed.levels.names(of))) for of in "xyz"
    ]
    for name in ("p", "q"):
        for end in ("value", "low", "high"):
            ours, theirs = (getattr(table.quantity(name), end) for table in (plain, packed))
            assert ours.tobytes() == theirs.tobytes()
        ours, theirs = (table.quantity(name).draw_variance for table in (plain, packed))
        assert ours is not None
        assert theirs is not None
        assert ours.tobytes() == theirs.tobytes()
        drawn = {i: row.values[name].draw_variance for i, row in enumerate(rows) if name in row.values}
        assert {i: None if math.isnan(ours[i]) else ours[i] for i in drawn} == drawn
    for factor in "xyz":
        assert np.array_equal(plain.codes(factor), packed.codes(factor))
    used = np.ones(len(rows), dtype=np.bool_)
    assert np.array_equal(plain.belongs("member", used), packed.belongs("member", used))


def test_true_differs_from_one_and_one_point_zero_does_not() -> None:
    rows = [Row(f"i{i}", {"x": level}, {}) for i, level in enumerate((1, True, 1.0, False, 0, math.nan, math.nan))]
    for given in (rows, PackedRows.of(rows)):
        assert RowTable(given).codes("x").tolist() == [0, 1, 0, 2, 3, 4, 4]


def test_second_row_of_an_item_is_refused() -> None:
    rows = [Row(name, {}, {}) for name in ("a", "b", "a")]
    for given in (rows, PackedRows.of(rows)):
        with pytest.raises(ValueError, match="item 'a' has more than one row"):
            RowTable(given)


def response(i: int, keys: tuple[str, ...] | None = None, version: int = 0) -> ItemResponse:
    row = Row(f"i{i}", {"x": i % 3}, {"p": IdentifiedInterval.exact(float(version))})
    return ItemResponse(f"i{i}", row.factors, keys or (f"a1-{i:040x}", f"a1-{i + 1:040x}"), row)


def test_responses_in_any_order_are_kept_with_their_keys() -> None:
    places = list(range(2 * _MOST_OPEN))
    random.Random(1).shuffle(places)
    blocks = ResponseBlocks()
    for i in places:
        blocks.put((i,), response(i))
        assert blocks[(i,)].item_id == f"i{i}"
    for i in places[::7]:  # after its block was packed
        blocks.put((i,), response(i, version=2))
    late = set(places[::7])
    assert list(blocks) == [((i,), response(i, version=2 * (i in late))) for i in sorted(places)]


def test_follow_ups_stand_behind_their_block() -> None:
    blocks = ResponseBlocks()
    for i in range(BLOCK + 1):
        blocks.put((i, 0), response(10_000 + i))
        blocks.put((i,), response(i))
    packed = blocks.packed()
    assert [one.size for one in packed] == [2 * BLOCK, 2]
    assert [place for place, _ in blocks] == [
        *((i,) for i in range(BLOCK)), *((i, 0) for i in range(BLOCK)), (BLOCK,), (BLOCK, 0)
    ]  # fmt: skip


def test_removed_responses_are_gone_from_packed_blocks() -> None:
    blocks = ResponseBlocks()
    for i in range(5):
        blocks.put((i,), response(i))
    blocks.packed()
    blocks.remove([(i,) for i in range(1, 5)])
    assert [place for place, _ in blocks] == [(0,)]
    blocks.remove([(0,)])
    assert blocks.packed() == []


def test_keys_that_are_no_hashes_are_kept_as_they_are() -> None:
    for keys in (("k1", ""), (f"a1-{'A' * 40}",), ()):
        blocks = ResponseBlocks()
        blocks.put((0,), replace(response(0), keys=keys))
        blocks.packed()
        assert blocks[(0,)].keys == keys


def test_factors_that_differ_from_the_rows_are_kept() -> None:
    blocks = ResponseBlocks()
    blocks.put((0,), replace(response(0), factors={"x": False}))  # the row has 0, which is equal
    blocks.packed()
    assert (repr(blocks[(0,)].factors), repr(blocks[(0,)].row.factors)) == ("{'x': False}", "{'x': 0}")


def test_spool_in_a_file_gives_back_what_several_threads_add() -> None:
    spool, found = Spool(most_in_memory=100), {}

    def add(number: int) -> None:
        for i in range(200):
            data = bytes([number]) * i
            found[number, i] = (spool.add(data), data)
            assert spool.get(found[number, i][0]) == data

    threads = [threading.Thread(target=add, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 800
    assert all(spool.get(slot) == data for slot, data in found.values())


@contextlib.contextmanager
def files_of_at_most(size):
    """No file can be longer, as on a disk that is full."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_loses_nothing_that_was_put_aside():
    spool = Spool(most_in_memory=5000)
    first = spool.add(b"a" * 4000)
    with files_of_at_most(100):
        for _ in range(2):
            with pytest.raises(ConfigError, match="TMPDIR"):
                spool.add(b"b" * 9000)
            assert spool.get(first) == b"a" * 4000
    second = spool.add(b"c" * 9000)
    with files_of_at_most(14_000):
        third = spool.add(b"d" * 1000)
        with pytest.raises(ConfigError, match="TMPDIR"):
            spool.add(b"e" * 3000)
        assert [spool.get(slot)[::999] for slot in (first, second, third)] == [b"a" * 5, b"c" * 10, b"d" * 2]
    assert spool.get(spool.add(b"f" * 10)) == b"f" * 10


def test_columns_are_the_same_however_they_are_gathered(monkeypatch):
    rng = random.Random(3)
    rows = []
    for i in range(3 * BLOCK):
        factors = {"a": rng.choice(LEVELS), "b": i % 7} if i % 5 else {"b": i % 7}
        drawn = IdentifiedInterval(0.25, 0.25, 0.25, rng.choice((0.0, 0.01)))
        values = {"p": numbers(rng), "q": drawn} if i % 3 else {"q": IdentifiedInterval.exact(rng.random())}
        rows.append(Row(f"i{i}", factors, values))

    def columns():
        made = RowTable(PackedRows.of(rows))
        quantities = [astuple(made.quantity(name)) for name in ("p", "q")]
        parts = [made.codes("a"), made.codes("b"), *itertools.chain.from_iterable(quantities)]
        return [part.tobytes() for part in parts if part is not None], made.levels.by_factor

    whole = columns()
    for at_once in (700, 1):
        monkeypatch.setattr(table, "_AT_ONCE", at_once)
        monkeypatch.setattr(spool, "_LEAST_MAPPED", 1)
        assert columns() == whole
