"""OccuGender: which gender a model has in mind when it reads of an occupation.

Y. Chen, V. C. Raghuram, J. Mattern, R. Mihalcea, Z. Jin: "Causally Testing Gender Bias in LLMs:
A Case Study on Occupational Bias" (arXiv:2212.10678v3). Explicit prompts ask for the gender of
someone with an occupation; implicit prompts speak of such a person and leave the pronoun to
the model. Each prompt is scored with all expressions of male, female and diverse.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from backends.base import Capability, Response, ScoreRequest
from backends.errors import ConfigError
from suites.base import Factor, Item, MeasureSpec, Row, Suite
from suites.common.contrasts import effect_row, unit_of
from suites.common.expressions import GROUPS, Expressions, TokenAggregation, checked_expressions, continuations
from suites.common.gender_answer import read_gender_answer
from suites.common.occupations import Occupation, checked_occupations
from suites.common.reference import load
from suites.common.task_prompt import Article, PromptFormat, TaskPrompt, checked_choice, filled, parse_template
from suites.presentation import Chart, PublishedFigure, TableColumn, TableLayout

BIASES = ("explicit", "implicit")
#: How many templates of each kind the paper's debiasing runs use (Section 6.1: ten in all).
DEBIASING_TEMPLATES = 5
_LETTERS = {"m": "p_male", "f": "p_female", "d": "p_diverse"}
_CLUSTERS = ("occupation", "template")


@dataclass(frozen=True, slots=True)
class Template:
    """A template with its place in the design.

    ``for_debiasing``: one of those that are also asked with debiasing instructions.
    """

    id: str
    bias: str
    text: TaskPrompt
    for_debiasing: bool


class OccuGender(Suite):
    """OccuGender over a list of occupations.

    Parameters
    ----------
    bias : sequence of str
        ``explicit``, ``implicit``, or both.
    prompt_format : str
        ``raw``: the papers' text as it stands. ``chat``: the question as the user's turn and
        the answer's start as the assistant's (see `suites.common.task_prompt`).
    debiasing : bool or sequence of int
        True or ids: ask the first five templates of each kind also with the paper's debiasing
        instructions (1 to 6) put before the question. Effects are paired differences on these
        same templates, never against the mean over all.
    article : str
        ``as_printed`` keeps "a electrician" as the benchmark has it; ``grammatical`` mends it.
    templates : str or mapping
        ``paper``: 25 of each kind. ``anonymous_version``: the one of each kind in the earlier
        version of the paper. Or your own: ``{"explicit": ["Q: … [JOB] …\\nA:"], …}``.
    occupations : sequence, optional
        Your own, see `suites.common.occupations.checked_occupations`. Default: the paper's 40.
    expressions : mapping, optional
        Your own: ``{"explicit": {"male": […], "female": […], "diverse": […]}, …}``. Each is
        scored with a capital and with a small first letter.
    token_aggregation : str
        ``product``: equation (3). ``mean``: see `suites.common.expressions.group_probabilities`; with
        ``bias=("implicit",)`` it is the released code's way.

    Raises
    ------
    ConfigError
        For an option that cannot be used, naming it.
    """

    name: ClassVar[str] = "OccuGender"
    strata: ClassVar[tuple[str, ...]] = ("template", "dominated_by")
    failures_factor: ClassVar[str | None] = "dominated_by"
    sampled_together: tuple[str, ...] = ("template", "occupation")

    def __init__(
        self,
        bias: Sequence[str] = BIASES,
        *,
        prompt_format: PromptFormat = "raw",
        debiasing: bool | Sequence[int] = False,
        article: Article = "as_printed",
        templates: Literal["paper", "anonymous_version"] | Mapping[str, Sequence[str]] = "paper",
        occupations: Sequence[Occupation | Mapping[str, Any]] | None = None,
        expressions: Mapping[str, Mapping[str, Sequence[str]]] | None = None,
        token_aggregation: TokenAggregation = "product",
    ) -> None:
        data = load("occugender")
        self.biases = checked_biases("bias", bias)
        checked_choice("prompt_format", prompt_format, PromptFormat)
        checked_choice("article", article, Article)
        checked_choice("token_aggregation", token_aggregation, TokenAggregation)
        self.prompt_format, self.article, self.token_aggregation = prompt_format, article, token_aggregation
        self.instructions = _chosen_instructions(debiasing)
        self.templates = tuple(t for t in occugender_templates(templates, self.biases) if t.bias in self.biases)
        self.occupations = checked_occupations(
            "occupations", data.content["occupations"] if occupations is None else occupations
        )
        given = occugender_expressions() if expressions is None else expressions
        self.expressions: dict[str, Expressions] = {}
        for b in self.biases:
            if not isinstance(given, Mapping) or b not in given:
                raise ConfigError("expressions", given, f"has no entry {b!r}", "Give one for each kind of bias asked")
            self.expressions[b] = checked_expressions(f"expressions.{b}", given[b])

    @property
    def needs(self) -> frozenset[Capability]:
        return frozenset({"score", "chat"} if self.prompt_format == "chat" else {"score"})

    def signature(self) -> Mapping[str, Any]:
        return {
            "suite": self.name,
            "version": self.version,
            "data": load("occugender").sha256,
            "prompt_format": self.prompt_format,
            "article": self.article,
            "token_aggregation": self.token_aggregation,
            "debiasing": {str(i): text for i, (text, _) in self.instructions.items()},
            "templates": {t.id: t.text.raw() for t in self.templates},
            "occupations": [[o.name, o.dominated_by, o.female_share] for o in self.occupations],
            "expressions": {b: {g: list(words) for g, words in e.items()} for b, e in self.expressions.items()},
        }

    def items(self) -> Iterator[Item]:
        conditions: list[tuple[int | None, str | None]] = [(None, None)]
        conditions += [(i, text) for i, (text, _) in self.instructions.items()]
        for debiasing, text in conditions:
            for template in self.templates:
                if text is not None and not template.for_debiasing:
                    continue
                for occupation in self.occupations:
                    task = filled(template.text, occupation.name, self.article)
                    words = continuations(self.expressions[template.bias], task.space(self.prompt_format))
                    yield Item(
                        id="/".join(
                            [template.id, occupation.name] + ([f"debiasing-{debiasing}"] if text is not None else [])
                        ),
                        request=ScoreRequest(task.prompt(self.prompt_format, text), words),
                        factors={
                            "bias": template.bias,
                            "template": template.id,
                            "occupation": occupation.name,
                            "dominated_by": occupation.dominated_by,
                            "female_share": occupation.female_share,
                            "debiasing": debiasing,
                            "ten_templates": template.for_debiasing,
                        },
                    )

    def read(self, item: Item, response: Response) -> Row:
        expressions = self.expressions[str(item.factors["bias"])]
        return read_gender_answer(item.id, item.factors, response, expressions, self.token_aggregation)

    def derive(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Add the effect of each instruction: the answer with it minus the answer without,
        on the same template and occupation."""
        plain = {_pair(row): row for row in rows if row.factors["debiasing"] is None}
        effects = []
        for row in rows:
            if row.factors["debiasing"] is not None and (control := plain.get(_pair(row))) is not None:
                factors = {**row.factors, "instruction": row.factors["debiasing"]}
                effects.append(effect_row(f"{row.item_id}/effect", row, control, factors))
        return [*rows, *effects]

    def measures(self, rows: Sequence[Row]) -> Iterator[MeasureSpec]:
        groups = sorted({o.dominated_by for o in self.occupations})
        for bias in self.biases:
            levels: list[dict[str, Factor]] = [{"debiasing": None}]
            if self.instructions:
                levels.append({"debiasing": None, "ten_templates": True})
            levels += [{"debiasing": i} for i in self.instructions]
            for level in levels:
                where: dict[str, Factor] = {"bias": bias, **level}
                for group in groups:
                    yield from _probabilities({**where, "dominated_by": group}, _CLUSTERS, "group probabilities")
                yield from self._stereotypes(where)
            yield from self._effects(bias)
            for level in levels:
                if level.get("ten_templates"):
                    continue  # per occupation once is enough
                for occupation in self.occupations:
                    where = {"bias": bias, **level, "occupation": occupation.name}
                    yield from _probabilities(where, ("template",), "occupations", is_subgroup=True)
                    if occupation.dominated_by != "neutral":
                        yield _gap(where, ("template",), "occupations", is_subgroup=True)

    def _stereotypes(self, where: Mapping[str, Factor]) -> Iterator[MeasureSpec]:
        if any(o.dominated_by != "neutral" for o in self.occupations):
            yield _gap(where, _CLUSTERS, "stereotype")
        if len({o.female_share for o in self.occupations} - {None}) > 1:
            yield MeasureSpec(
                "share_correlation",
                "p_female",
                where,
                estimator="correlation",
                clusters=_CLUSTERS,
                covariate="female_share",
                unit="correlation",
                neutral=0.0,
                family="stereotype",
                probability_mass="coverage",
            )

    def _effects(self, bias: str) -> Iterator[MeasureSpec]:
        for measure in ("effect", "effect_p_diverse"):
            for i in self.instructions:
                yield MeasureSpec(
                    measure,
                    measure,
                    {"bias": bias, "instruction": i},
                    clusters=_CLUSTERS,
                    unit=unit_of(measure),
                    neutral=0.0,
                    family=f"{measure}, {bias}",
                    contrast=True,
                )

    def texts(self) -> Mapping[str, str]:
        return {f"instruction {i}": text for i, (text, _) in self.instructions.items()}

    def published(self) -> Sequence[PublishedFigure]:
        """Tables 3 and 4, and Appendix E (ten templates) when instructions are asked."""
        printed = load("published_results").content
        figures = [
            PublishedFigure(
                entry["model"],
                _LETTERS[letter],
                {"bias": bias, "debiasing": None, "dominated_by": group},
                percent / 100,
                entry[f"{group}_dominated_pm"][letter] / 100,
            )
            for bias in self.biases
            for entry in printed["occugender"][bias]
            for group in ("female", "male")
            for letter, percent in entry[f"{group}_dominated"].items()
        ]
        for model, conditions in printed["occugender_debiasing"]["models"].items():
            for condition in conditions:
                if condition["debiasing"] not in (None, *self.instructions) or not self.instructions:
                    continue
                for bias in self.biases:
                    for group in ("female", "male"):
                        where = {"bias": bias, **_appendix_row(condition["debiasing"]), "dominated_by": group}
                        for letter, percent in condition[bias][f"{group}_dominated"].items():
                            figures.append(PublishedFigure(model, _LETTERS[letter], where, percent / 100))
        return figures

    def tables(self) -> Sequence[TableLayout]:
        numbers = {"explicit": "3", "implicit": "4"}
        printed = load("published_results").content["occugender"]["source"]
        source = printed.partition("; pm = ")[0]  # what follows explains the data file's own fields
        layouts = [
            TableLayout(
                f"{bias}_bias",
                f"{bias.capitalize()} bias: probability of each gender, in per cent (layout of Table {numbers[bias]})",
                tuple(_group_columns({"bias": bias, "debiasing": None})),
                scale=100,
                decimals=1,
                source=source,
            )
            for bias in self.biases
        ]
        if self.instructions:
            layouts.append(
                TableLayout(
                    "debiasing",
                    "With each debiasing instruction, over ten templates, in per cent (layout of Appendix E)",
                    tuple(c for bias in self.biases for c in _group_columns({"bias": bias}, f"{bias.capitalize()}, ")),
                    rows=(
                        ("None", _appendix_row(None)),
                        *((str(i), _appendix_row(i)) for i in self.instructions),
                    ),
                    scale=100,
                    decimals=1,
                    source=load("published_results").content["occugender_debiasing"]["source"],
                )
            )
        return layouts

    def charts(self) -> Sequence[Chart]:
        shares = {o.name: o.female_share for o in self.occupations if o.female_share is not None}
        pictures = [
            Chart(
                "dots",
                "Stereotype gap: how far each model follows the stereotype",
                ("stereotype_gap",),
                {"debiasing": None},
                facet="bias",
                caption="0: no lean to either gender's occupations. 1: every occupation gets its stereotype.",
            )
        ]
        if shares:
            pictures.append(
                Chart(
                    "scatter",
                    "Probability of female against the real share of women",
                    ("p_female",),
                    {"debiasing": None},
                    by="occupation",
                    facet="bias",
                    covariate=shares,
                    covariate_label="Share of women in the occupation",
                    caption="A model that mirrors the labour market lies on the diagonal; an even one on a level line.",
                )
            )
        if self.instructions:
            pictures.append(
                Chart(
                    "dots",
                    "Effect of each debiasing instruction on the stereotype gap",
                    ("effect",),
                    by="instruction",
                    facet="bias",
                    caption="Difference on the same templates and occupations. Below 0: less stereotype.",
                )
            )
        return pictures


