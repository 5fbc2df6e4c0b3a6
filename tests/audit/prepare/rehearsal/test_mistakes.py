"""Mistakes of a suite's own class: each is told with file and line before a model is asked."""

from __future__ import annotations

import pytest

from audit import Audit
from audit.config import load_audit
from audit.prepare.rehearsal.check import check_audit, check_items, refuse_mistakes
from backends import FakeBackend
from backends.errors import ConfigError

SUITE = """
import math
from audit import Audit
from backends import FakeBackend
from backends.base import ScoreRequest
from suites.base import IdentifiedInterval, Item, MeasureSpec, Row, Suite

class Own(Suite):
    name = "own"
    needs = frozenset({"score"})
    strata = ("scene",)

    def items(self):
        for scene in ("a", "b"):
            for role in ("cook", "pilot", "nurse"):
                request = ScoreRequest(f"{scene} {role}", (" Mary", " John"))
                yield Item(f"{scene}/{role}", request, {"scene": scene, "role": role})

    def signature(self):
        return {"roles": 3}

    def read(self, item, response):
        mary, john = response.scores
        share = 1 / (1 + math.exp(john.logprob - mary.logprob))
        return Row(item.id, item.factors, {"p_mary": IdentifiedInterval.exact(share)})

    def measures(self, rows):
        yield MeasureSpec("p_mary", "p_mary", clusters=("role",), kind="probability", neutral=0.5, primary=True)

audit = Audit({"fake": FakeBackend()}, [Own()], limits={"p_mary": (None, 0.9)})
"""

#: What is wrong → (right, wrong, line of the message, a word of it).
MISTAKES = {
    "an id for two items": ('f"{scene}/{role}", request', "role, request", 12, "2 items have this id"),
    "a stratum that is no factor": ('strata = ("scene",)', 'strata = ("scen",)', 7, "'scene'"),
    "a cluster that is no factor": ('clusters=("role",)', 'clusters=("roles",)', 26, "'role'"),
    "a condition that is no factor": ("neutral=0.5", 'where={"part": 1}', 26, "no row has this factor"),
    "a level that no row has": ("neutral=0.5", 'where={"role": "chef"}', 26, "matches no row"),
    "a quantity misspelt": ('"p_mary", "p_mary"', '"p_mary", "p_marry"', 26, "'p_mary'"),
    "a kind that values exceed": ("exact(share)", "exact(2 + share)", 26, "'probability'"),
    "a neutral value out of range": ("neutral=0.5", "neutral=50", 26, "outside 0 to 1"),
    "weights of other levels": (
        "neutral=0.5",
        'stratum="scene", weights={"a": 0.5, "c": 0.5}',
        26,
        "weigh",
    ),
    "a covariate that is no number": (
        "neutral=0.5",
        'estimator="correlation", covariate="scene"',
        26,
        "covariate",
    ),
    "a figure twice": ("        yield MeasureSpec", "        for _ in 'ab': yield MeasureSpec", 26, "twice"),
    "no figures": ("        yield MeasureSpec", "        if False: yield MeasureSpec", 26, "no figure"),
    "an error in reading": ("mary, john = response", "mary, john, _ = response", 22, "ValueError"),
    "an error in the items": ('f"{scene} {role}", (', 'f"{scene} {rle}", (', 15, "NameError"),
    "a row of another id": ("Row(item.id", "Row(item.id + '!'", 21, "row with this id"),
    "a part of the prompt missing": ('f"{scene} {role}"', 'f"{scene} person"', 12, "asks the same as 'cook'"),
    "a prompt of two levels": (
        'f"{scene} {role}"',
        'f"{scene} {role if scene == chr(97) else chr(98)}"',
        12,
        "asks the same",
    ),
    "another question each time": (
        'f"{scene} {role}"',
        "f\"{scene} {role} {id(object())} {__import__('random').random()}\"",
        12,
        "another question each time",
    ),
    "a factor that one item lacks": (
        '{"scene": scene, "role": role}',
        '{"scene": scene, "role" if role + scene != "nurseb" else "rol": role}',
        12,
        "lack this sampled factor",
    ),
    "a number for an interval": (
        "IdentifiedInterval.exact(share)",
        "share",
        21,
        "a float. Give an IdentifiedInterval",
    ),
    "no row": ("return Row(", "Row(", 21, "read returned None"),
    "a level that is a list": ('"role": role}', '"role": [role]}', 16, "'role'"),
    "no item": ("yield Item(", "yield (", 16, "a tuple, not an Item"),
    "no items": ('in ("a", "b")', "in ()", 12, "no items"),
    "a signature that is no JSON": ('{"roles": 3}', '{"roles": {3}}', 18, "JSON"),
}


