"""Debiasing prompts as an experiment: which text, where in the prompt, against which control.

J. Mattern, Z. Jin, M. Sachan, R. Mihalcea, B. Schölkopf: "Understanding Stereotypes in Language
Models: Towards Robust Measurement and Zero-Shot Debiasing" (arXiv:2212.10678v1). Each debiasing
prompt is a treatment with two controls: no text at all, and a placebo, a neutral text of the
same number of words at the same place. Every effect is a difference between two answers that
differ in that text alone.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal

from backends.base import Capability, Message, Response, ScoreRequest, ScoreResponse, prompt_to_json
from backends.errors import ConfigError
from suites.base import Factor, IdentifiedInterval, Item, MeasureSpec, Row, Suite
from suites.common.contrasts import DIFFERENCE, contrast, effect_row, split_effect, unit_of, with_share
from suites.common.expressions import GROUPS, Expressions, TokenAggregation, checked_expressions, continuations
from suites.common.gender_answer import read_gender_answer
from suites.common.occupations import Occupation, checked_occupations
from suites.common.reference import load
from suites.common.task_prompt import (
    Article,
    PromptFormat,
    TaskPrompt,
    checked_choice,
    filled,
    parse_prompt,
    parse_template,
)
from suites.debiasing.positions import Dialogue, Position, checked_dialogue, checked_positions
from suites.occugender.suite import (
    BIASES,
    occugender_expressions,
    occugender_instructions,
    occugender_templates,
)
from suites.presentation import Chart, PublishedFigure, TableColumn, TableLayout

Design = Literal["paper", "occugender"]

_LETTERS = {"m": "p_male", "f": "p_female", "d": "p_diverse"}
_CLUSTERS = ("occupation", "template")
_REFERENCE = "reference"
#: The position against which forgetting is told.
_AT_BEST = "without_dialogue"
_FORGOTTEN = {"effect": "forgotten", "effect_p_diverse": "forgotten_p_diverse"}


@dataclass(frozen=True, slots=True)
class DebiasingPrompt:
    """A debiasing text with its placebo.

    Attributes
    ----------
    id : int
        The level of the factors ``debiasing`` and ``instruction``.
    text : str
        The treatment.
    abstraction : str
        ``high``, ``medium`` or ``low``, or any other word to group prompts by.
    placebo : str or None
        A neutral text of as many words. None: no placebo for this prompt.
    """

    id: int
    text: str
    abstraction: str
    placebo: str | None = None


_PROMPT_FIELDS = {f.name for f in fields(DebiasingPrompt)}


@dataclass(frozen=True, slots=True)
class _Task:
    id: str
    bias: str
    template: TaskPrompt
    expressions: Expressions


@dataclass(frozen=True, slots=True)
class _Condition:
    """A text put into the prompt, or none, and how rows of it are told apart."""

    debiasing: int | str | None
    text: str | None
    abstraction: str | None = None
    placebo: int | None = None


class DebiasingPositions(Suite):
    """Every debiasing prompt and its placebo, at every position, over tasks and occupations.

    Parameters
    ----------
    design : str
        ``paper``: the four task prompts and six debiasing prompts of Mattern et al.
        ``occugender``: OccuGender's ten debiasing templates and its six instructions.
    prompt_format : str
        ``raw`` or ``chat``, see `suites.common.task_prompt`.
    positions : sequence, optional
        Names of `suites.debiasing.positions.POSITIONS`, or positions of your own. Default: all that the
        prompt format allows.
    prompts : sequence, optional
        Your own debiasing prompts instead of the design's six: `DebiasingPrompt` objects, or
        mappings of their fields.
    dialogue : Dialogue or mapping, optional
        Opening instruction and conversation. The paper does not print its own: the default is
        a generic one with three turns.
    placebo : bool
        False leaves the placebos out.
    article, occupations, token_aggregation
        As in `suites.occugender.suite.OccuGender`.

    Raises
    ------
    ConfigError
        For an option that cannot be used, naming it.
    """

    name: ClassVar[str] = "DebiasingPositions"
    strata: ClassVar[tuple[str, ...]] = ("template", "dominated_by")
    failures_factor: ClassVar[str | None] = "dominated_by"
    sampled_together: tuple[str, ...] = ("template", "occupation")

    def __init__(
        self,
        design: Design = "paper",
        *,
        prompt_format: PromptFormat = "raw",
        positions: Sequence[str | Position] | None = None,
        prompts: Sequence[DebiasingPrompt | Mapping[str, Any]] | None = None,
        dialogue: Dialogue | Mapping[str, Any] | None = None,
        placebo: bool = True,
        article: Article = "as_printed",
        occupations: Sequence[Occupation | Mapping[str, Any]] | None = None,
        token_aggregation: TokenAggregation = "product",
    ) -> None:
        checked_choice("design", design, Design)
        checked_choice("prompt_format", prompt_format, PromptFormat)
        checked_choice("article", article, Article)
        checked_choice("token_aggregation", token_aggregation, TokenAggregation)
        controls = load("debiasing_controls").content
        if not isinstance(placebo, bool):
            raise ConfigError("placebo", placebo, "not true or false", "Give one of them")
        self.design, self.prompt_format, self.article = design, prompt_format, article
        self.token_aggregation = token_aggregation
        self.positions = checked_positions("positions", positions, prompt_format)
        self.dialogue = checked_dialogue("dialogue", controls["dialogue"] if dialogue is None else dialogue)
        self.occupations = checked_occupations(
            "occupations", load("occugender").content["occupations"] if occupations is None else occupations
        )
        self.prompts = _checked_prompts("prompts", _printed_prompts(design) if prompts is None else prompts)
        if not placebo:
            self.prompts = tuple(replace(p, placebo=None) for p in self.prompts)
        self.tasks = {t.id: t for t in (_paper_tasks() if design == "paper" else _occugender_tasks())}
        self.references = [
            (parse_prompt(f"reference_texts[{i}]", entry["prompt"]), str(entry["continuation"]))
            for i, entry in enumerate(controls["reference_texts"])
        ]
        self._own_prompts = prompts is not None
        for position in self.positions:
            self._check_builds(position)

    def _check_builds(self, position: Position) -> None:
        """A position gives a prompt of the format asked for, with the text in it, and without it none."""
        field, probe = f"positions.{position.name}", "A debiasing text"
        task = next(iter(self.tasks.values())).template
        built = [position.build(task, text, self.dialogue, self.prompt_format) for text in (None, probe)]
        for prompt in built:
            messages = isinstance(prompt, tuple) and all(isinstance(m, Message) for m in prompt) and prompt
            if not (isinstance(prompt, str) and prompt if self.prompt_format == "raw" else messages):
                wanted = "a text" if self.prompt_format == "raw" else "a tuple of messages"
                hint = "Build it by the argument prompt_format, or name the position's formats"
                raise ConfigError(field, prompt, f"builds something else than {wanted}", hint)
        without, with_text = (json.dumps(prompt_to_json(prompt)) for prompt in built)
        if probe not in with_text:
            raise ConfigError(field, built[1], "leaves the debiasing text out", "Put the argument text into the prompt")
        if probe in without or without == with_text.replace(probe, "None"):
            problem = "holds a text where there is to be none"
            raise ConfigError(field, built[0], problem, "Leave it out when the argument text is None")

    @property
    def needs(self) -> frozenset[Capability]:
        return frozenset({"score", "chat"} if self.prompt_format == "chat" else {"score"})

    def signature(self) -> Mapping[str, Any]:
        probes = TaskPrompt("{question}", "{start}"), TaskPrompt("{question}", "")
        return {
            "suite": self.name,
            "version": self.version,
            "data": {n: load(n).sha256 for n in ("debiasing_positions", "occugender", "debiasing_controls")},
            "design": self.design,
            "prompt_format": self.prompt_format,
            "article": self.article,
            "token_aggregation": self.token_aggregation,
            # a position is what it builds: a changed function of the same name is another suite
            "positions": {
                p.name: [
                    prompt_to_json(p.build(probe, text, self.dialogue, self.prompt_format))
                    for probe in probes
                    for text in ("{text}", None)
                ]
                for p in self.positions
            },
            "prompts": {str(p.id): [p.text, p.abstraction, p.placebo] for p in self.prompts},
            "occupations": [[o.name, o.dominated_by, o.female_share] for o in self.occupations],
        }

    # -- questions -----------------------------------------------------------------------------

    def items(self) -> Iterator[Item]:
        for position in self.positions:
            for condition in self._conditions():
                shared: dict[str, Factor] = {
                    "position": position.name,
                    "debiasing": condition.debiasing,
                    "abstraction": condition.abstraction,
                    "placebo": condition.placebo,
                }
                label = "none" if condition.debiasing is None else condition.debiasing
                for task in self.tasks.values():
                    for occupation in self.occupations:
                        text = filled(task.template, occupation.name, self.article)
                        yield self._item(
                            f"{position.name}/{label}/{task.id}/{occupation.name}",
                            position,
                            condition,
                            text,
                            continuations(task.expressions, text.space(self.prompt_format)),
                            {
                                "bias": task.bias,
                                "template": task.id,
                                "occupation": occupation.name,
                                "dominated_by": occupation.dominated_by,
                                "female_share": occupation.female_share,
                                **shared,
                            },
                        )
                for number, (text, continuation) in enumerate(self.references, start=1):
                    name = f"{_REFERENCE}-{number:02d}"
                    yield self._item(
                        f"{position.name}/{label}/{name}",
                        position,
                        condition,
                        text,
                        (text.space(self.prompt_format) + continuation,),
                        {"bias": _REFERENCE, "template": name, "occupation": None, "dominated_by": None, **shared},
                    )

    def _item(
        self,
        item_id: str,
        position: Position,
        condition: _Condition,
        text: TaskPrompt,
        words: tuple[str, ...],
        factors: Mapping[str, Factor],
    ) -> Item:
        prompt = position.build(text, condition.text, self.dialogue, self.prompt_format)
        return Item(item_id, ScoreRequest(prompt, words), factors)

    def _conditions(self) -> Iterator[_Condition]:
        yield _Condition(None, None)
        for p in self.prompts:
            yield _Condition(p.id, p.text, abstraction=p.abstraction)
        for p in self.prompts:
            if p.placebo is not None:
                yield _Condition(f"placebo-{p.id}", p.placebo, placebo=p.id)

    # -- answers -------------------------------------------------------------------------------

    def read(self, item: Item, response: Response) -> Row:
        if item.factors["bias"] == _REFERENCE:
            return _read_reference(item, response)
        expressions = self.tasks[str(item.factors["template"])].expressions
        return read_gender_answer(item.id, item.factors, response, expressions, self.token_aggregation)

    def derive(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Add effects, their two parts and their loss under a dialogue, all as paired rows.

        ``effect…``      treated minus control, with factors ``instruction`` and ``versus``
        ``placebo_…``    placebo minus none, told by the factor ``placebo``
        ``forgotten``    the effect under a position (factor ``under``) minus the effect without
                         dialogue: positive when less of a gap's reduction is left
        """
        answers = {_where_asked(row): row for row in rows}
        effects: list[Row] = []
        for row in rows:
            position, template, occupation, level = _where_asked(row)
            if isinstance(level, int):
                controls = {"none": None, "placebo": f"placebo-{level}"}
            elif level is not None:
                controls = {"none": None}
            else:
                continue
            for versus, control_level in controls.items():
                control = answers.get((position, template, occupation, control_level))
                if control is not None:
                    effects.append(_effect(row, control, versus))
        forgotten = list(_forgotten(effects))
        of_one = ("bias", "instruction", "placebo", "versus")
        return [
            *rows,
            *_with_share_in_each(effects, (*of_one, "position"), "effect_via_diverse", "effect", "share_via_diverse"),
            *_with_share_in_each(
                forgotten, (*of_one, "under"), "forgotten", "reduction_without_dialogue", "share_forgotten"
            ),
        ]

    # -- figures -------------------------------------------------------------------------------

    def measures(self, rows: Sequence[Row]) -> Iterator[MeasureSpec]:
        for bias in BIASES:
            for position in self.positions:
                where: dict[str, Factor] = {"bias": bias, "position": position.name}
                yield from self._answers(where)
                yield from self._effects(where)
            for position in self.positions:
                if position.name != _AT_BEST and _AT_BEST in [p.name for p in self.positions]:
                    yield from self._forgetting({"bias": bias, "under": position.name})
        for position in self.positions:
            yield from self._side_effects({"bias": _REFERENCE, "position": position.name})

    def _answers(self, where: Mapping[str, Factor]) -> Iterator[MeasureSpec]:
        levels: list[dict[str, Factor]] = [{"debiasing": None}]
        levels += [{"debiasing": p.id} for p in self.prompts]
        levels += [{"abstraction": a} for a in self._abstractions()]
        placebos: list[dict[str, Factor]] = [
            {"debiasing": f"placebo-{p.id}", "placebo": p.id} for p in self.prompts if p.placebo is not None
        ]
        for level in (*levels, *placebos):
            is_subgroup = "placebo" in level
            family = "placebo conditions" if is_subgroup else "conditions"
            for dominated_by in sorted({o.dominated_by for o in self.occupations}):
                for group in GROUPS:
                    yield MeasureSpec(
                        f"p_{group}",
                        f"p_{group}",
                        {**where, **level, "dominated_by": dominated_by},
                        clusters=_CLUSTERS,
                        family=f"group probabilities, {family}",
                        is_subgroup=is_subgroup,
                        probability_mass="coverage",
                    )
            yield MeasureSpec(
                "stereotype_gap",
                "stereotype_gap",
                {**where, **level},
                clusters=_CLUSTERS,
                unit="difference of probabilities",
                neutral=0.0,
                family=f"stereotype gap, {family}",
                is_subgroup=is_subgroup,
                probability_mass="coverage",
            )
            yield MeasureSpec(
                "coverage",
                "coverage",
                {**where, **level},
                clusters=_CLUSTERS,
                family=f"raw mass, {family}",
                is_subgroup=is_subgroup,
            )

    def _effects(self, where: Mapping[str, Factor]) -> Iterator[MeasureSpec]:
        for versus in self._controls():
            for measure in (
                "effect",
                "effect_p_diverse",
                "effect_via_diverse",
                "effect_via_balance",
                "effect_coverage",
            ):
                family = f"{measure}, {where['bias']}, {where['position']}, versus {versus}"
                for p in self._controlled(versus):
                    yield _effect_spec(measure, {**where, "instruction": p.id, "versus": versus}, family)
                for abstraction in self._abstractions(versus):
                    yield _effect_spec(
                        measure, {**where, "degree": abstraction, "versus": versus}, f"{family}, by abstraction"
                    )
            for p in self._controlled(versus):
                yield _share_spec("share_via_diverse", {**where, "instruction": p.id, "versus": versus})
        for p in self._controlled("placebo"):
            family = f"placebo_effect, {where['bias']}, {where['position']}"
            yield _effect_spec("placebo_effect", {**where, "placebo": p.id, "versus": "none"}, family)

    def _forgetting(self, where: Mapping[str, Factor]) -> Iterator[MeasureSpec]:
        for versus in self._controls():
            for measure in ("forgotten", "forgotten_p_diverse"):
                family = f"{measure}, {where['bias']}, {where['under']}, versus {versus}"
                for p in self._controlled(versus):
                    yield _effect_spec(measure, {**where, "instruction": p.id, "versus": versus}, family)
            for p in self._controlled(versus):
                yield _share_spec("share_forgotten", {**where, "instruction": p.id, "versus": versus})

    def _side_effects(self, where: Mapping[str, Factor]) -> Iterator[MeasureSpec]:
        for level in (None, *(p.id for p in self.prompts)):
            yield MeasureSpec(
                "reference_text",
                "reference_text",
                {**where, "debiasing": level},
                clusters=("template",),
                unit="probability per word",
                family="reference text",
            )
        for versus in self._controls():
            for p in self._controlled(versus):
                yield replace(
                    _effect_spec(
                        "effect_reference_text",
                        {**where, "instruction": p.id, "versus": versus},
                        f"effect_reference_text, {where['position']}, versus {versus}",
                    ),
                    clusters=("template",),
                )

    def _abstractions(self, versus: str = "none") -> list[str]:
        """The degrees of which every prompt has that control."""
        lacking = {p.abstraction for p in self.prompts if p not in self._controlled(versus)}
        return [a for a in dict.fromkeys(p.abstraction for p in self.prompts) if a not in lacking]

    def _controls(self) -> list[str]:
        return ["none", "placebo"] if self._controlled("placebo") else ["none"]

    def _controlled(self, versus: str) -> list[DebiasingPrompt]:
        return [p for p in self.prompts if versus == "none" or p.placebo is not None]

    # -- what the report shows -----------------------------------------------------------------

    def texts(self) -> Mapping[str, str]:
        """Each debiasing prompt and its placebo; equal in words, not always in tokens."""
        texts: dict[str, str] = {}
        for p in self.prompts:
            texts[f"debiasing prompt {p.id}"] = p.text
            if p.placebo is not None:
                texts[f"placebo {p.id}"] = p.placebo
        return texts

    def cautions(self) -> Sequence[str]:
        if {"system", "with_dialogue"} <= {p.name for p in self.positions}:
            return [
                "Some chat templates (Gemma's, for one) put a system message into the first user turn. For such a "
                "model the positions system and with_dialogue are the same prompt, not two places."
            ]
        return ()

    def published(self) -> Sequence[PublishedFigure]:
        """Tables 3, 4, 7 and 8, and the averages by abstraction over their printed figures."""
        if self.design != "paper" or self._own_prompts:
            return ()
        figures: list[PublishedFigure] = []
        for model, biases in load("published_results").content["debiasing_positions"]["models"].items():
            for bias, conditions in biases.items():
                for condition in conditions:
                    figures += _printed(f"GPT-3 {model}", bias, {"debiasing": condition["debiasing"]}, [condition])
                for abstraction in self._abstractions():
                    ids = {p.id for p in self.prompts if p.abstraction == abstraction}
                    of_degree = [c for c in conditions if c["debiasing"] in ids]
                    figures += _printed(f"GPT-3 {model}", bias, {"abstraction": abstraction}, of_degree)
        return figures

    def tables(self) -> Sequence[TableLayout]:
        rows: list[tuple[str, Mapping[str, Factor]]] = [("None", {"debiasing": None})]
        rows += [(str(p.id), {"debiasing": p.id}) for p in self.prompts]
        rows += [(f"Average {a}", {"abstraction": a}) for a in self._abstractions()]
        printed = load("published_results").content["debiasing_positions"]["source"]
        return [
            TableLayout(
                f"{bias}_bias_by_position",
                f"{bias.capitalize()} bias with each debiasing prompt at each position, in per cent",
                tuple(c for position in self.positions for c in _position_columns(bias, position.name)),
                rows=tuple(rows),
                scale=100,
                decimals=1,
                source=f"{printed}. Published averages are means of the printed figures." if self.published() else "",
            )
            for bias in BIASES
        ]

    def charts(self) -> Sequence[Chart]:
        versus = self._controls()[-1]
        effects = [
            Chart(
                "dots",
                f"{bias.capitalize()} bias: effect of each debiasing prompt on the stereotype gap, against {versus}",
                ("effect",),
                {"bias": bias, "versus": versus},
                by="instruction",
                facet="position",
                caption="Below 0: less stereotype than with the control at the same place.",
            )
            for bias in BIASES
        ]
        arrows = [
            Chart(
                "ternary",
                f"{bias.capitalize()} bias, {group}-dominated occupations: from no text to each debiasing prompt",
                ("p_male", "p_female", "p_diverse"),
                {"bias": bias, "dominated_by": group},
                by="debiasing",
                facet="position",
            )
            for bias in BIASES
            for group in sorted({o.dominated_by for o in self.occupations})
        ]
        lost = [
            Chart(
                "dots",
                f"{bias.capitalize()} bias: how much of the effect is lost, against {versus}",
                ("forgotten",),
                {"bias": bias, "versus": versus},
                by="instruction",
                facet="under",
                caption="Difference to the effect without dialogue. Above 0: less of the gap's reduction is left.",
            )
            for bias in BIASES
            if len(self.positions) > 1 and _AT_BEST in [p.name for p in self.positions]
        ]
        return [*effects, *arrows, *lost]


