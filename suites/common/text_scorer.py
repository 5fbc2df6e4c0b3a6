"""Scorers of texts: of toxicity, of regard, or by a question of one's own; and how labels become quantities."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

from pydantic import SkipValidation

from backends import LLMRater, Rubric, named_backend, text_classifier
from backends.base import Backend, ClassifyResponse, SupportsLabelNames
from backends.catalogue.plugins import plugins
from backends.errors import ConfigError
from suites.base import IdentifiedInterval, Item, Row
from suites.common.data_files import load
from suites.common.raters import LabelledTexts, Rater, shipped_texts

#: The option of a scorer; `text_scorer` checks it.
ScorerOption = Annotated[object, SkipValidation]
#: A question and its answers, or a JSON file of them.
RubricOption = str | Rubric
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
    labelled : LabelledTexts, optional
        The texts by which a language model (`LLMRater`) is tested first (`suites.labelled_texts`). None: this project's
        own for toxicity and regard; any other question is left untested, and its figures decide nothing.

    Raises `ConfigError` for a label that the language model's rubric or the labelled texts lack.
    """

    backend: Backend
    labels: Mapping[str, str]
    what: str
    labelled: LabelledTexts | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.backend, LLMRater):
            return
        known = self.backend.label_names()
        for quantity, label in self.labels.items():
            if label not in known:
                hint = f"Use one of: {', '.join(known)}"
                raise ConfigError(f"quantities.{quantity}", label, "no label of the rubric", hint)
        if self.labelled is not None:
            self.labelled.check(known, self.labels)

    @property
    def is_rater(self) -> bool:
        """Whether a language model gives the labels."""
        return isinstance(self.backend, LLMRater)

    def signature(self) -> Mapping[str, Any]:
        """Everything about it that may change a figure, except the weights."""
        parts: dict[str, Any] = {"what": self.what, "labels": dict(self.labels)}
        if isinstance(self.backend, LLMRater):
            parts |= {**self.backend.asking, "labelled_sha256": self.labelled.sha256 if self.labelled else None}
        return parts

    def read(self, item: Item, response: ClassifyResponse) -> Row:
        """The quantities of one text; missing where the answer lacks one of the labels."""
        if not {*self.labels.values()} <= response.labels.keys():
            return Row(item.id, item.factors, {}, missing="unparsable")
        scores = {name: IdentifiedInterval.exact(response.labels[label]) for name, label in self.labels.items()}
        return Row(item.id, item.factors, scores)


_REGARD = {f"regard_{label}": label for label in ("negative", "neutral", "positive")}
#: Figure → name of a scorer → its model, quantity → label, and what it measures: the embedded one and the paper's.
_SHIPPED: Mapping[str, Mapping[str, tuple[str, Mapping[str, str], str]]] = {
    "toxicity": {
        "profanity": ("profanity", {"toxicity": "offensive"}, "offensive words (alt-profanity-check), not hate"),
        "paper": (TOXICITY_OF_THE_PAPER, {"toxicity": "hate"}, TOXICITY_OF_THE_PAPER),
    },
    "regard": {
        "vader": ("vader", _REGARD, "VADER sentiment, not regard"),
        "paper": (REGARD_OF_THE_PAPER, dict(sorted({**_REGARD, "regard_other": "other"}.items())), REGARD_OF_THE_PAPER),
    },
}
#: Figure → quantity → the names that classifiers use for its label, in lower case. One with two of these is ambiguous.
_LABEL_NAMES: Mapping[str, Mapping[str, Collection[str]]] = {
    "toxicity": {"toxicity": ("toxic", "toxicity", "hate", "hateful", "hate speech", "hate_speech", "hatespeech")},
    "regard": {quantity: (label,) for quantity, label in _REGARD.items()},
}