def written(tmp_path, right, wrong):
    assert SUITE.count(right) == 1
    path = tmp_path / "own.py"
    path.write_text(SUITE.replace(right, wrong).lstrip("\n"), "utf-8")
    return path


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_with_file_and_line(mistake, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    right, wrong, line, said = MISTAKES[mistake]
    ((found,), _) = check_audit(load_audit(written(tmp_path, right, wrong), Audit), 0.2)
    assert found.mistakes[0].field.split(": ")[0] == f"own.py:{line}"
    assert said in str(found.mistakes[0])


@pytest.mark.parametrize(
    ("added", "line", "said"),
    [
        ("    def charts(self):\n        return [Chart('dots', 'T', ('p_marry',))]\n", 29, "charts: no figure"),
        ("    meanings = {'p_marry': Meaning('more', 'less')}\n", 8, "meanings: no figure"),
    ],
)
def test_a_figure_that_is_shown_and_not_made_is_told(added, line, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = SUITE.replace("\n\naudit =", f"\n{added}\naudit =")
    text = text.replace("import math", "import math; from suites.presentation import Chart, Meaning")
    (tmp_path / "own.py").write_text(text, "utf-8")
    found, of_config = check_audit(load_audit(tmp_path / "own.py", Audit), 0.2)
    (mistake,) = [*(mistake for one in found for mistake in one.mistakes), *of_config]
    assert str(mistake).startswith(f"own.py:{line}: own = 'p_marry': {said}")
    assert "Did you mean 'p_mary'?" in str(mistake)


def test_a_right_suite_has_no_mistakes(tmp_path):
    ((found,), of_config) = check_audit(load_audit(written(tmp_path, "roles", "roles"), Audit), 0.2)
    assert (found.mistakes, of_config, found.n_items, found.levels) == ([], [], 6, {"p_mary": {"role": 3}})


#: A limited run may lack levels that the suite has, so that only the whole check tells these.
OF_THE_WHOLE = {"a level that no row has", "no items"}


@pytest.mark.parametrize("mistake", [mistake for mistake in MISTAKES if mistake not in OF_THE_WHOLE])
def test_a_run_tells_it_before_it_asks(mistake, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    right, wrong, line, said = MISTAKES[mistake]
    audit = load_audit(written(tmp_path, right, wrong), Audit)
    with pytest.raises(ConfigError, match=rf"own\.py:{line}.*{said}"):
        audit.run_sync()
    assert not audit.models["fake"].asked


@pytest.mark.parametrize("weights", ['{"a": 0.5, "b": 0.25, "c": 0.25}', '{"a": 1.0}'])
def test_weights_of_too_many_or_too_few_levels_are_refused(weights, tmp_path):
    right, wrong = "neutral=0.5", f'stratum="scene", weights={weights}'
    audit = load_audit(written(tmp_path, right, wrong), Audit)
    with pytest.raises(ConfigError, match=r"this level of 'scene' has (a weight but no rows|rows but no weight)"):
        audit.run_sync()
    assert not audit.models["fake"].asked


DERIVE = """
    def derive(self, rows):
        by_id = {row.item_id: row for row in rows}
        derived = []
        for row in rows:
            other = by_id.get("b/" + row.factors["role"])
            if row.factors["scene"] == "a" and other is not None:
                missing = row.missing or other.missing
                change = {} if missing else {"change": other.values["p_mary"] - row.values["p_mary"]}
                factors = {"role": row.factors["role"], "change": "a to b"}
                derived.append(Row(f"change/{row.item_id}", factors, change, missing, (row.item_id, other.item_id)))
        return [*rows, *derived]

    def measures(self, rows):
        yield MeasureSpec("p_mary", "p_mary", clusters=("role",), kind="probability", neutral=0.5, primary=True)
"""


def that_derives(tmp_path, figure):
    """An audit whose suite derives a row of each role, with this figure."""
    before, _, after = SUITE.partition("    def measures")
    path = tmp_path / "own.py"
    derive = DERIVE.lstrip("\n")
    text = f"{before}{derive}        yield {figure}\n\naudit =" + after.partition("\naudit =")[2]
    path.write_text(text.lstrip("\n"), "utf-8")
    return load_audit(path, Audit)


@pytest.mark.parametrize("limit", [None, 5])
@pytest.mark.parametrize(
    ("figure", "refused"),
    [
        ('"gap", "p_mary", stratum="scene", weights={"a": 0.5, "c": 0.5}', "a weight but no rows"),
        ('"gap", "p_mary", stratum="scene", weights={"a": 1.0}', "rows but no weight"),
        ('"move", "change", stratum="change", weights={"a to c": 1.0}', "a weight but no rows"),
        ('"gap", "p_mary", stratum="scene", weights={"a": 0.5, "b": 0.5}', None),
        ('"move", "change", stratum="change", weights={"a to b": 1.0}', None),
    ],
)
def test_weights_of_a_suite_that_derives_are_refused(figure, refused, limit, tmp_path):
    audit = that_derives(tmp_path, f"MeasureSpec({figure}, clusters=('role',), kind='difference')")
    checked, _ = check_audit(audit, 0.2)
    assert [str(one) for of_suite in checked for one in of_suite.mistakes if "weight" not in str(one)] == []
    assert bool(checked[0].mistakes) == (refused is not None)
    asked = {name: list(suite.items())[:limit] for name, suite in audit.suites.items()}
    if refused is None:
        refuse_mistakes(audit, asked)
        return
    with pytest.raises(ConfigError, match=r"has (a weight but no rows|rows but no weight)"):
        refuse_mistakes(audit, asked)
    with pytest.raises(ConfigError, match=r"has (a weight but no rows|rows but no weight)"):
        audit.run_sync()
    assert not audit.models["fake"].asked


@pytest.mark.parametrize("limit", [None, 5])
@pytest.mark.parametrize(
    ("figure", "named"),
    [
        ('"move", "chnge", clusters=("role",)', "chnge"),
        ('"move", "change", clusters=("rolle",)', "rolle"),
        ('"move", "change", where={"chagne": "a to b"}', "chagne"),
        ('"move", "change", where={"change": "a to c"}', "a to c"),
        ('"move", "change", stratum="chagne", weights={"a to b": 1.0}', "chagne"),
        ('"r", "change", estimator="correlation", clusters=("role",), covariate="shre"', "shre"),
        ('"move", "change", where={"change": "a to b"}, clusters=("role",)', None),
    ],
)
def test_figure_that_no_derived_row_can_give_is_refused(figure, named, limit, tmp_path):
    audit = that_derives(tmp_path, f"MeasureSpec({figure}, kind='difference')")
    asked = {name: list(suite.items())[:limit] for name, suite in audit.suites.items()}
    if named is None:
        refuse_mistakes(audit, asked)
        return
    with pytest.raises(ConfigError, match=named):
        refuse_mistakes(audit, asked)
    with pytest.raises(ConfigError, match=named):
        audit.run_sync()
    assert not audit.models["fake"].asked


def of_texts(tmp_path, quantity):
    """A suite whose models write, and a figure of that quantity; its rows have is_long."""
    text = SUITE.replace('ScoreRequest(f"{scene} {role}", (" Mary", " John"))', 'GenerateRequest(f"{scene} {role}")')
    text = text.replace("ScoreRequest", "GenerateRequest").replace('"score"', '"generate"')
    text = text.replace("mary, john = response.scores", "share = float(len(response.text) > 3)")
    text = text.replace("        share = 1 / (1 + math.exp(john.logprob - mary.logprob))\n", "")
    text = text.replace('{"p_mary": IdentifiedInterval', '{"is_long": IdentifiedInterval')
    path = tmp_path / "own.py"
    path.write_text(text.replace('"p_mary", "p_mary"', f'"p_mary", "{quantity}"').lstrip("\n"), "utf-8")
    return load_audit(path, Audit)


def test_a_misspelt_quantity_of_texts_is_refused(tmp_path):
    ((found,), _) = check_audit(of_texts(tmp_path, "is_lomg"), 0.2)
    assert "Did you mean 'is_long'?" in str(found.mistakes[0])
    with pytest.raises(ConfigError, match="no row has this quantity"):
        of_texts(tmp_path, "is_lomg").run_sync()


@pytest.mark.parametrize("quantity", ["is_long", "mentions_mary"])
def test_a_quantity_that_a_text_may_bring_is_no_mistake(quantity, tmp_path):
    ((found,), _) = check_audit(of_texts(tmp_path, quantity), 0.2)
    assert found.mistakes == []


@pytest.mark.parametrize("option", ["margins", "limits"])
def test_a_margin_misspelt_is_told_before_a_run_asks(option, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    suite = load_audit(written(tmp_path, "roles", "roles"), Audit).suites["own"]
    model = FakeBackend()
    given = {"margins": {"p_marry": 0.1}, "limits": {"p_marry": (None, 0.9)}}
    with pytest.raises(ConfigError, match=rf"{option}\.p_marry"):
        Audit({"fake": model}, [suite], **{option: given[option]}).run_sync()
    assert not model.asked


def test_answers_that_cannot_be_read_are_counted(tmp_path):
    path = written(
        tmp_path,
        "mary, john = response.scores",
        "if item.id < 'b': return Row(item.id, {}, {}, missing='odd')\n        mary, john = response.scores",
    )
    suite = load_audit(path, Audit).suites["own"]
    found = check_items("own", suite, list(suite.items()))
    assert (dict(found.unreadable), found.mistakes) == ({"odd": 3}, [])
