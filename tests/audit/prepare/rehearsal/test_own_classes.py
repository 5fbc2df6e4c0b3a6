"""Mistakes in what a suite's own class builds and says of itself: each is told before a model is asked."""

from __future__ import annotations

import pytest

from audit import Audit
from audit.config import load_audit
from audit.prepare.rehearsal import check_audit
from backends.errors import ConfigError

SUITE = """
import math
from audit import Audit
from backends import FakeBackend
from backends.base import GenerateRequest, Message, Sampling, ScoreRequest, ScoreResponse
from suites.base import IdentifiedInterval, Item, MeasureSpec, Row, Suite
from suites.presentation import Chart, Meaning, PublishedFigure, TableColumn, TableLayout

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

    # more

audit = Audit({"fake": FakeBackend()}, [Own()])
"""
_YIELD, _READ, _SPEC, _MORE = 17, 25, 28, 30


def more(method: str, *body: str) -> tuple[str, str]:
    """A further method in place of the comment; its first line of code is two lines below."""
    return "# more", f"def {method}:\n        " + "\n        ".join(body)


#: What is wrong → ((right, wrong), line of the message, a word of it).
MISTAKES: dict[str, tuple[tuple[str, str], int, str]] = {
    # -- figures
    "clusters as one text": (('clusters=("role",)', 'clusters="role"'), _SPEC, "split into letters"),
    "a neutral value as text": (("neutral=0.5", 'neutral="0.5"'), _SPEC, "MeasureSpec.neutral = '0.5': a text"),
    "a neutral value that is a bool": (("neutral=0.5", "neutral=True"), _SPEC, "MeasureSpec.neutral = True: a bool"),
    "a neutral value that is no number": (("neutral=0.5", 'neutral=float("nan")'), _SPEC, "nan: not a number"),
    "an infinite neutral value": (('kind="probability", neutral=0.5', "neutral=math.inf"), _SPEC, "infinite"),
    "a range of texts": (('kind="probability", neutral=0.5', 'range=("0", "1")'), _SPEC, "MeasureSpec.range[0]"),
    "a range of three": (('kind="probability", neutral=0.5', "range=(0, 1, 2)"), _SPEC, "MeasureSpec.range"),
    "a range with no number": (('kind="probability", neutral=0.5', 'range=(0, float("nan"))'), _SPEC, "range[1]"),
    "conditions as a list": (("neutral=0.5", 'where=[("role", "cook")]'), _SPEC, "MeasureSpec.where"),
    "a condition of several levels": (("neutral=0.5", 'where={"role": ["cook"]}'), _SPEC, "where['role']"),
    "no unit": (("neutral=0.5", "unit=None"), _SPEC, "MeasureSpec.unit = None"),
    "a primary figure by a text": (("primary=True", 'primary="no"'), _SPEC, "Give True or False"),
    "weights as texts": (
        ("neutral=0.5", 'stratum="scene", weights={"a": "0.5", "b": "0.5"}'),
        _SPEC,
        "MeasureSpec.weights['a'] = '0.5'",
    ),
    "weights without a stratum": (("neutral=0.5", 'weights={"a": 0.5, "b": 0.5}'), _SPEC, "the stratum is None"),
    "a kind misspelt": (('kind="probability"', 'kind="probabilty"'), _SPEC, "Did you mean 'probability'?"),
    # -- items
    "an id that is a number": (('Item(f"{scene}/{role}"', "Item(len(role)"), _YIELD, "Item.id = 4: an int"),
    "a text for a request": (('request, {"scene"', 'str(request), {"scene"'), _YIELD, "Item.request"),
    "factors as pairs": (('{"scene": scene, "role": role}', '[("role", role)]'), _YIELD, "Item.factors"),
    "a factor named by a number": (('"role": role}', '"role": role, 1: "x"}'), _YIELD, "Item.factors"),
    "a control by a text": (('"role": role})', '"role": role}, is_control="no")'), _YIELD, "Item.is_control = 'no'"),
    "a scorer that the suite lacks": (('"role": role})', '"role": role}, scorer="rater")'), 13, "'rater'"),
    "one text for the continuations": (('(" Mary", " John")', '" Mary"'), 16, "split into letters"),
    "a continuation that is a number": (('(" Mary", " John")', '(" Mary", 7)'), _YIELD, "continuations[1] = 7"),
    "a prompt that is nothing": (('f"{scene} {role}", (', "None, ("), _YIELD, "ScoreRequest.prompt = None"),
    "a turn of nobody": (
        ('ScoreRequest(f"{scene} {role}", (', 'ScoreRequest((Message("usr", f"{scene} {role}"),), ('),
        _YIELD,
        "Did you mean 'user'?",
    ),
    "turns as tables": (
        ('ScoreRequest(f"{scene} {role}", (', 'ScoreRequest(({"role": "user", "content": role},), ('),
        _YIELD,
        "ScoreRequest.prompt",
    ),
    "a text that asks for scores": (
        ('request, {"scene"', 'GenerateRequest(role), {"scene"'),
        8,
        "'generate'",
    ),
    "chat turns without the ability": (
        ('ScoreRequest(f"{scene} {role}", (', 'ScoreRequest((Message("user", f"{scene} {role}"),), ('),
        8,
        "'chat'",
    ),
    "a sampling as a table": (
        ('request, {"scene"', 'GenerateRequest(role, {"temperature": 1}), {"scene"'),
        _YIELD,
        "GenerateRequest.sampling",
    ),
    "a temperature as text": (
        ('request, {"scene"', 'GenerateRequest(role, Sampling("1")), {"scene"'),
        _YIELD,
        "temperature",
    ),
    "items that are returned by nobody": (("yield Item(", "Item("), 13, "returned None"),
    "items as a property": (("    def items", "    @property\n    def items"), 13, "Remove @property"),
    # -- rows
    "a value that is a text": (("exact(share)", "exact(str(share))"), _READ, "IdentifiedInterval.value"),
    "a value that is a bool": (("exact(share)", "exact(share > 0.5)"), 22, "a bool"),
    "bounds the wrong way round": (
        ("exact(share)", "exact(share) - IdentifiedInterval(None, 1, 0)"),
        _READ,
        "low <= value",
    ),
    "values as a list": (('{"p_mary": IdentifiedInterval.exact(share)}', "[share]"), 22, "Row.values"),
    "a reason that is a number": (("exact(share)})", "exact(share)}, missing=3)"), 22, "Row.missing = 3"),
    "memberships as one text": (
        ("exact(share)})", 'exact(share)}, memberships={"role": "cook"})'),
        22,
        "split into letters",
    ),
    "sources as one text": (("exact(share)})", "exact(share)}, sources=item.id)"), 22, "split into letters"),
    "a reading without the answer": (("read(self, item, response)", "read(self, item)"), 22, "read"),
    "answers that are never read": (
        ("mary, john = response.scores", "return Row(item.id, item.factors, {}, missing='odd')"),
        22,
        "no answer could be read: odd",
    ),
    "a level that no item has": (("neutral=0.5", 'where={"scene": "c"}'), 27, "matches no row"),
    # -- what the suite says of itself
    "an ability as text": (('frozenset({"score"})', '"score"'), 8, "needs"),
    "an ability misspelt": (('frozenset({"score"})', 'frozenset({"scores"})'), 8, "Did you mean 'score'?"),
    "abilities as a method": (('needs = frozenset({"score"})', 'def needs(self): return {"score"}'), 10, "@property"),
    "strata as one text": (('strata = ("scene",)', 'strata = "scene"'), 8, "split into letters"),
    "a title that is a number": (("strata =", "title = 3\n    strata ="), 8, "title"),
    "a version as text": (("strata =", 'version = "2"\n    strata ='), 8, "version"),
    "meanings as texts": (("strata =", 'meanings = {"p_mary": "more"}\n    strata ='), 8, "meanings['p_mary']"),
    "a meaning with another slot": (
        ("strata =", 'meanings = {"p_mary": Meaning("{point} more")}\n    strata ='),
        8,
        "{point}",
    ),
    "a signature as a list": (('{"roles": 3}', '["roles"]'), 19, "signature"),
    "cautions as one text": (more("cautions(self)", 'return "Few roles"'), _MORE, "split into letters"),
    "texts as a list": (more("texts(self)", 'return ["placebo"]'), _MORE, "texts"),
    "tables that fail": (
        more("tables(self)", "return [TableLayout('a', 'A', columns=self.columns)]"),
        31,
        "AttributeError",
    ),
    "columns as texts": (
        more("tables(self)", "return [TableLayout('a', 'A', columns=('p_mary',))]"),
        _MORE,
        "columns[0]",
    ),
    "a chart of another kind": (more("charts(self)", "return [Chart('dotts', 'A', ('p_mary',))]"), _MORE, "'dots'"),
    "a chart of one text": (more("charts(self)", "return [Chart('dots', 'A', 'p_mary')]"), _MORE, "split into letters"),
    "a table for a chart": (more("charts(self)", "return [{'kind': 'dots'}]"), _MORE, "charts"),
    "a printed figure as text": (
        more("published(self)", "return [PublishedFigure('m', 'p_mary', {}, '0.4')]"),
        _MORE,
        "PublishedFigure.value = '0.4'",
    ),
    "nothing derived": (more("derive(self, rows)", "rows = [*rows]"), _MORE, "returned None"),
    "rows derived from one": (more("derive(self, rows)", "return rows[0]"), _MORE, "derive"),
    "a row derived without an id": (
        more("derive(self, rows)", "return [*rows, Row(None, {}, {})]"),
        _MORE,
        "Row.item_id",
    ),
    "follow-ups that are none": (more("follow_ups(self, item, response)", "pass"), _MORE, "returned None"),
    "a follow-up as text": (more("follow_ups(self, item, response)", "return ['And why?']"), _MORE, "follow_ups"),
    "follow-ups at most that fail": (more("most_follow_ups(self, item)", "return item.next"), 31, "AttributeError"),
    "a planted answer of another kind": (more("planted(self, item, bias, draw)", "return 'Mary'"), _MORE, "planted"),
    "a planted answer that fails": (
        more("planted(self, item, bias, draw)", "return self.answers[draw]"),
        31,
        "AttributeError",
    ),
    "a scorer by name": (
        ("# more", '@property\n    def scorers(self): return {"rater": "vader"}'),
        30,
        "scorers['rater']",
    ),
}