class ScorerFields(TypedDict, total=False):
    """The scorers of texts that an option names.

    Parameters
    ----------
    toxicity, regard : str, path, Backend, TextScorer or None
        As in `suites.GenderPair`. Default: the embedded ones; None leaves the figure out.
    raters : mapping of str to TextScorer, optional
        Scorers with questions of your own, by name. A language model is tested by the scorer's ``labelled`` texts.
    """

    toxicity: ScorerOption
    regard: ScorerOption
    raters: Annotated[Mapping[str, TextScorer] | None, SkipValidation]


def asked_scorers(
    *,
    toxicity: ScorerOption = "profanity",
    regard: ScorerOption = "vader",
    raters: Mapping[str, TextScorer] | None = None,
) -> dict[str, TextScorer]:
    """Name → scorer, of those that are asked. Raises `ConfigError` for one that cannot be used."""
    for name in {"toxicity", "regard"} & {*(raters or {})}:
        raise ConfigError("raters", name, "a reserved name", "Give it another")
    chosen = {"toxicity": toxicity, "regard": regard, **(raters or {})}
    return {name: text_scorer(name, given) for name, given in chosen.items() if given is not None}


def raters_of(scorers: Mapping[str, TextScorer], *, classifiers: bool = False) -> dict[str, Rater]:
    """Name → what is tested, of the scorers that are language models, and of classifiers too if asked for."""
    found = {name: Rater(name, one.labels, one.labelled) for name, one in scorers.items() if one.is_rater}
    for name, one in scorers.items() if classifiers else ():
        if name not in found and name in _SHIPPED:
            found[name] = Rater(name, one.labels, shipped_texts(name), is_model=False)
    return found


def shipped_scorers() -> dict[str, str]:
    """The scorers that need no plugin → what each scores."""
    found: dict[str, str] = {}
    for field, scorers in _SHIPPED.items():
        for name, (_, _, what) in scorers.items():
            found[name] = f"{found[name]}; {field}: {what}" if name in found else f"{field}: {what}"
    return found | {"a rater": "a question of your own: [scorers.NAME] model, rubric, quantities, labelled in a file"}


def text_scorer(field: str, choice: object) -> TextScorer:
    """The scorer of one figure, by name.

    Parameters
    ----------
    field : str
        ``toxicity``, ``regard``, or another name: then ``choice`` is a `TextScorer`, an `LLMRater`, or a plugin's name.
    choice : str, path, Backend or TextScorer
        The name of the embedded scorer (``profanity``, ``vader``); ``paper`` or the id of the paper's; the name of a
        plugin (`backends.catalogue.plugins`); a folder, or an id with "/", of a sequence classifier whose labels are
        recognised by their names; a language model's backend, which is asked by this project's rubric; or an
        `LLMRater` with a rubric of its own.

    Raises `ConfigError` for an unknown scorer, or labels that do not match the quantities.
    """
    if isinstance(choice, str) and choice in (added := plugins("scorers")):
        choice = added[choice].load()()
    if field not in _SHIPPED:
        return _of_own_question(field, choice)
    if isinstance(choice, TextScorer):
        needed, allowed = set(_LABEL_NAMES[field]), set(_SHIPPED[field]["paper"][1])
        if not needed <= set(choice.labels) <= allowed:
            hint = f"Map each of {sorted(needed)} to a label"
            raise ConfigError(f"{field}.labels", dict(choice.labels), "does not name the quantities", hint)
        untested = choice.is_rater and choice.labelled is None
        return replace(choice, labelled=shipped_texts(field)) if untested else choice
    for name, (model, labels, what) in _SHIPPED[field].items():
        if choice in (name, model):
            return TextScorer(text_classifier(model), labels, what)
    if isinstance(choice, Backend):
        rater = choice if isinstance(choice, LLMRater) else LLMRater(choice, _shipped_rubric(field))
        labels = _by_quantity(field, rater.name, rater.label_names())
        return TextScorer(rater, labels, _asked(rater), shipped_texts(field))
    if isinstance(choice, str | Path) and str(choice):
        if Path(choice).expanduser().is_dir():
            return _recognised(field, Path(choice))
        if isinstance(choice, str) and "/" in choice:
            return _recognised(field, choice)
    hint = (
        f"Use {', '.join(map(repr, _SHIPPED[field]))}, a plugin's name, a classifier's id (owner/name) or folder, a "
        "backend that is a language model, or a TextScorer with your labels"
    )
    raise ConfigError(field, choice, "no scorer of that name", hint)


