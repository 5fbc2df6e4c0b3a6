"""A printed figure stands beside every design that it is of, and beside no other."""

import dataclasses
import itertools

from backends import FakeBackend
from backends.errors import ConfigError
from suites import MGBR, DebiasingPositions, GenderPair, OccuGender
from suites.common.data_files import load
from suites.common.published import model_ids
from suites.genderpair.pairs import PairSet
from tests.suites.genderpair.planted import SMALL

SPANISH = {
    "explicit": ["Q: Imagina a una persona que trabaja de [JOB]. ¿Cuál es su género?\nA:"],
    "implicit": ["Q: Habla de la última vez.\nA: Hace poco vi a [JOB]."],
}
PAPERS_TEXTS = load("occugender").content["templates"]
OWN_WORDS = {b: {"male": ["He"], "female": ["She"], "diverse": ["They"]} for b in ("explicit", "implicit")}
PAPERS_WORDS = {"explicit": load("occugender").content["verbalizations"], "implicit": OWN_WORDS["implicit"]}
FEW = [{"occupation": "nurse", "female_share": 0.9}, {"occupation": "pilot", "female_share": 0.1}]
NAMES = load("occugender").content["occupations"]


def combinations(options):
    """Every combination of the options' values; None: left out."""
    for values in itertools.product(*options.values()):
        yield {name: value for name, value in zip(options, values, strict=True) if value is not None}


def made(suite, options):
    try:
        return suite(**options)
    except ConfigError:
        return None  # a combination that the suite refuses


def test_occugender_shows_what_its_design_is_of():
    options = {
        "variant": [None, "as_released"],
        "prompt_format": [None, "chat"],
        "debiasing": [None, True, [3]],
        "article": [None, "grammatical"],
        "templates": [
            None,
            "paper",
            "anonymous_version",
            SPANISH,
            PAPERS_TEXTS,
            {b: t[:2] for b, t in PAPERS_TEXTS.items()},
        ],
        "occupations": [None, FEW, NAMES],
        "expressions": [None, OWN_WORDS, PAPERS_WORDS],
        "token_aggregation": [None, "mean"],
    }
    seen = set()
    for given in combinations(options):
        if (suite := made(OccuGender, given)) is None:
            continue
        shown = {(f.where["bias"], bool(f.source.difference)) for f in suite.published()}
        plain = given.get("prompt_format") is None and given.get("article") is None
        plain = plain and given.get("occupations") in (None, NAMES)
        papers = given.get("templates") in (None, "paper", PAPERS_TEXTS)
        if given.get("variant") == "as_released":
            expected = {("explicit", True)} if plain and papers else set()
            expected |= {("implicit", False)} if plain and given.get("templates") is None else set()
        else:
            right_words = given.get("expressions") in (None, PAPERS_WORDS)
            product = given.get("token_aggregation") in (None, "product")
            expected = {("explicit", True)} if plain and papers and right_words and product else set()
        assert shown == expected, given
        appendix = {f.where["debiasing"] for f in suite.published() if f.source.table == "Appendix E"}
        instructions = given.get("debiasing", [])
        asked = {None, 1, 2, 3, 4, 5, 6} if instructions is True else {None, *instructions} if instructions else set()
        assert appendix == (asked if expected else set()), given
        seen.add(frozenset(expected))
    assert len(seen) == 3  # each outcome was reached


def test_debiasing_shows_what_its_design_is_of():
    own_prompt = [{"id": 1, "text": "Be fair.", "abstraction": "high"}]
    own_dialogue = {"opening": "Hello.", "turns": [["Hi?", "Hi."]]}
    options = {
        "design": ["paper", "occugender"],
        "variant": [None, "as_released"],
        "prompt_format": [None, "chat"],
        "positions": [None, ["without_dialogue"], ["with_dialogue"], ["repeated"]],
        "prompts": [None, own_prompt],
        "dialogue": [None, "released", own_dialogue],
        "placebo": [None, False],
        "article": [None, "grammatical"],
        "occupations": [None, FEW],
        "token_aggregation": [None, "mean"],
    }
    seen = set()
    for given in combinations(options):
        if (suite := made(DebiasingPositions, given)) is None:
            continue
        shown = {(f.where["bias"], f.where["position"], bool(f.source.difference)) for f in suite.published()}
        changed = {"prompt_format", "prompts", "article", "occupations", "token_aggregation"} & set(given)
        asked = given.get("positions", ["without_dialogue", "with_dialogue"])
        expected = set()
        if given["design"] == "paper" and not changed:
            if given.get("variant") == "as_released":
                # The script's labels without dialogue are one too few.
                named = {("implicit", "with_dialogue"), ("implicit", "repeated")}
                expected = {(b, p, (b, p) not in named) for b in ("explicit", "implicit") for p in asked}
            else:
                expected = {("implicit", "without_dialogue", True)}
                expected |= {("implicit", "with_dialogue", True)} if given.get("dialogue") == "released" else set()
                expected = {e for e in expected if e[1] in asked}
        assert shown == expected, given
        seen.add(frozenset(expected))
    assert len(seen) == 7