# -- the design --------------------------------------------------------------------------------


def _printed_prompts(design: Design) -> Iterator[DebiasingPrompt]:
    placebos = load("debiasing_controls").content["placebos"][design]
    if design == "occugender":
        texts = occugender_instructions()
    else:
        printed = load("debiasing_positions").content["debiasing_prompts"]
        texts = {d["id"]: (d["text"], d["abstraction"]) for d in printed}
    for i, (text, abstraction) in texts.items():
        yield DebiasingPrompt(i, text, abstraction, placebos[str(i)])


def _checked_prompts(field: str, given: Iterable[DebiasingPrompt | Mapping[str, Any]]) -> tuple[DebiasingPrompt, ...]:
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise ConfigError(field, given, "not a list of debiasing prompts", "Give one or more")
    prompts = tuple(_checked_prompt(f"{field}[{i}]", entry) for i, entry in enumerate(given))
    if not prompts:
        raise ConfigError(field, prompts, "no debiasing prompts", "Give one or more")
    for p in prompts:
        if [q.id for q in prompts].count(p.id) > 1:
            raise ConfigError(field, p.id, "this id is used twice", "Give each prompt an id of its own")
    return prompts


def _checked_prompt(field: str, entry: DebiasingPrompt | Mapping[str, Any]) -> DebiasingPrompt:
    if isinstance(entry, Mapping) and {"id", "text", "abstraction"} <= set(entry) <= _PROMPT_FIELDS:
        entry = DebiasingPrompt(**entry)
    if not isinstance(entry, DebiasingPrompt):
        hint = "Give id (a number), text, abstraction and, for a control, placebo"
        raise ConfigError(field, entry, "not a debiasing prompt", hint)
    if isinstance(entry.id, bool) or not isinstance(entry.id, int):
        raise ConfigError(f"{field}.id", entry.id, "not a whole number", "Give each prompt a number")
    for name in ("text", "abstraction", "placebo"):
        text = getattr(entry, name)
        if name == "placebo" and text is None:
            continue
        if not isinstance(text, str) or not text or text != text.strip():
            raise ConfigError(f"{field}.{name}", text, "not a text without outer spaces", "Give such a text")
    if entry.placebo == entry.text:
        raise ConfigError(f"{field}.placebo", entry.placebo, "the same as its prompt", "Give a neutral text")
    if entry.placebo is not None and len(entry.placebo.split()) != len(entry.text.split()):
        counts = f"has {len(entry.placebo.split())} words, and its prompt has {len(entry.text.split())}"
        raise ConfigError(f"{field}.placebo", entry.placebo, counts, "Give as many words as the prompt has")
    return entry


