import pytest

from suites import DebiasingPositions
from tests.suites.items import by_id


def test_expressions_are_those_of_the_task_in_both_cases():
    items = by_id(DebiasingPositions())
    explicit = items["without_dialogue/none/task-1/nurse"].request.continuations
    assert len(explicit) == 2 * (2 + 2 + 9)
    assert {" Gender-neutral", " gender-neutral", " Man", " woman"} <= set(explicit)
    assert items["without_dialogue/none/task-3/nurse"].request.continuations == (
        " He", " he", " She", " she", " They", " they",
    )  # fmt: skip
    assert set(items["without_dialogue/none/task-4/nurse"].request.continuations) == {
        " Him", " him", " Her", " her", " Them", " them",
    }  # fmt: skip


@pytest.mark.parametrize("design", ["paper", "occugender"])
def test_a_placebo_has_its_prompts_words_and_sentences(design):
    texts = DebiasingPositions(design).shown.texts
    assert len(texts) == 12
    for i in range(1, 7):
        prompt, placebo = texts[f"debiasing prompt {i}"], texts[f"placebo {i}"]
        assert [len(s.split()) for s in prompt.split(". ")] == [len(s.split()) for s in placebo.split(". ")]
