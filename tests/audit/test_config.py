import textwrap
from pathlib import Path

import pytest

from audit import Audit, load_audit
from backends import FakeBackend, HFBackend
from backends.base import ScoreRequest
from backends.errors import ConfigError
from suites import GenderPair
from suites.base import Item, Row, Suite


class TwoQuestions(Suite):
    """A tiny suite."""

    name = "two"

    def __init__(self, n=2):
        self.n = n

    def items(self):
        for i in range(self.n):
            yield Item(str(i), ScoreRequest(f"prompt {i}", (" a", " b")), {"template": i})

    def signature(self):
        return {"n": self.n}

    def read(self, item, response):
        return Row(item.id, item.factors, {})

    def measures(self, rows):
        return iter(())


def test_narrowing_to_an_unknown_model_suggests_the_nearest():
    audit = Audit({"smollm2": FakeBackend()}, [TwoQuestions()])
    assert list(audit.only(models=["smollm2"]).models) == ["smollm2"]
    with pytest.raises(ConfigError, match="smollm2"):
        audit.only(models=["smolm2"])


def write(path, text):
    path.write_text(textwrap.dedent(text), "utf-8")
    return path


def test_a_python_config_is_loaded(tmp_path):
    path = write(
        tmp_path / "c.py",
        """
        from audit import Audit
        from backends import FakeBackend
        from suites import OccuGender
        audit = Audit(models={"fake": FakeBackend()}, suites=[OccuGender()], seed=3)
        """,
    )
    assert load_audit(path).seed == 3


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1", "defines no Audit"),
        ("1 / 0", "ZeroDivisionError"),
        ("from suites import OccuGendr", "OccuGendr"),
    ],
)
def test_a_python_config_that_cannot_run_says_why(tmp_path, text, says):
    with pytest.raises(ConfigError, match=says):
        load_audit(write(tmp_path / "c.py", text))


def test_an_option_error_in_a_python_config_names_its_line(tmp_path, monkeypatch):
    write(tmp_path / "c.py", "from suites import MGBR\nn = -1\nMGBR(n=n)")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"^c\.py:3: n = -1: "):
        load_audit("c.py")


def test_a_toml_config_has_the_same_fields(tmp_path):
    path = write(
        tmp_path / "c.toml",
        """
        seed = 4
        limit = 10
        [models.planted]
        backend = "fake"
        name = "planted"
        [suites.occugender]
        suite = "OccuGender"
        prompt_format = "chat"
        [limits]
        stereotype_gap = [-inf, 0.3]
        """,
    )
    audit = load_audit(path)
    assert audit.limits == {"stereotype_gap": (None, 0.3)}
    assert (audit.seed, audit.limit, list(audit.models), list(audit.suites)) == (4, 10, ["planted"], ["occugender"])


def test_paths_in_a_toml_config_are_relative_to_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    configs = tmp_path / "configs"
    for folder in ("weights", "tuned", "lists"):
        (configs / folder).mkdir(parents=True)
    text = """
        [models.own]
        backend = "hf"
        model = "weights"
        adapter = "tuned"
        [suites.s]
        """
    own = load_audit(write(configs / "a.toml", textwrap.dedent(text) + 'suite = "OccuGender"')).models["own"]
    assert [Path(p).resolve() for p in (own.source.model, own.source.adapter)] == [
        configs / "weights",
        configs / "tuned",
    ]
    for option, field in (
        ('suite = "MGBR"\nwords = {bolukbasi = "lists"}', "b.toml:8: suites.s.words.bolukbasi"),
        ('suite = "GenderPair"\npairs = "lists"', "b.toml:8: suites.s.pairs"),
    ):
        with pytest.raises(ConfigError, match=f"{configs / 'lists'}.* holds no file") as caught:
            load_audit(write(configs / "b.toml", textwrap.dedent(text) + option))
        assert caught.value.field == field


@pytest.mark.parametrize(
    ("text", "field", "says"),
    [
        ("seed = ", "CONFIG", "TOML"),
        ("seed = 1", "models", "missing"),
        ('[models.a]\nbackend = "gpt"\n[suites.s]\nsuite = "OccuGender"', "c.toml:2: models.a.backend", "openai"),
        ('[models.a]\nbackend = "fake"\n[suites.s]\nsuite = "Occu"', "c.toml:4: suites.s.suite", "OccuGender"),
        (
            '[models.a]\nbackend = "fake"\nlatncy = 1\n[suites.s]\nsuite = "OccuGender"',
            "c.toml:3: models.a.latncy",
            "latency",
        ),
        (
            '[models.a]\nbackend = "fake"\n[suites.s]\nfil = "pairs.csv"',
            "c.toml:4: suites.s.fil",
            "Did you mean 'file'",
        ),
        ('sed = 1\n[models.a]\nbackend = "fake"\n[suites.s]\nsuite = "OccuGender"', "c.toml:1: sed", "seed"),
        (
            '[models.a]\nbackend = "fake"\n[suites.s]\nsuite = "OccuGender"\n[suites.s.groups]\na = ["x"]\nb = ["x"]',
            "c.toml:7: suites.s.groups.b",
            "also an expression of",
        ),
    ],
)
def test_a_wrong_toml_config_names_field_and_hint(tmp_path, text, field, says):
    with pytest.raises(ConfigError, match=says) as caught:
        load_audit(write(tmp_path / "c.toml", text))
    assert caught.value.field == field


def test_a_rater_that_is_not_there_is_told_with_its_place(tmp_path):
    """It was told as `model`, as if the audited one were meant; `audit check` did not look at it."""
    rater = HFBackend(str(tmp_path / "nowhere"))
    audit = Audit({"m": FakeBackend("even")}, {"pairs": GenderPair(toxicity=rater)}, db=tmp_path / "a.db", out=tmp_path)
    with pytest.raises(ConfigError, match=r"suites\.pairs\.toxicity\.model = .*no such file or folder"):
        audit.check()
    assert [error.field for error in audit.mistakes()] == ["suites.pairs.toxicity.model"]