def _paper_tasks() -> Iterator[_Task]:
    for i, entry in enumerate(load("debiasing_positions").content["task_prompts"]):
        yield _Task(
            f"task-{entry['id']}",
            entry["bias"],
            parse_template(f"task_prompts[{i}]", entry["prompt"]),
            checked_expressions(f"task_prompts[{i}].verbalizations", entry["verbalizations"]),
        )


def _occugender_tasks() -> Iterator[_Task]:
    expressions = {b: checked_expressions(f"expressions.{b}", e) for b, e in occugender_expressions().items()}
    for template in occugender_templates("paper", BIASES):
        if template.for_debiasing:
            yield _Task(template.id, template.bias, template.text, expressions[template.bias])


# -- rows --------------------------------------------------------------------------------------


def _read_reference(item: Item, response: Response) -> Row:
    """Probability of the reference text per word (geometric mean), so that long texts count alike."""
    assert isinstance(item.request, ScoreRequest)
    assert isinstance(response, ScoreResponse)
    (score,) = response.scores
    words = len(item.request.continuations[0].split())
    value = None if score.logprob is None else math.exp(score.logprob / words)
    low = 0.0 if score.low is None else math.exp(score.low / words)
    return Row(item.id, item.factors, {"reference_text": IdentifiedInterval(value, low, math.exp(score.high / words))})


