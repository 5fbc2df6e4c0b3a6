"""One translator from pydantic's errors to `ConfigError`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import AfterValidator, Field

from backends.errors import ConfigError
from backends.options import OnError, Options, checked_options, refused


def _even(value: int) -> int:
    if value % 2:
        raise refused("odd", "Give an even one")
    return value


class Pair(Options):
    left: int
    right: Annotated[int, AfterValidator(_even)] = 2


FIRST = Pair(left=1)


class Thing:
    @checked_options
    def __init__(
        self,
        model: str,
        *,
        n: Annotated[int, Field(ge=1), OnError("not a number of lists", "Give 1 or more")] = 3,
        copy: Literal["a", "b"] = "a",
        pair: Pair = FIRST,
        out: str | Path = "out",
    ) -> None:
        self.options = (model, n, copy, pair)


def test_valid_options_arrive_with_defaults():
    assert Thing("m", copy="b").options == ("m", 3, "b", Pair(left=1, right=2))


@pytest.mark.parametrize(
    ("options", "field", "value", "problem", "hint"),
    [
        ({"model": "m", "n": 0}, "n", 0, "not a number of lists", "Give 1 or more"),
        ({"model": "m", "n": True}, "n", True, "not a number of lists", "Give 1 or more"),
        ({"model": "m", "copy": "c"}, "copy", "c", "unknown", "Use one of: 'a' or 'b'"),
        ({"model": 4}, "model", 4, "not a text", "Write it in quotes"),
        ({"model": "m", "out": None}, "out", None, "missing", "Give it"),
        ({}, "model", None, "missing", "Give it"),
        ({"model": "m", "m": 1}, "m", 1, "unknown field", "Remove it. Known fields: model, n, copy, pair, out"),
        (
            {"model": "m", "pairs": 1},
            "pairs",
            1,
            "unknown field",
            "Did you mean 'pair'? Known fields: model, n, copy, pair, out",
        ),
        ({"model": "m", "pair": {"left": 1, "right": 3}}, "pair.right", 3, "odd", "Give an even one"),
        (
            {"model": "m", "pair": {"left": 1, "rigth": 3}},
            "pair.rigth",
            3,
            "unknown field",
            "Did you mean 'right'? Known fields: left, right",
        ),
    ],
)
def test_a_refused_option_names_field_value_and_hint(options, field, value, problem, hint):
    with pytest.raises(ConfigError) as caught:
        Thing(**options)
    error = caught.value
    assert (error.field, error.value, error.problem, error.hint) == (field, value, problem, hint)
