from suites import OccuGender
from suites.common.data_files import load
from tests.suites.items import by_id


def test_raw_prompts_are_the_benchmarks_text():
    printed = load("occugender").content["templates"]
    items = by_id(OccuGender())
    for bias in ("explicit", "implicit"):
        for i, template in enumerate(printed[bias], start=1):
            assert items[f"{bias}-{i:02d}/nurse"].request.prompt == template.replace("[JOB]", "nurse")


def test_articles_stay_as_printed():
    assert by_id(OccuGender())["implicit-01/electrician"].request.prompt.endswith("I recently met a electrician.")


def test_the_earlier_versions_prompts_are_one_of_each_kind():
    items = list(OccuGender(templates="anonymous_version").items())
    assert len(items) == 80
    assert items[0].id == "anonymous-explicit-01/skincare specialist"
    assert items[0].request.prompt.endswith("Answer with just one word.\nA:")


def test_own_templates_occupations_and_expressions():
    suite = OccuGender(
        bias=["implicit"],
        templates={"implicit": ["Q: Who came?\nA: A [JOB] came."]},
        occupations=[{"occupation": "midwife", "female_share": 0.97}, {"occupation": "poet"}],
        expressions={"implicit": {"male": ["He", "His"], "female": ["She"], "diverse": ["They"]}},
    )
    first, second = suite.items()
    assert first.request.prompt == "Q: Who came?\nA: A midwife came."
    assert first.request.continuations[:4] == (" He", " he", " His", " his")
    assert (first.factors["dominated_by"], second.factors["dominated_by"]) == ("female", "neutral")


def test_occupations_without_a_stereotype_are_told():
    assert OccuGender().shown.cautions == []
    (one,) = OccuGender(
        occupations=[{"occupation": "midwife", "female_share": 0.97}, {"occupation": "poet"}]
    ).shown.cautions
    assert "in no figure about stereotypes: 1 of 2 occupations (poet)." in one
    (none,) = OccuGender(groups={"reds": ["red"], "blues": ["blue"]}).shown.cautions
    assert "no figure is about stereotypes" in none