def _where_asked(row: Row) -> tuple[Factor, Factor, Factor, Factor]:
    f = row.factors
    return f["position"], f["template"], f["occupation"], f["debiasing"]


def _effect(treated: Row, control: Row, versus: str) -> Row:
    placebo = treated.factors["placebo"]
    factors: dict[str, Factor] = {**treated.factors, "abstraction": None, "versus": versus}
    if placebo is None:
        factors |= {"instruction": treated.factors["debiasing"], "degree": treated.factors["abstraction"]}
    row = effect_row(f"{treated.item_id}/minus-{versus}", treated, control, factors)
    if row.missing is not None:
        return row
    if placebo is not None:
        return replace(row, values={f"placebo_{name}": value for name, value in row.values.items()})
    if "stereotype_gap" in treated.values:
        return replace(row, values={**row.values, **split_effect(treated, control)})
    return row


def _forgotten(effects: Sequence[Row]) -> Iterator[Row]:
    at_best = {_whose_effect(row): row for row in effects if row.factors["position"] == _AT_BEST}
    for row in effects:
        best = at_best.get(_whose_effect(row))
        if best is None or row.factors["position"] == _AT_BEST or "instruction" not in row.factors:
            continue
        if row.factors["bias"] == _REFERENCE:
            continue
        factors = {**row.factors, "position": DIFFERENCE, "under": row.factors["position"], "degree": None}
        lost = contrast(f"{row.item_id}/forgotten", row, best, _FORGOTTEN, factors)
        if lost.missing is None and "effect" in best.values:
            lost = replace(lost, values={**lost.values, "reduction_without_dialogue": -best.values["effect"]})
        yield lost