def written(tmp_path, right, wrong):
    assert SUITE.count(right) == 1, right
    path = tmp_path / "own.py"
    path.write_text(SUITE.replace(right, wrong).lstrip("\n"), "utf-8")
    return path


def checked(path):
    """Raise the first mistake that `audit check` tells."""
    ((found,), _) = check_audit(load_audit(path, Audit), 0.2)
    raise found.mistakes[0]


def run(path):
    """Run the audit, which tells a mistake before its model is asked."""
    audit = load_audit(path, Audit)
    try:
        audit.run_sync()
    finally:
        assert not audit.models["fake"].asked


@pytest.mark.parametrize("tell", [checked, run])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_with_its_line(mistake, tell, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (right, wrong), line, said = MISTAKES[mistake]
    with pytest.raises(ConfigError) as told:
        tell(written(tmp_path, right, wrong))
    assert f"{told.value.field}: ".startswith(f"own.py:{line}: ")
    assert said in str(told.value)


def test_figures_that_need_rows_are_told_of_a_sample(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path, "    def measures(self, rows):", "    def measures(self, rows):\n        rows[0]")
    audit = load_audit(path, Audit).only(limit=4)
    with pytest.raises(ConfigError, match=r"own\.py:28 = 'rows\[0\]': measures raised IndexError"):
        audit.run_sync()
    assert not audit.models["fake"].asked


def test_items_late_in_a_suite_are_checked_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    answers = "('a', 'b')), {'scene': 'a', 'role':"
    late = f"    for n in range(2000):\n            yield Item(f'{{n}}', ScoreRequest(f'{{n}}', {answers} str(n)}})\n"
    wrong = f"    {late}        yield Item('late', ScoreRequest(None, {answers} 'x'}})\n"
    path = written(tmp_path, "    def signature", f"{wrong}\n    def signature")
    with pytest.raises(ConfigError, match=r"own\.py:\d+: ScoreRequest\.prompt = None"):
        run(path)


def test_a_config_that_exits_is_told(tmp_path):
    path = written(tmp_path, "# more", "# more\n\n    import sys; sys.exit(3)")
    with pytest.raises(ConfigError, match=r"it calls sys\.exit\(3\)"):
        load_audit(path, Audit)


def test_a_right_suite_is_told_nothing(tmp_path):
    ((found,), of_config) = check_audit(load_audit(written(tmp_path, "# more", "# none"), Audit), 0.2)
    assert (found.mistakes, of_config, found.n_items) == ([], [], 6)
