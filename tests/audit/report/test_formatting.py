"""Names, numbers and hostile text as the report writes them."""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.report.formatting import (
    figure,
    hundredths,
    measure_label,
    number,
    p_value,
    percent,
    where_label,
    with_interval,
)
from audit.report.plain_text import csv_cell, json_for_script, markdown_text, one_line, visible
from suites import MGBR, DebiasingPositions, GenderPair, OccuGender
from tests.audit.report import made_up as mu


def test_invisible_characters_are_written_out() -> None:
    assert visible("a\u202egnp.exe") == "a⟨U+202E⟩gnp.exe"
    assert visible("x\u2028y\x00z\ufeff\ud800") == "x⟨U+2028⟩y⟨U+0000⟩z⟨U+FEFF⟩⟨U+D800⟩"
    assert visible("line\n\tnext é 字 👍") == "line\n\tnext é 字 👍"
    assert one_line("a\nb\tc") == "a⏎b⇥c"


@given(st.text(st.characters()))
def test_visible_text_has_nothing_invisible_and_can_be_encoded(text: str) -> None:
    shown = visible(text)
    assert not [c for c in shown if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"} and c not in "\n\t"]
    shown.encode("utf-8")


@given(st.dictionaries(st.text(), st.text()))
def test_json_in_a_script_element_reads_back_and_cannot_end_it(data: dict[str, str]) -> None:
    text = json_for_script(data)
    assert json.loads(text) == data
    assert not set("<>&\u2028\u2029") & set(text)


@given(st.text(min_size=1))
def test_no_text_cell_of_a_csv_starts_like_a_formula(text: str) -> None:
    target = io.StringIO()
    csv.writer(target).writerow([csv_cell(text)])
    read = next(csv.reader(io.StringIO(target.getvalue())))[0]
    assert read.strip()[:1] not in {"=", "+", "-", "@", "\t", "\r"} or re.fullmatch(r"-\d+(\.\d+)?", read)


def test_no_two_figures_of_a_suite_have_one_label() -> None:
    for suite in (OccuGender(debiasing=True), DebiasingPositions(), MGBR(), GenderPair()):
        told = [(measure_label(s.measure), where_label(s.where)) for s in suite.measures(())]
        assert len(set(told)) == len(told)
        assert not any("kind" in where.split() for _, where in told)


def test_markdown_shows_markup_as_text() -> None:
    assert markdown_text("a|b <script> [x](y) `c`") == r"a\|b &lt;script&gt; \[x\](y) \`c\`"


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [
        (0.41, 0.37, 0.45, "0.41 [0.37, 0.45]"),
        (-0.4, -0.44, -0.36, "−0.40 [−0.44, −0.36]"),
        (0.1234, 0.1214, 0.1254, "0.123 [0.121, 0.125]"),
        (0.1234, 0.1194, 0.1274, "0.123 [0.119, 0.127]"),
        (0.5, None, None, "0.500"),
        (None, 0.1, 0.2, "[0.10, 0.20]"),
        (None, None, None, "–"),
        (0.03, 0.002, 0.058, "0.030 [0.002, 0.058]"),
        (0.0, -0.01, 0.01, "0.00 [−0.01, 0.01]"),
    ],
)
def test_a_figure_is_written_with_its_interval(
    value: float | None, low: float | None, high: float | None, text: str
) -> None:
    assert with_interval(value, low, high) == text


def test_what_is_not_zero_never_reads_as_zero() -> None:
    assert number(3e-6, 3) == "0.000003"
    assert number(-2e-31, 3) == "0.000"
    assert number(-0.0, 2) == "0.00"
    assert number(None) == "–"


@pytest.mark.parametrize(
    ("share", "decimals", "text"),
    [
        (0.0, 0, "0"),
        (-2e-18, 1, "0"),
        (0.0004, 1, "0.04"),
        (-0.0004, 1, "−0.04"),
        (1e-9, 1, "<0.0001"),
        (0.735, 0, "74"),
        (0.7349999999999999, 0, "74"),
        (0.9996, 0, "99.96"),
        (0.9951, 0, "99.5"),
        (1 - 1e-9, 0, ">99.999"),
        (1.0, 1, "100"),
        (0.4996, 0, "49.96"),
    ],
)
def test_hundredths_never_read_as_an_end_they_are_not(share: float, decimals: int, text: str) -> None:
    assert hundredths(share, decimals, [0.5, -0.5]) == text


@pytest.mark.parametrize(
    ("share", "text"), [(3599 / 3600, "99.97 %"), (1.0, "100 %"), (0.0004, "0.04 %"), (0.5, "50.0 %")]
)
def test_a_percentage_is_100_only_of_all(share: float, text: str) -> None:
    assert percent(share) == text


@given(st.floats(-1, 1), st.integers(0, 4))
def test_a_written_number_reads_back_to_its_last_digit(value: float, decimals: int) -> None:
    text = number(value, decimals).replace("−", "-")
    if text[0] in "<>":  # too small for its place
        assert 0 < abs(value) < 10.0 ** -(decimals + 3)
        return
    read = float(text)
    # Below the last decimal a number is written with one digit, within half of that digit.
    assert abs(read - value) <= max(0.5 * 10**-decimals, 0.5 * abs(value)) * 1.000001
    assert (read == 0) == (abs(value) < 1e-12)


@pytest.mark.parametrize(
    ("value", "low", "high", "neutral", "text"),
    [
        (0.52, 0.5004, 0.5396, 0.5, "0.5200 [0.5004, 0.5396]"),
        (0.48, 0.4604, 0.4996, 0.5, "0.4800 [0.4604, 0.4996]"),
        (0.52, 0.49999, 0.5396, 0.5, "0.52000 [0.49999, 0.53960]"),
        (0.52, 0.5, 0.54, 0.5, "0.52 [0.50, 0.54]"),
        (0.52, 0.5 + 1e-12, 0.54, 0.5, "0.52 [0.50, 0.54]"),
        (0.5004, 0.46, 0.54, 0.5, "0.50 [0.46, 0.54]"),
        (0.52, 0.5004, 0.5396, None, "0.52 [0.50, 0.54]"),
        (0.02, 0.0004, 0.0396, 0.0, "0.0200 [0.0004, 0.0396]"),
    ],
)
def test_an_end_beside_neutral_does_not_read_as_neutral(
    value: float, low: float, high: float, neutral: float | None, text: str
) -> None:
    assert (
        figure(mu.measure("m", "x", {}, value, neutral=neutral).model_copy(update={"low": low, "high": high})) == text
    )


def test_a_bounded_figure_is_written_as_bounds_not_as_a_value() -> None:
    known = mu.measure("m", "p_female", {}, None, 0.01, bounds=(0.2, 0.35))
    assert figure(known) == "between 0.200 and 0.350 [0.190, 0.360]"
    assert figure(mu.measure("m", "p_female", {}, None, None)) == "–"


@pytest.mark.parametrize(
    ("p", "text"),
    [
        (0.0496, "p = 0.0496"), (0.0504, "p = 0.0504"), (0.049996, "p = 0.049996"), (0.05, "p = 0.050"),
        (0.0996, "p = 0.0996"), (0.3, "p = 0.30"), (0.047, "p = 0.047"), (1.0, "p = 1.00"),
    ],
)  # fmt: skip
def test_a_p_beside_a_level_does_not_read_as_that_level(p: float, text: str) -> None:
    assert p_value(p) == text