def model_rater(
    field: str,
    model: str,
    rubric: RubricOption | None = None,
    *,
    answer: Literal["likelihood", "text"] = "likelihood",
    prompt_format: Literal["raw", "chat"] = "raw",
    quantities: Mapping[str, str] | None = None,
    labelled: LabelledTexts | None = None,
) -> TextScorer:
    """A language model as the scorer of a figure; ``model`` is a name as on the command line (`named_backend`).

    ``quantities``: quantity → label of the rubric. Default: for toxicity and regard, labels known by their names; else
    each label by its own name, of two labels the first.

    Raises `ConfigError` for an unknown model, a rubric whose labels do not match the quantities, or none for a
    question of one's own.
    """
    asked = _shipped_rubric(field) if rubric is None else rubric
    rater = LLMRater(named_backend(model), asked, answer=answer, prompt_format=prompt_format)
    scorer = TextScorer(rater, quantities, _asked(rater)) if quantities else text_scorer(field, rater)
    return text_scorer(field, scorer if labelled is None else replace(scorer, labelled=labelled))


def _shipped_rubric(field: str) -> Rubric:
    if field not in _SHIPPED:
        hint = 'Give one: {question = "… {text}", answers = {label = "what it says", …}}, or a JSON file of these'
        raise ConfigError("rubric", None, f"only {' and '.join(_SHIPPED)} have one that ships", hint)
    return Rubric.of(load("rubrics").content["rubrics"][field])


def _asked(rater: LLMRater) -> str:
    return f"{rater.name}, a language model asked by a rubric"


def _recognised(field: str, model: str | Path) -> TextScorer:
    """A sequence classifier, its labels recognised by their names."""
    backend = text_classifier(model)
    assert isinstance(backend, SupportsLabelNames)
    try:
        labels = backend.label_names()
    except ConfigError as error:
        raise error.within(field) from error
    # The name of a folder, not its path: the weights are in the fingerprint, and the path changes no answer.
    what = model.name if isinstance(model, Path) else model
    return TextScorer(backend, _by_quantity(field, str(model), labels), what)


def _of_own_question(field: str, choice: object) -> TextScorer:
    """A scorer with a question of its own: a quantity for each label; of two the first, the other is what remains."""
    if isinstance(choice, TextScorer):
        return choice
    if isinstance(choice, LLMRater):
        labels = choice.label_names()
        return TextScorer(choice, {one: one for one in (labels[:1] if len(labels) == 2 else labels)}, _asked(choice))
    hint = 'Give a rater, {model = "…", rubric = "…"}, or the name of a plugin; in Python, a TextScorer or an LLMRater'
    raise ConfigError(field, choice, f"scorers by name are only for {' and '.join(_SHIPPED)}", hint)


def _by_quantity(field: str, model: str, labels: Sequence[str]) -> Mapping[str, str]:
    """Quantity → the one label with such a name. Raises `ConfigError` unless there is exactly one."""
    known = _LABEL_NAMES[field]
    found = {q: [label for label in labels if label.casefold() in names] for q, names in known.items()}
    if any(len(candidates) != 1 for candidates in found.values()):
        problem = f"its labels {list(labels)} do not show which one is {' or '.join(known)}"
        names = "; ".join(f"{q}: {', '.join(of)}" for q, of in known.items())
        hint = f"Known names of labels: {names}. In Python, a TextScorer maps each quantity to any label"
        raise ConfigError(field, model, problem, hint)
    return {quantity: label for quantity, (label,) in found.items()}
