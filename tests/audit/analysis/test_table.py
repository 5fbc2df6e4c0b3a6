"""The one columnar table: rows become columns and come back as they were."""

import dataclasses

import numpy as np
import pytest

from audit.analysis.table import Table, aligned
from suites.base import RUN, Family, IdentifiedInterval, Row

EXACT, BOUNDED = IdentifiedInterval.exact(0.25), IdentifiedInterval(None, 0.1, 0.4)
DRAWN = IdentifiedInterval(0.5, 0.5, 0.5, None)
ROWS = [
    Row("a", {"template": "t1", "is": True, "text": None}, {"p": EXACT}),
    Row("b", {"template": "t2", "is": 1}, {}, missing="refusal"),
    Row("c", {"template": "t1"}, {"p": BOUNDED, "q": DRAWN}, None, ("a", "b"), {"occupation": ("nurse", "cook")}),
    Row("d", {"template": "t3"}, {"q": EXACT}, None, (), {"occupation": ("cook",)}),
]


def test_rows_come_back_as_they_were() -> None:
    table = Table.of(ROWS)
    for form in (table, Table.from_bytes(table.to_bytes())):
        rows = list(form.rows())
        assert rows == ROWS
        assert rows[2].values["q"].draw_variance is None
        assert [type(row.factors["is"]) for row in rows[:2]] == [bool, int]
        assert [form.factors_of(row.item_id) for row in ROWS] == [row.factors for row in ROWS]
    assert table.factors_of("unheard of") == {}


def test_columns() -> None:
    table = Table.of(ROWS)
    p, q = table.quantity("p"), table.quantity("q")
    np.testing.assert_array_equal(p.value, [0.25, np.nan, np.nan, np.nan])
    np.testing.assert_array_equal(p.low, [0.25, np.nan, 0.1, np.nan])
    np.testing.assert_array_equal(p.high, [0.25, np.nan, 0.4, np.nan])
    assert p.draw_variance is None
    assert q.low is q.value
    assert q.draw_variance is not None
    np.testing.assert_array_equal(q.draw_variance, [0.0, 0.0, np.nan, 0.0])
    assert table.has("p").tolist() == [True, False, True, False]
    assert not table.has("unheard of").any()
    assert table.codes("template").tolist() == [0, 1, 0, 2]
    assert table.matching({"template": "t1"}).tolist() == [True, False, True, False]
    assert table.matching({"is": True}).tolist() == [True, False, False, False]
    assert table.matching({"is": 1}).tolist() == [False, True, False, False]
    assert table.matching({"text": None}).tolist() == [True, False, False, False]
    assert not table.matching({"template": "t9"}).any()
    assert table.missing.tolist() == [False, True, False, False]
    assert table.missing_for(["refusal"]).tolist() == [False, True, False, False]
    name, belongs = table.belongs("occupation", np.array([True, False, True, True]))
    assert name == "occupation"
    np.testing.assert_array_equal(belongs, [[0, 0], [1, 1], [0, 1]])


def test_an_item_has_one_row() -> None:
    with pytest.raises(ValueError, match="'a' has more than one row"):
        Table.of([ROWS[0], dataclasses.replace(ROWS[1], item_id="a")])


def test_a_row_without_value_or_reason_is_missing() -> None:
    table = Table.of([Row("a", {}, {})])
    assert table.missing.tolist() == [True]
    assert next(table.rows()).missing == "no value"


def test_tables_are_aligned_by_item_and_level() -> None:
    other = [ROWS[3], Row("e", {"template": "t9"}, {"p": DRAWN}), ROWS[0]]
    one, two = aligned([Table.of(ROWS), Table.of(other)])
    assert one.ids == two.ids == ["a", "b", "c", "d", "e"]
    assert one.present.tolist() == [True, True, True, True, False]
    assert two.present.tolist() == [True, False, False, True, True]
    assert two.answered.tolist() == [True, False, False, True, True]
    assert two.missing.tolist() == [False] * 5
    assert one.codes("template").tolist() == [0, 1, 0, 2, -1]
    assert two.codes("template").tolist() == [0, -1, -1, 2, 3]
    np.testing.assert_array_equal(two.quantity("p").value, [0.25, np.nan, np.nan, np.nan, 0.5])
    assert not one.matching({})[4]
    same = [Table.of(ROWS), Table.of(ROWS)]
    assert all(a is b for a, b in zip(aligned(same), same, strict=True))
    empty = Table.of([])
    assert [len(table) for table in aligned([empty, same[0]])] == [4, 4]


def test_levels_cluster_by_their_family() -> None:
    families = {
        "template": Family("wording", {"t1": "w", "t3": "w"}),
        "occupation": Family("sector", {"nurse": "care"}),
    }
    table = Table.of(ROWS, families)
    for form in (table, Table.from_bytes(table.to_bytes()), aligned([table, Table.of(ROWS[:2])])[0]):
        name, codes = form.cluster_codes("template")
        assert (name, codes.tolist()) == ("wording", [0, 1, 0, 0])
        assert form.belongs("occupation", np.ones(4, dtype=np.bool_))[0] == "sector"
    assert Table.of(ROWS).cluster_codes("template")[0] == "template"


def test_runs_are_one_table_with_a_factor() -> None:
    one = Table.of(ROWS)
    assert Table.of_runs([one]) is one
    both = Table.of_runs([one, Table.of([ROWS[1], ROWS[3], ROWS[2]])])
    assert both.ids == ["a", "b", "c", "d", "b~2", "d~2", "c~2"]
    assert list(both.rows())[6].sources == ("a~2", "b~2")
    assert both.levels[RUN] == [1, 2]
    assert both.codes(RUN).tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert both.codes("template").tolist() == [0, 1, 0, 2, 1, 2, 0]
    assert both.n_questions(np.ones(7, dtype=np.bool_)) == 4
    np.testing.assert_array_equal(both.quantity("p").low, [0.25, np.nan, 0.1, np.nan, np.nan, np.nan, 0.1])
