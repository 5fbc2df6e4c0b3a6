from suites import DebiasingPositions
from suites.debiasing.material import DebiasingPrompt
from tests.suites.debiasing.planted import PROMPT


def test_a_degree_needs_a_placebo_of_each_of_its_prompts():
    prompts = [PROMPT, DebiasingPrompt(2, "Think twice.", "high"), DebiasingPrompt(3, "Stop.", "low", placebo="Look.")]
    found = {
        (s.where["versus"], s.where["degree"])
        for s in DebiasingPositions(prompts=prompts).measures([])
        if "degree" in s.where
    }
    assert found == {("none", "high"), ("none", "low"), ("placebo", "low")}


def test_units_say_how_large_an_effect_can_be():
    units = {s.measure: s.unit for s in DebiasingPositions().measures([]) if s.unit.startswith("difference")}
    assert units == {
        "stereotype_gap": "difference of probabilities",
        "effect": "difference of gaps",
        "effect_p_diverse": "difference of probabilities",
        "effect_via_diverse": "difference of probabilities",
        "effect_via_balance": "difference of gaps",
        "effect_coverage": "difference of probabilities",
        "effect_reference_text": "difference of probabilities",
        "placebo_effect": "difference of gaps",
        "effect_attenuation": "difference of effects",
        "effect_attenuation_p_diverse": "difference of effects",
    }


def test_only_differences_between_conditions_are_contrasts():
    contrasts = {s.measure for s in DebiasingPositions().measures([]) if s.contrast}
    assert contrasts == {
        "effect",
        "effect_p_diverse",
        "effect_via_diverse",
        "effect_via_balance",
        "effect_coverage",
        "effect_reference_text",
        "placebo_effect",
        "effect_attenuation",
        "effect_attenuation_p_diverse",
    }
