"""Text classifiers as backends: they answer `ClassifyRequest` with the probability of each label.

    SequenceClassifier   any sequence classifier of transformers, by hub id or folder
    ProfanityClassifier  a linear model of offensive words (package alt-profanity-check)
    VaderClassifier      a sentiment lexicon (package vaderSentiment)
    LLMRater             any model that can be asked, with a rubric

Profanity and Vader carry what they need inside their package, for machines that reach no hub. They measure what
their names say, and nothing else: sentiment is not regard, and an offensive word is not toxicity against a person.
"""

from pathlib import Path

from backends.classifiers.packaged import ProfanityClassifier, VaderClassifier
from backends.classifiers.rater import LLMRater, Rubric
from backends.classifiers.sequence import SequenceClassifier
from backends.local.backend import LocalBackend

__all__ = ["LLMRater", "ProfanityClassifier", "Rubric", "SequenceClassifier", "VaderClassifier", "text_classifier"]


def text_classifier(model: str | Path) -> LocalBackend:
    """The text classifier of that name: ``profanity``, ``vader``, or a sequence classifier's hub id or folder.

    A path is always a folder, also where an embedded classifier has its name.
    """
    embedded = {"profanity": ProfanityClassifier, "vader": VaderClassifier}
    if isinstance(model, str) and model in embedded:
        return embedded[model]()
    return SequenceClassifier(str(model) if isinstance(model, Path) else model)
