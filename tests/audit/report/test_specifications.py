"""The plots' specifications are Vega-Lite's, though building them checks nothing."""

import inspect

import altair as alt
import pytest
from altair.utils import schemapi

from audit.report.charts import vega_specs

GIVEN = {
    "dots": {"models": 2, "domain": [0, 1], "height": 90, "title": "p"},
    "scatter": {"models": 2, "x_domain": [0, 1], "y_domain": [0, 1], "titles": ("a", "b"), "diagonal": True},
    "lines": {"models": 2, "domain": [0, 1], "x_title": "a", "y_title": "b"},
    "trend": {"models": 2, "times": ["2026-01-01", "2026-02-01"]},
    "forest": {},
}


def test_every_specification_is_among_those_checked():
    made = inspect.getmembers(vega_specs, inspect.isfunction)
    own = {name for name, f in made if not name.startswith("_") and f.__module__ == vega_specs.__name__}
    assert own == set(GIVEN)


@pytest.mark.parametrize("kind", sorted(GIVEN))
def test_every_part_fits_the_schema_of_vega_lite(kind):
    """The whole by its schema, and each part as altair checks it on making it."""
    spec = getattr(vega_specs, kind)(**GIVEN[kind])
    alt.LayerChart.from_dict(spec, validate=True)
    checked = inspect.unwrap(getattr(vega_specs, kind))(**GIVEN[kind])  # here altair's own checks are on
    assert checked == spec


def test_altairs_own_checks_are_on_again_afterwards():
    vega_specs.forest()
    assert schemapi.DEBUG_MODE
    with pytest.raises(schemapi.SchemaValidationError):
        alt.Scale(nice="sometimes", type="no such type")
