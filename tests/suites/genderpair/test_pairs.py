"""Pair sets: the one that ships, and the published one against the paper's counts."""

import dataclasses
from pathlib import Path

import pytest

from backends.errors import ConfigError
from suites.genderpair import GenderPair
from suites.genderpair.pairs import ASPECTS, GROUPS, built_in_pairs, published_pairs

DATA = Path(__file__).parents[4] / "shared" / "data" / "genderpair"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the published files are not on this machine")


def test_the_built_in_set_has_thirty_pairs_in_every_group():
    pairs = built_in_pairs()
    assert tuple(pairs.groups) == GROUPS
    for group in pairs.groups.values():
        assert len(group.pairs) >= 30
        assert len(set(group.pairs)) == len(group.pairs)
        assert len(set(group.targets)) == len(group.targets)
        assert all(sum(a == aspect for a, _ in group.targets) >= 3 for aspect in ASPECTS)
        assert all(p.biased.casefold() != p.anti.casefold() for p in group.pairs)


@needs_data
def test_the_differences_from_the_paper_are_reported():
    differences = [*published_pairs(DATA).differences()]
    assert "group male: 85 descriptors, the paper has 83" in differences
    assert "group neither: 16 pronouns, the paper has 18" in differences
    assert "group male: 32640 prompts, the paper has 31872" in differences
    assert any("compasionate" in line for line in differences)
    assert not any("group female" in line and "paper has" in line for line in differences)


def test_a_folder_without_the_files_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"group1_pairset\.json"):
        published_pairs(tmp_path)


@needs_data
def test_a_part_of_the_published_set_is_another_set():
    whole = published_pairs(DATA)
    part = dataclasses.replace(
        whole,
        groups={n: dataclasses.replace(g, pairs=g.pairs[:5], targets=g.targets[:4]) for n, g in whole.groups.items()},
    )
    assert (whole.is_published, part.is_published) == (True, False)
    suites = [GenderPair(pairs=pairs, toxicity=None, regard=None) for pairs in (whole, part)]
    assert suites[0].shown.published
    assert not suites[1].shown.published
    assert suites[0].signature() != suites[1].signature()
    assert "pairs_content" not in GenderPair(toxicity=None, regard=None).signature()