def checked_biases(field: str, given: Sequence[str]) -> tuple[str, ...]:
    """Kinds of bias in the papers' order, or a `ConfigError`."""
    if isinstance(given, str) or not given or not set(given) <= set(BIASES):
        raise ConfigError(field, given, "not a list of kinds of bias", f"Give one or more of {', '.join(BIASES)}")
    return tuple(b for b in BIASES if b in given)


def occugender_expressions() -> dict[str, dict[str, Sequence[str]]]:
    """The paper's expressions: all for explicit prompts (Appendix A), pronouns for implicit (Table 2)."""
    return {
        "explicit": load("occugender").content["verbalizations"],
        "implicit": {"male": ["He"], "female": ["She"], "diverse": ["They"]},
    }


def occugender_instructions() -> dict[int, tuple[str, str]]:
    """The paper's six debiasing instructions: id → (text, degree of abstraction)."""
    return {d["id"]: (d["text"], d["abstraction"]) for d in load("occugender").content["debiasing_instructions"]}


def occugender_templates(chosen: object, biases: Sequence[str]) -> Iterator[Template]:
    """Templates of the named set, or the user's own, with their ids."""
    content = load("occugender").content
    if chosen == "paper":
        sets: Mapping[str, Sequence[str]] = content["templates"]
    elif chosen == "anonymous_version":
        sets = {bias: [content["anonymous_version_prompts"][bias]] for bias in BIASES}
    elif isinstance(chosen, Mapping) and chosen and set(chosen) <= set(BIASES):
        sets = chosen
    else:
        hint = 'Use "paper", "anonymous_version", or {"explicit": […], "implicit": […]}'
        raise ConfigError("templates", chosen, "unknown", hint)
    prefix = "anonymous-" if chosen == "anonymous_version" else ""
    for bias in biases:
        texts = sets.get(bias)
        if not texts or isinstance(texts, str):
            raise ConfigError(f"templates.{bias}", texts, "no templates", "Give one or more, or leave this bias out")
        for text in texts:
            if list(texts).count(text) > 1:
                raise ConfigError(f"templates.{bias}", text, "given twice", "Give each template once")
        for i, text in enumerate(texts):
            parsed = parse_template(f"templates.{bias}[{i}]", text)
            yield Template(f"{prefix}{bias}-{i + 1:02d}", bias, parsed, i < DEBIASING_TEMPLATES)


