"""One translator from pydantic's errors to `ConfigError`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, Field

from backends.errors import ConfigError
from backends.options import AS_TUPLE, OnError, Options, Table, checked_options, refused


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


@dataclass(frozen=True, slots=True)
class Place(Table):
    name: str
    share: Annotated[float, Field(ge=0, le=1), OnError("not a share", "Give a number from 0 to 1")] = 0.5


class Unions(Options):
    places: Annotated[
        tuple[Annotated[Place | Literal["here"], OnError("not a place", "Name one")], ...],
        AS_TUPLE,
        OnError("not a list of places", "Give one or more"),
    ] = ()
    limit: Annotated[bool | int | None, OnError("not a limit", "Give true, false or a number")] = None
    sets: Annotated[Literal["all"] | dict[str, tuple[int, ...]], OnError("not sets", "Give all")] = "all"
    labels: dict[str, int | Literal["all"]] = Field(default_factory=dict)


def test_a_table_stands_for_the_object_that_it_describes():
    made = Unions.checked(places=[Place("bank", 1.0), {"name": "shop"}, "here"], limit=3)
    assert made.places == (Place("bank", 1.0), Place("shop"), "here")


@pytest.mark.parametrize(
    ("options", "field", "value", "problem"),
    [
        ({"limit": "x"}, "limit", "x", "not a limit"),
        ({"places": "here"}, "places", "here", "not a list of places"),
        ({"places": ["there"]}, "places[0]", "there", "not a place"),
        ({"places": [Place("bank", 2.0)]}, "places[0].share", 2.0, "not a share"),
        ({"places": ["here", {"name": 1}]}, "places[1].name", 1, "not a text"),
        ({"places": [{"share": 0.1}]}, "places[0].name", None, "missing"),
        ({"sets": "some"}, "sets", "some", "not sets"),
        ({"sets": {"a": (1, "x")}}, "sets.a[1]", "x", "not a whole number"),
        ({"labels": {"Int": "none"}}, "labels.Int", "none", "not a whole number"),
    ],
)
def test_an_error_in_a_union_names_what_the_user_wrote(options, field, value, problem):
    with pytest.raises(ConfigError) as caught:
        Unions.checked(**options)
    assert (caught.value.field, caught.value.value, caught.value.problem) == (field, value, problem)


@pytest.mark.parametrize(("args", "kwargs"), [(("m", 3), {}), (("m",), {"model": "m"})])
def test_arguments_that_python_refuses_are_its_own_error(args: tuple[Any, ...], kwargs: dict[str, Any]):
    with pytest.raises(TypeError):
        Thing(*args, **kwargs)
