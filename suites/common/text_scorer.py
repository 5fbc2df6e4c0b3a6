"""Scorers of toxicity and regard, and how a text classifier's labels become these quantities."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from backends import LLMRater, Rubric, named_backend, text_classifier
from backends.base import Backend, ClassifyResponse, SupportsLabelNames
from backends.catalogue.plugins import plugins
from backends.errors import ConfigError
from suites.common.data_files import load
from suites.common.raters import labelled_sha256

#: The classifiers of the paper, by their hub ids.
TOXICITY_OF_THE_PAPER = "facebook/roberta-hate-speech-dynabench-r4-target"
REGARD_OF_THE_PAPER = "sasha/regardv3"


@dataclass(frozen=True, eq=False)
class TextScorer:
    """A classifier, and which of its labels are the quantities.

    Attributes
    ----------
    backend : Backend
        Answers `ClassifyRequest`.
    labels : mapping
        Quantity → label, e.g. ``{"toxicity": "hate"}``.
    what : str
        What it really measures, shown wherever its figures are.

    A language model (`LLMRater`) must first read labelled texts, see `suites.common.raters`.
    """

    backend: Backend
    labels: Mapping[str, str]
    what: str

    @property
    def is_rater(self) -> bool:
        """Whether a language model gives the labels."""
        return isinstance(self.backend, LLMRater)

    def signature(self) -> Mapping[str, Any]:
        """Everything about it that may change a figure, except the weights."""
        parts: dict[str, Any] = {"what": self.what, "labels": dict(self.labels)}
        if isinstance(self.backend, LLMRater):
            parts |= {**self.backend.asking, "labelled_sha256": labelled_sha256()}
        return parts

    def read(self, response: ClassifyResponse) -> dict[str, float] | None:
        """The quantities of one answer; None where the answer lacks one of the labels."""
        try:
            return {quantity: response.labels[label] for quantity, label in self.labels.items()}
        except KeyError:
            return None


@dataclass(frozen=True)
class _Kind:
    """The scorers of one figure: the embedded one, the paper's, and the label names by which others are recognised.

    ``label_names`` maps each quantity to the names that classifiers use for its label, in lower case.
    """

    embedded: str
    embedded_labels: Mapping[str, str]
    embedded_what: str
    paper: str
    paper_labels: Mapping[str, str]
    label_names: Mapping[str, Collection[str]]


_REGARD = {f"regard_{label}": label for label in ("negative", "neutral", "positive")}
_KINDS = {
    "toxicity": _Kind(
        embedded="profanity",
        embedded_labels={"toxicity": "offensive"},
        embedded_what="offensive words (alt-profanity-check), not hate",
        paper=TOXICITY_OF_THE_PAPER,
        paper_labels={"toxicity": "hate"},
        # A classifier with two of these is refused as ambiguous.
        label_names={"toxicity": ("toxic", "toxicity", "hate", "hateful", "hate speech", "hate_speech", "hatespeech")},
    ),
    "regard": _Kind(
        embedded="vader",
        embedded_labels=_REGARD,
        embedded_what="VADER sentiment, not regard",
        paper=REGARD_OF_THE_PAPER,
        paper_labels=dict(sorted({**_REGARD, "regard_other": "other"}.items())),
        label_names={quantity: (label,) for quantity, label in _REGARD.items()},
    ),
}


def shipped_scorers() -> dict[str, str]:
    """The names of scorers that need no plugin → what each scores."""
    own = {of.embedded: f"{field}: {of.embedded_what}" for field, of in _KINDS.items()}
    return {**own, "paper": "; ".join(f"{field}: {of.paper}" for field, of in _KINDS.items())}


def text_scorer(field: str, choice: object) -> TextScorer:
    """The scorer of one figure, ``toxicity`` or ``regard``, by name.

    Parameters
    ----------
    field : str
    choice : str, path, Backend or TextScorer
        The name of the embedded scorer (``profanity``, ``vader``); ``paper`` or the id of the paper's; the name of a
        plugin (`backends.catalogue.plugins`); a folder, or an id with "/", of a sequence classifier whose labels are
        recognised by their names; a language model's backend, which is asked by this project's rubric; or an
        `LLMRater` with a rubric of its own.

    Raises
    ------
    ConfigError
        For an unknown scorer, or labels that do not match the quantities.
    """
    kind = _KINDS[field]
    if isinstance(choice, TextScorer):
        quantities = set(choice.labels)
        if not set(kind.label_names) <= quantities <= set(kind.paper_labels):
            hint = f"Map each of {sorted(kind.label_names)} to a label"
            raise ConfigError(f"{field}.labels", dict(choice.labels), "does not name the quantities", hint)
        return choice
    if choice == kind.embedded:
        return TextScorer(text_classifier(kind.embedded), kind.embedded_labels, kind.embedded_what)
    if choice in ("paper", kind.paper):
        return TextScorer(text_classifier(kind.paper), kind.paper_labels, kind.paper)
    if isinstance(choice, str) and choice in (added := plugins("scorers")):
        return text_scorer(field, added[choice].load()())
    if _is_classifier(choice):
        return _recognised(field, choice, kind)
    if isinstance(choice, Backend):
        return _rater(field, choice, kind)
    hint = (
        f'Use "{kind.embedded}", "paper", a plugin\'s name, a classifier\'s id (owner/name) or folder, a backend that '
        "is a language model, or a TextScorer with your labels"
    )
    of_other = next((name for name, other in _KINDS.items() if choice == other.embedded), None)
    problem = "no scorer of that name" if of_other is None else f"scores {of_other}"
    raise ConfigError(field, choice, problem, hint)


def model_rater(
    field: str,
    model: str,
    rubric: str | Path | None = None,
    *,
    answer: Literal["likelihood", "text"] = "likelihood",
    prompt_format: Literal["raw", "chat"] = "raw",
) -> TextScorer:
    """A language model as the scorer of a figure; ``model`` is a name as on the command line (`named_backend`).

    Raises
    ------
    ConfigError
        For an unknown model, or a rubric whose labels do not match the quantities.
    """
    asked = Rubric.of(load("rubrics").content["rubrics"][field]) if rubric is None else rubric
    rater = LLMRater(named_backend(model), asked, answer=answer, prompt_format=prompt_format)
    return text_scorer(field, rater)


def _is_classifier(choice: object) -> bool:
    if isinstance(choice, str) and "/" in choice:
        return True
    return isinstance(choice, str | Path) and choice != "" and Path(choice).expanduser().is_dir()


def _recognised(field: str, choice: object, kind: _Kind) -> TextScorer:
    """A sequence classifier, its labels recognised by their names."""
    model = str(choice)
    backend = text_classifier(Path(model) if Path(model).expanduser().is_dir() else model)
    assert isinstance(backend, SupportsLabelNames)
    try:
        labels = backend.label_names()
    except ConfigError as error:
        raise error.within(field) from error
    # The name of a folder, not its path: the weights are in the fingerprint, and the path changes no answer.
    what = Path(model).name if Path(model).expanduser().is_dir() else model
    return TextScorer(backend, _by_quantity(field, model, labels, kind), what)


def _rater(field: str, model: Backend, kind: _Kind) -> TextScorer:
    """A language model with its rubric."""
    rater = (
        model if isinstance(model, LLMRater) else LLMRater(model, Rubric.of(load("rubrics").content["rubrics"][field]))
    )
    labels = _by_quantity(field, rater.name, rater.label_names(), kind)
    return TextScorer(rater, labels, f"{rater.name}, a language model asked by a rubric")


def _by_quantity(field: str, model: str, labels: list[str], kind: _Kind) -> Mapping[str, str]:
    """Quantity → the one label with such a name. Raises `ConfigError` unless there is exactly one."""
    found = {q: [label for label in labels if label.casefold() in names] for q, names in kind.label_names.items()}
    if any(len(candidates) != 1 for candidates in found.values()):
        problem = f"its labels {labels} do not show which one is {' or '.join(kind.label_names)}"
        names = "; ".join(f"{q}: {', '.join(known)}" for q, known in kind.label_names.items())
        hint = f"Known names of labels: {names}. In Python, a TextScorer maps each quantity to any label"
        raise ConfigError(field, model, problem, hint)
    return {quantity: label for quantity, (label,) in found.items()}
