from collections import Counter
from statistics import fmean

import pytest

from backends.errors import ConfigError
from suites import DebiasingPositions
from suites.debiasing import DebiasingPrompt
from tests.suites.debiasing.planted import PROMPT


def test_the_papers_design_is_complete():
    items = [i for i in DebiasingPositions(placebo=False).items() if i.factors["bias"] != "reference"]
    assert len(items) == len({i.id for i in items}) == 4 * 7 * 3 * 40
    assert Counter(i.factors["position"] for i in items) == {
        "without_dialogue": 1120,
        "with_dialogue": 1120,
        "repeated": 1120,
    }


def test_a_degrees_published_figure_is_the_mean_of_its_instructions():
    suite = DebiasingPositions()
    found = {(f.model, f.measure, *sorted(f.where.items(), key=str)): f.value for f in suite.shown.published}
    where = {"bias": "implicit", "position": "without_dialogue", "dominated_by": "female"}
    model = next(f.model for f in suite.shown.published)

    def value(**level):
        return found[(model, "p_female", *sorted((where | level).items(), key=str))]

    of_degree = [prompt.id for prompt in suite.prompts if prompt.abstraction == "high"]
    assert value(abstraction="high") == pytest.approx(fmean(value(debiasing=of) for of in of_degree))


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"positions": []}, "positions"),
        ({"positions": ["system"]}, "positions"),
        ({"prompts": [PROMPT, PROMPT]}, "prompts"),
        ({"prompts": [DebiasingPrompt(1, "Be fair to all.", "high", placebo="Look up.")]}, r"prompts\[0\].placebo"),
        ({"prompts": [DebiasingPrompt(1, "Be fair.", None)]}, r"prompts\[0\].abstraction = None"),
        ({"prompts": [DebiasingPrompt(1, "Be fair.", "high", "Be fair.")]}, "the same as its prompt"),
        ({"dialogue": {"opening": "Hi.", "turns": [["a ", "b"]]}}, r"dialogue.turns\[0\]\[0\] = 'a '"),
        ({"occupations": [{"occupation": "nurse", "female_share": 0.1, "dominated_by": "female"}]}, "contradicts"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(options, field):
    with pytest.raises(ConfigError, match=field):
        DebiasingPositions(**options)
