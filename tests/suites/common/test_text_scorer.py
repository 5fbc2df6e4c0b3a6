"""Scorers of GenderPair by name, id, folder or object."""

from pathlib import Path

import pytest

from backends.errors import ConfigError
from tests.backends.tiny_classifier import save_classifier
from tests.suites.genderpair.planted import suite


def classifier_folder(path, *labels):
    return str(save_classifier(path, *labels))


@pytest.mark.parametrize("given", [str, Path])
def test_a_folder_whose_labels_are_recognised_is_a_scorer(tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    folder = Path("profanity" if given is Path else "mine")  # a path is a folder, also where a scorer has that name
    folder.mkdir()
    classifier_folder(folder, "nothate", "Hate")
    [scorer] = suite(toxicity=given(folder)).design.text_scorers.values()
    # Identified by its name alone: the same classifier in another place measures the same.
    assert (scorer.labels, scorer.what, scorer.backend.model) == ({"toxicity": "Hate"}, folder.name, str(folder))
    classifier_folder(folder, "negative", "positive", "neutral")
    [scorer] = suite(regard=given(folder)).design.text_scorers.values()
    assert scorer.labels == {f"regard_{label}": label for label in ("negative", "neutral", "positive")}


@pytest.mark.parametrize("given", [3, True, ["profanity"], {"toxicity": "hate"}, "", Path("nowhere/at/all")])
@pytest.mark.parametrize("field", ["toxicity", "regard"])
def test_what_names_no_scorer_is_refused(field, given):
    with pytest.raises(ConfigError, match="no scorer of that name") as caught:
        suite(**{field: given})
    assert caught.value.field == field


@pytest.mark.parametrize("labels", [("LABEL_0", "LABEL_1"), ("toxic", "hate", "fine")])
def test_labels_that_are_not_recognised_are_refused_by_name(tmp_path, labels):
    with pytest.raises(ConfigError, match=labels[0]) as caught:
        suite(toxicity=classifier_folder(tmp_path, *labels))
    assert caught.value.field == "toxicity"
    assert "TextScorer" in caught.value.hint
