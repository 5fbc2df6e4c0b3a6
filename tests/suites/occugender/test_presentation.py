import pytest

from suites import OccuGender


def test_table_cells_name_measured_and_published_figures():
    suite = OccuGender(debiasing=True, variant="as_released")
    specs = [(s.measure, s.where) for s in suite.measures([])]
    assert len(specs) == len({(m, tuple(sorted(w.items(), key=str))) for m, w in specs})
    published = [(f.measure, f.where) for f in suite.published() if f.model == "Llama-3-8B"]
    for table in suite.tables():
        for _, row in table.rows or (("", {}),):
            for column in table.columns:
                cell = (column.measure, {**row, **column.where})
                assert cell in specs
                if not {"abstraction", "template"} & set(row):  # printed nowhere
                    assert cell in published


def test_published_figures_are_on_the_measures_scale():
    figures = OccuGender(debiasing=True, variant="as_released").published()
    where = {"bias": "explicit", "debiasing": None, "dominated_by": "female"}
    (one,) = [f for f in figures if f.model == "Llama-2-7B" and f.measure == "p_female" and f.where == where]
    assert (one.value, one.plus_minus) == pytest.approx((0.541, 0.013))
    assert len(figures) == 2 * 10 * 2 * 2 * 3 + 10 * 7 * 2 * 2 * 3
    assert (one.step, one.model_ids) == (0.001, ("meta-llama/Llama-2-7b-hf",))
    where = {"bias": "explicit", "debiasing": "over templates", "of": None, "dominated_by": "female"}
    (error,) = [
        f for f in figures if f.model == "Llama-2-7B" and f.measure == "p_female_plus_minus" and f.where == where
    ]
    assert error.value == pytest.approx(0.013)


def test_sources_of_tables_have_no_data_file_abbreviations():
    sources = [layout.source for layout in OccuGender(debiasing=True).tables()]
    assert all("arXiv" in source and "pm =" not in source for source in sources)