def _whose_effect(row: Row) -> tuple[Factor, ...]:
    return tuple(row.factors.get(name) for name in ("template", "occupation", "instruction", "versus"))


def _with_share_in_each(rows: Sequence[Row], factors: Sequence[str], part: str, whole: str, name: str) -> list[Row]:
    """`with_share` within each combination of levels of some factors."""
    levels: dict[tuple[Factor, ...], list[Row]] = defaultdict(list)
    for row in rows:
        levels[tuple(row.factors.get(factor) for factor in factors)].append(row)
    return [row for of_level in levels.values() for row in with_share(of_level, part, whole, name, _CLUSTERS)]


# -- figures -----------------------------------------------------------------------------------


def _effect_spec(measure: str, where: Mapping[str, Factor], family: str) -> MeasureSpec:
    return MeasureSpec(
        measure,
        measure,
        where,
        clusters=_CLUSTERS,
        unit=unit_of(measure),
        neutral=0.0,
        family=family,
        contrast=True,
    )


def _share_spec(measure: str, where: Mapping[str, Factor]) -> MeasureSpec:
    """A share of an effect. No value of it is neutral: 0 forgotten is as much a finding as all of it."""
    return MeasureSpec(measure, measure, where, clusters=_CLUSTERS, unit="share of the effect", family=measure)


def _position_columns(bias: str, position: str) -> Iterator[TableColumn]:
    for group in ("female", "male"):
        for label, measure in (("Male", "p_male"), ("Female", "p_female"), ("Diverse", "p_diverse")):
            where = {"bias": bias, "position": position, "dominated_by": group}
            yield TableColumn(label, measure, where, f"{position.replace('_', ' ').capitalize()}, {group}-dominated")


def _printed(
    model: str, bias: str, level: Mapping[str, Factor], conditions: Sequence[Mapping[str, Any]]
) -> Iterator[PublishedFigure]:
    """Printed figures of one condition, or the means of several."""
    for position in ("without_dialogue", "with_dialogue"):
        for group in ("female", "male"):
            for letter, measure in _LETTERS.items():
                printed = [c[position][f"{group}_dominated"][letter] / 100 for c in conditions]
                where = {"bias": bias, "position": position, "dominated_by": group, **level}
                yield PublishedFigure(model, measure, where, math.fsum(printed) / len(printed))
