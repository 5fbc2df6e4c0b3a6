"""Which texts may be swapped: every swap that is made is right, and plain texts stay swappable."""

import json
import time
from pathlib import Path

import pytest

from suites.genderpair.swaps.decide import REASONS, reason_against
from suites.genderpair.swaps.identities import swap_identity

_DATA = Path(__file__).parent / "data"
#: 60 adversarial texts, labelled before the rule was changed; 60 by somebody who had not seen the rule, 20 of them
#: plain; 60 of an earlier version. ``expected`` null: no single right version.
ADVERSARIAL = json.loads((_DATA / "adversarial_swaps.json").read_text("utf-8"))["swaps"]
UNSEEN = json.loads((_DATA / "unseen_swaps.json").read_text("utf-8"))["swaps"]
EARLIER = json.loads((_DATA / "identity_swaps.json").read_text("utf-8"))["swaps"]
TARGETS = {"male": "man", "female": "woman", "neither": "nonbinary"}


def reason(text, source, target=None, aspect="identities"):
    return reason_against(text, target or TARGETS[source], aspect, source)


def made(swaps):
    """Each swap that is made, with its label."""
    for s in swaps:
        target, aspect = s.get("target", TARGETS[s["source"]]), s.get("aspect", "identities")
        if reason(s["text"], s["source"], target, aspect) is None:
            yield s, swap_identity(s["text"], target, aspect, s["source"], s["to"])


def is_right(swap, found):
    return found is not None and found in (swap["expected"], *swap.get("also", ()))


@pytest.mark.parametrize("swaps", [ADVERSARIAL, UNSEEN, EARLIER], ids=["adversarial", "unseen", "earlier"])
def test_at_most_one_of_sixty_swaps_is_wrong(swaps):
    wrong = [(s["text"], found) for s, found in made(swaps) if not is_right(s, found)]
    assert len(swaps) == 60
    assert len(wrong) <= 1, wrong


def test_most_plain_texts_are_swapped():
    plain = [s for s in UNSEEN if s["plain"]]
    assert len(plain) == 20
    assert len(list(made(plain))) >= 15


def test_most_texts_of_models_are_swapped():
    """Texts that two small models wrote. Of a neutral target they mostly write "she", or a plural "they"."""
    texts = json.loads((_DATA / "model_texts.json").read_text("utf-8"))["texts"]
    named = [t for t in texts if t["source"] != "neither" and any(versions(t))]
    kept = [t for t in named if reason(t["text"], t["source"], t["target"], t["aspect"]) is None]
    assert (len(texts), len(named)) == (118, 68)
    assert len(kept) >= 50


def versions(t):
    for to in ("male", "female", "neither"):
        if to != t["source"]:
            yield swap_identity(t["text"], t["target"], t["aspect"], t["source"], to)


@pytest.mark.parametrize(
    ("text", "source", "expected"),
    [
        ("He drove to King's Cross.", "male", "noun"),
        ("The man was there to man the desk.", "male", "noun"),
        ("Oh boy, he was stubborn.", "male", "noun"),
        ("He is a good son-in-law.", "male", "noun"),
        ("He is a duke.", "male", "noun"),
        ("The boys and the girls like him.", "male", "noun"),
        ("He met Anna.", "male", "name"),
        ("Will said that he was late.", "male", "name"),
        ("Her hosts fed her dog food.", "female", "case"),
        ("Her hosts heard her laugh.", "female", "case"),
        ("They told the Smiths that they were late.", "neither", "name"),
        ("Because the apples were cheap, they smiled.", "neither", "persons"),
        ("He said that he or she may come.", "male", "persons"),
        ("He is kind. She is not.", "male", "persons"),
        ("He walks home and trains dogs and waters plants.", "male", "agreement"),
        ("They all laughed.", "neither", "persons"),
    ],
)
def test_a_text_is_left_out_for_its_reason(text, source, expected):
    assert expected in REASONS
    assert reason(text, source) == expected


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("The man was tired. The man slept.", "male"),
        ("He has always been shy and rarely speaks.", "male"),
        ("The woman raised her hand. Her boss thanked her.", "female"),
        ("Nobody is there.", "male"),
        ("They water the lawn and never rush.", "neither"),
    ],
)
def test_a_plain_text_has_no_reason_against_it(text, source):
    assert reason(text, source) is None


@pytest.mark.parametrize(
    "part",
    ["he is kind and ", "They ", "They smile. ", "he, too, ", "and is, ", "gave her ", "his ", "{", "and a boy "],
)
def test_a_long_text_is_decided_in_linear_time(part):
    text = "He walks. " + part * (48_000 // len(part))
    started = time.process_time()
    for source in ("male", "female", "neither"):
        reason(text, source)
    assert time.process_time() - started < 15


def test_a_target_without_a_counterpart_is_not_swapped():
    text = "The monk was disciplined. He rose at four every morning and kept to himself."
    assert reason_against(text, "monk", "identities", "male") == "noun"
    assert reason_against(text.replace("monk", "uncle"), "uncle", "identities", "male") is None
    assert reason_against("Up at four every morning.", "monk", "identities", "male") is None, "it needs no swap"
