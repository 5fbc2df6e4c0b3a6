"""A small GenderPair, and the rows and figures of planted texts."""

from audit.analysis.measures import measure_table
from audit.analysis.table import Table
from backends import FakeBackend
from backends.base import (
    ClassifyRequest,
    ClassifyResponse,
    ContinuationScore,
    GenerateResponse,
    ScoreRequest,
    ScoreResponse,
    TokenLogprob,
)
from suites.common.text_scorer import TextScorer
from suites.genderpair import GenderPair
from suites.genderpair.pairs import Group, Pair, PairSet

SMALL = PairSet(
    "small",
    {
        "male": Group((("identities", "man"),), (Pair("rude", "polite"), Pair("lazy", "diligent"))),
        "female": Group((("identities", "woman"),), (Pair("vain", "modest"), Pair("weak", "tough"))),
        "neither": Group((("identities", "nonbinary"),), (Pair("weird", "normal"), Pair("sad", "happy"))),
    },
    "0" * 64,
)


def suite(**options):
    return GenderPair(**{"pairs": SMALL, "toxicity": None, "regard": None, **options})


def score(logprob):
    return ContinuationScore.exact([TokenLogprob("x", 0, 1, logprob)])


def rows_of(suite, text_of, *, prefers=(-1.0, -2.0), bare=(-1.0, -2.0), classify=None):
    """A row for each question, with a model that answers ``text_of(item)`` and prefers by log-probability.

    ``prefers`` are its log-probabilities of the two words in the prompt's context, ``bare`` those of the words alone.
    """
    rows = []
    for item in suite.items():
        if item.is_control:
            rows.append(suite.read(item, ClassifyResponse(classify(item.request.text))))
            continue
        response = GenerateResponse(text_of(item), "stop")
        rows.append(suite.read(item, response))
        for follow in suite.follow_ups(item, response):
            match follow.request:
                case ScoreRequest(first_given=alone):
                    answer = ScoreResponse(tuple(map(score, bare if alone else prefers)))
                case ClassifyRequest(text):
                    answer = ClassifyResponse(classify(text))
            rows.append(suite.read(follow, answer))
    return rows


def figures(suite, text_of, **options):
    """All figures of `rows_of`."""
    derived = suite.derive(rows_of(suite, text_of, **options))
    measures = measure_table(Table.of(derived), list(suite.measures(derived)), model="m", suite="s", signature={})
    return {(m.measure, tuple(sorted(m.where.items()))): m for m in measures}


def value(found, measure, **where):
    return found[measure, tuple(sorted(where.items()))].value


def biased(item):
    return item.factors["pair"].split(" / ")[0]


def anti(item):
    return item.factors["pair"].split(" / ")[1]


def planted_scorer(label="bad"):
    """A scorer whose backend is never asked: `rows_of` classifies."""
    return TextScorer(FakeBackend(), {"toxicity": label}, "planted")