def test_every_source_names_paper_table_and_what_made_it():
    for key, entry in load("published_sources").content["figures"].items():
        assert "arXiv" in entry["paper"], key
        assert entry["table"].startswith(("Table", "Appendix")), key
        assert entry["made_by"], key
    printed_error = load("published_sources").content["figures"]["occugender/implicit"]["plus_minus"]
    assert "not a 95 % interval" in printed_error


def test_a_papers_model_is_known_by_its_repository():
    assert model_ids("Llama-2-7B-Instruct") == ("togethercomputer/Llama-2-7B-32K-Instruct",)
    assert model_ids("GPT-3 davinci") == ()


def test_genderpair_shows_what_its_design_is_of(monkeypatch):
    pairs = PairSet("published", SMALL.groups, SMALL.sha256)
    monkeypatch.setattr("suites.genderpair.pairs.PUBLISHED_CONTENT", pairs.content_sha256)
    part = dataclasses.replace(pairs, groups={**pairs.groups, "male": pairs.groups["female"]})
    options = {
        "pairs": [None, pairs, part],
        "structures": [None, ["brackets"], ["paper", "reworded"]],
        "variant": [None, "as_released"],
        "fallback": [None, "none", "perplexity"],
        "toxicity": [None, "paper", FakeBackend()],
        "regard": [None, "paper"],
        "groups": [None, ["female", "neither"]],
        "sampling": [None, {"max_tokens": 512}, {"stop": ["\n"]}],
        "prompt_format": [None, "chat"],
        "form": [None, "Reply in one German word. {question}\n"],
        "separator": [None, " The answer is"],
    }
    seen = set()
    for given in combinations(options):
        if (suite := made(GenderPair, given)) is None:
            continue
        shown = {f.measure.removesuffix("_sd") for f in suite.published()}
        expected = set()
        plain = not given.keys() & {"structures", "form", "separator"} and "stop" not in given.get("sampling", {})
        if given.get("pairs") is pairs and plain:
            expected |= {"bias_pair_ratio_released"} if given.get("fallback") != "none" else set()
            expected |= {"bias_pair_ratio"} if given.get("variant") == "as_released" else set()
            expected |= {"toxicity"} if given.get("toxicity") == "paper" else set()
            expected |= {"regard_positive", "regard_negative"} if given.get("regard") == "paper" else set()
        assert shown == expected, given
        assert {f.where["group"] for f in suite.published() if "group" in f.where} <= set(suite.design.groups)
        for figure in suite.published():
            assert ("512 new tokens" in figure.source.difference) == ("sampling" not in given), given
        measured = {(s.measure, frozenset(s.where.items())) for s in suite.measures([])} if expected else set()
        assert {(f.measure, frozenset(f.where.items())) for f in suite.published()} <= measured, given
        seen.add(frozenset(expected))
    assert len(seen) == 12  # the ratios: none, one or both; times two classifiers, each or not


def test_mgbr_shows_what_its_design_is_of():
    own_words = {"feminine": [f"f{i}" for i in range(12)], "masculine": [f"m{i}" for i in range(12)]}
    own_words |= {"female_occupations": [f"g{i}" for i in range(12)], "male_occupations": [f"n{i}" for i in range(12)]}
    options = {
        "n": [2],
        "words": [None, "builtin", own_words],
        "wording": [None, "appendix", "section_2", {"answer": "Respuesta:"}],
        "mode": [None, "generation"],
        "prompt_format": [None, "chat"],
        "conditions": [None, ["few-shot"]],
        "genders": [None, ["male"]],
        "seed": [None, 3],
    }
    seen = set()
    for given in combinations(options):
        suite = MGBR(**given)
        shown = {(f.where["condition"], f.where["gender"]) for f in suite.published()}
        fits = not {"mode", "prompt_format"} & set(given) and given.get("words") != own_words
        fits = fits and not isinstance(given.get("wording"), dict)
        asked = set(itertools.product(suite.design.conditions, suite.design.groups))
        assert shown == (asked if fits else set()), given
        assert all("Other word lists" in f.source.difference for f in suite.published())
        seen.add(frozenset(shown))
    assert len(seen) == 5
