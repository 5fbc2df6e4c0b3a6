from collections import Counter

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
