"""Options that several suites share."""

from __future__ import annotations

from typing import Annotated, Any

import pytest

from backends.base import Sampling
from backends.errors import ConfigError
from backends.options import Options
from suites.options import Text, each_once, sampling_option

DEFAULT = Sampling(max_tokens=50)


class Given(Options):
    sampling: Annotated[Sampling, sampling_option(DEFAULT)] = DEFAULT
    text: Text = "a"
    names: Annotated[tuple[str, ...], each_once(str.casefold, "Name each once")] = ()


def test_a_sampling_table_replaces_fields_of_the_default():
    given = {"temperature": 1, "stop": ["."]}
    assert Given.checked(sampling=given).sampling == Sampling(temperature=1, max_tokens=50, stop=(".",))
    assert Given.checked(sampling=Sampling(top_k=3)).sampling == Sampling(top_k=3)


@pytest.mark.parametrize(
    ("options", "field", "problem"),
    [
        ({"sampling": 1}, "sampling", "not a table"),
        ({"sampling": {"heat": 1}}, "sampling.heat", "unknown field"),
        ({"sampling": {"temperature": -1}}, "sampling", "Sampling.temperature = -1: must be at least 0"),
        ({"sampling": {"stop": "."}}, "sampling", "Sampling.stop = '.': not a list. Write it as a list."),
        ({"text": " a"}, "text", "has spaces around it"),
        ({"text": ""}, "text", "an empty text"),
        ({"names": ("a", "A")}, "names[1]", "given twice"),
    ],
)
def test_a_refused_option_is_named(options: dict[str, Any], field: str, problem: str):
    with pytest.raises(ConfigError) as caught:
        Given.checked(**options)
    assert (caught.value.field, caught.value.problem) == (field, problem)
