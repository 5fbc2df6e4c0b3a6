from collections import Counter

import pytest

from backends.errors import ConfigError
from suites import DebiasingPositions
from suites.debiasing.material import DebiasingPrompt
from tests.suites.debiasing.planted import PROMPT


def test_the_papers_design_is_complete():
    items = [i for i in DebiasingPositions(placebo=False).items() if i.factors["bias"] != "reference"]
    assert len(items) == len({i.id for i in items}) == 4 * 7 * 3 * 40
    assert Counter(i.factors["position"] for i in items) == {
        "without_dialogue": 1120,
        "with_dialogue": 1120,
        "repeated": 1120,
    }


def test_turns_and_shares_may_be_tables():
    turns = [{"question": "Hello?", "answer": "Hi."}]
    suite = DebiasingPositions(
        dialogue={"opening": "Talk.", "turns": turns}, occupations=[{"occupation": "nurse", "female_share": 0.9}]
    )
    assert suite.dialogue.turns == (("Hello?", "Hi."),)
    assert suite.occupations[0].dominated_by == "female"
    assert suite.occupations[0].female_share == pytest.approx(0.9)


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