def _chosen_instructions(debiasing: object) -> dict[int, tuple[str, str]]:
    known = occugender_instructions()
    if isinstance(debiasing, bool):
        return known if debiasing else {}
    if isinstance(debiasing, Sequence) and not isinstance(debiasing, str) and set(debiasing) <= set(known):
        return {i: known[i] for i in known if i in debiasing}
    raise ConfigError("debiasing", debiasing, "not instructions", f"Use true, false, or a list of ids in {list(known)}")


def _pair(row: Row) -> tuple[Factor, Factor]:
    return row.factors["template"], row.factors["occupation"]


def _appendix_row(debiasing: int | None) -> dict[str, Factor]:
    """Where of a row of Appendix E. Its first row is over the same ten templates as the others."""
    return {"debiasing": None, "ten_templates": True} if debiasing is None else {"debiasing": debiasing}


def _probabilities(
    where: Mapping[str, Factor], clusters: tuple[str, ...], family: str, *, is_subgroup: bool = False
) -> Iterator[MeasureSpec]:
    for group in GROUPS:
        name = f"p_{group}"
        yield MeasureSpec(
            name, name, where, clusters=clusters, family=family, is_subgroup=is_subgroup, probability_mass="coverage"
        )
    yield MeasureSpec(
        "coverage", "coverage", where, clusters=clusters, family=f"{family}: raw mass", is_subgroup=is_subgroup
    )


def _gap(
    where: Mapping[str, Factor], clusters: tuple[str, ...], family: str, *, is_subgroup: bool = False
) -> MeasureSpec:
    return MeasureSpec(
        "stereotype_gap",
        "stereotype_gap",
        where,
        clusters=clusters,
        unit="difference of probabilities",
        neutral=0.0,
        family=family,
        is_subgroup=is_subgroup,
        probability_mass="coverage",
    )


def _group_columns(where: Mapping[str, Factor], prefix: str = "") -> Iterator[TableColumn]:
    for group in ("female", "male"):
        for label, measure in (("Male", "p_male"), ("Female", "p_female"), ("Diverse", "p_diverse")):
            yield TableColumn(label, measure, {**where, "dominated_by": group}, f"{prefix}{group}-dominated")
