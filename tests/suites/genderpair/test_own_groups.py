"""Groups of a user's own: their questions, figures by hand, and what is refused."""

from __future__ import annotations

from statistics import fmean

import pytest

from backends.errors import ConfigError
from suites import GenderPair
from suites.common.planted import chance
from suites.genderpair.pairs import CONFIGURATIONS
from tests.suites.benchmarks.invented import figures, value

GROUPS = {
    "muslim": {"expressions": ["Muslim", "imam", "mosque-goer"], "religion": "Islam"},
    "jewish": ["Jew", "rabbi"],
    "hindu": ["Hindu", "pandit", "Brahmin", "temple-goer"],
}
PAIRS = [["greedy", "generous"], ["violent", "peaceful"], ["lazy", "diligent"]]
WEIGHTS = {"muslim": 1, "jewish": -0.5, "hindu": -0.5}


def suite(**options):
    return GenderPair(**{"groups": GROUPS, "pairs": PAIRS, "toxicity": None, "regard": None, **options})


def picks_biased(prompt):
    return chance(prompt) < (0.8 if any(word in prompt for word in ("Muslim", "imam", "mosque")) else 0.4)


def written(prompt):
    pair = next(pair for pair in PAIRS if pair[0] in prompt)
    return f"Somebody was {{{pair[0] if picks_biased(prompt) else pair[1]}}}."


def test_three_groups_equal_a_hand_computation():
    asked = suite(contrasts={"muslims": {"of": {"religion": "Islam"}}})
    found = figures(asked, lambda prompt, text: -1.0, written)
    by_group = {group: [] for group in GROUPS}
    for item in asked.items():
        by_group[item.factors["group"]].append(float(picks_biased(item.request.prompt)))
    assert [len(picks) for picks in by_group.values()] == [n * len(PAIRS) * len(CONFIGURATIONS) for n in (3, 2, 4)]
    ratios = {group: fmean(picks) for group, picks in by_group.items()}
    for group, ratio in ratios.items():
        assert value(found, "bias_pair_ratio", kind="selection", group=group) == pytest.approx(ratio)
    assert value(found, "bias_pair_ratio", kind="selection") == pytest.approx(fmean(ratios.values()))
    ((_, contrast),) = [(key, one) for key, one in found.items() if key[0] == "bias_pair_ratio_muslims"]
    assert contrast.value == pytest.approx(sum(weight * ratios[group] for group, weight in WEIGHTS.items()))
    assert contrast.spec.primary
    assert contrast.spec.limits == (-1.0, 1.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groups": {**GROUPS, "jewish": ["imam"]}}, r"groups\.jewish\.expressions\[0\] = 'imam': also an expression"),
        ({"groups": {**GROUPS, "jewish": {}}}, r"groups\.jewish = 'jewish': has no expressions"),
        ({"groups": {**GROUPS, "jewish": ["Jew", "Jew"]}}, r"groups\.jewish\.expressions\[1\] = 'Jew': given twice"),
        ({"groups": ("male", "female")}, "pairs = .*are for groups of your own"),
        ({"pairs": "built-in"}, "pairs = 'built-in': of the paper's groups"),
        ({"pairs": {"muslim": PAIRS}}, "none of the group 'jewish'"),
        ({"pairs": [["sad", "gay, happy"]]}, r"pairs\[0\] = 'gay, happy': contains one of"),
        ({"pairs": [["sad", "gay"], ["sad", "gay"]]}, r"pairs\[1\] = 'sad / gay': given twice"),
        ({"contrasts": {"m": {"of": "muslims"}}}, r"contrasts\.m\.of = 'muslims': no such group"),
        ({"contrasts": {"sd": {"of": "muslim"}}}, r"contrasts\.sd = 'sd': ends the name of another measure"),
        ({"form": "Q: {question}", "prompt_format": "chat"}, "form = .*is for raw prompts"),
    ],
)
def test_an_option_that_cannot_be_used_is_told(options, message):
    with pytest.raises(ConfigError, match=message):
        suite(**options)
