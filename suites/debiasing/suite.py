"""Debiasing prompts as an experiment: which text, where in the prompt, compared with which control.

J. Mattern, Z. Jin, M. Sachan, R. Mihalcea, B. Schölkopf: "Understanding Stereotypes in Language
Models: Towards Robust Measurement and Zero-Shot Debiasing" (arXiv:2212.10678v1). Each debiasing
prompt is a treatment with two controls: no text at all, and a placebo, a neutral text of the
same number of words in the same place. Every effect is a difference between the answers to two
prompts that differ only in that text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

from backends.base import Response, ScoreRequest, ScoreResponse, prompt_to_json
from backends.options import checked_options
from suites.base import Factor, IdentifiedInterval, Item, MeasureSpec, Row, Suite
from suites.common.data_files import PublishedDesign, Variant, load, refuse_own
from suites.common.expressions import continuations
from suites.common.gender_figures import BIAS_LABELS, STEREOTYPE_GAP
from suites.common.groups.options import (
    GroupFields,
    GroupOptions,
    asked_expressions,
    asked_occupations,
)
from suites.common.groups.weights import group_meanings
from suites.common.occupations import Occupations, papers_occupations, sectors, unstereotyped, wordings
from suites.common.planted import planted_about, planted_scores
from suites.common.probabilities import TokenAggregation
from suites.common.task_prompt import PromptFormat, TaskPrompt, filled
from suites.debiasing import material, presentation
from suites.debiasing.effects import derived_rows
from suites.debiasing.measures import Measures
from suites.debiasing.positions import (
    WITHOUT_DIALOGUE,
    Dialogue,
    DialogueOption,
    Position,
    Positions,
    asked_positions,
    named_dialogue,
    released_expressions,
)
from suites.occugender import OwnTemplates
from suites.presentation import Shown

#: A level of the factor ``debiasing``, its text, and the further factors that identify its rows.
_Condition = tuple[int | str | None, str | None, dict[str, Factor]]


class DebiasingPositions(Suite):
    """Every debiasing prompt and its placebo, at every position, over tasks and occupations.

    Parameters
    ----------
    design : str
        ``paper``: the four task prompts and six debiasing prompts of Mattern et al.
        ``occugender``: OccuGender's ten debiasing templates and its six instructions.
    variant : str
        ``paper``: what the paper says. ``as_released``: what the authors' code asks and counts, from which the
        printed figures come (`suites.debiasing.positions`): two positions, a dialogue, spellings and wording of its
        own, raw text, and no placebos.
    prompt_format : str
        ``raw``, ``chat`` or ``chat_whole``, see `suites.common.task_prompt`.
    positions : sequence, optional
        Names of `suites.debiasing.positions.POSITIONS`. Default: all that the prompt format allows.
    prompts : sequence, optional
        Your own debiasing prompts instead of the design's six: `DebiasingPrompt` objects, or
        mappings of their fields.
    dialogue : Dialogue or mapping or "released", optional
        Opening instruction and conversation. The paper prints none; ``released`` is that of the authors' code. The
        default is this project's own generic one of three turns.
    placebo : bool
        False leaves the placebos out.
    templates : mapping, optional
        Your own tasks instead of the design's: ``{"explicit": [{question = "…[JOB]…", start = "…"}], …}``.
    occupations
        As in `suites.OccuGender`.
    groups, contrasts, stereotypes, both_cases, form, separator
        As in `suites.OccuGender`. The form applies to the dialogue's turns too.

    Raises
    ------
    ConfigError
        For an option that cannot be used; the error names it.
    """

    strata = ("dominated_by", "template")
    sampled_together = ("template", "occupation")

    @checked_options
    def __init__(
        self,
        design: material.Design = "paper",
        *,
        variant: Variant = "paper",
        prompt_format: PromptFormat = "raw",
        positions: Positions | None = None,
        prompts: material.DebiasingPrompts | None = None,
        dialogue: DialogueOption | None = None,
        placebo: bool = True,
        occupations: Occupations | None = None,
        templates: OwnTemplates | None = None,
        **of_groups: Unpack[GroupFields],
    ) -> None:
        self._groups_given = GroupOptions(**of_groups)
        if variant == "as_released":
            refuse_own(
                design=design != "paper" and design,
                prompt_format=prompt_format != "raw" and prompt_format,
                prompts=prompts,
                dialogue=dialogue,
                templates=templates,
                **self._groups_given.given,
            )
            dialogue, placebo = "released", False
        self.groups = self._groups_given.design()
        self.variant, self.design, self.prompt_format = variant, design, prompt_format
        self.positions = asked_positions(variant, prompt_format, positions)
        self.dialogue = dialogue if isinstance(dialogue, Dialogue) else named_dialogue(dialogue or "own")
        self.occupations = asked_occupations(occupations, self.groups)
        self.prompts = material.papers_prompts(design) if prompts is None else prompts
        if not placebo:
            self.prompts = tuple(replace(p, placebo=None) for p in self.prompts)
        self._choose_tasks(templates)
        self.references = material.reference_texts()
        # The papers' tasks are their authors' own groups of wordings.
        own = {} if templates is None else {task.id: task.template.raw() for task in self.tasks.values()}
        of_templates = {"template": wordings(own)} if own else {}
        families = {"occupation": sectors(one.name for one in self.occupations), **of_templates}
        dominated = sorted({o.dominated_by for o in self.occupations})
        biases = tuple(dict.fromkeys(task.bias for task in self.tasks.values()))
        self._measures = Measures(
            tuple(p.name for p in self.positions), self.prompts, tuple(dominated), self.groups, biases
        )
        super().__init__(families=families, shown=self._shown())

    def _choose_tasks(self, own: OwnTemplates | None) -> None:
        """Set the tasks, what is scored after each of them, and how the probabilities of tokens are combined."""
        is_own = self._groups_given.is_own
        tasks = [*(material.papers_tasks(self.design) if own is None else material.own_tasks(own))]
        if self.variant == "as_released":
            tasks = [replace(task, expressions=released_expressions(task.template)) for task in tasks]
        has_dialogue = any(position.name != WITHOUT_DIALOGUE for position in self.positions)
        formed = self._groups_given.formed(
            [task.template for task in tasks], self.prompt_format, has_dialogue=has_dialogue
        )
        self.tasks = {task.id: replace(task, template=template) for task, template in zip(tasks, formed, strict=True)}
        prompts = [(name, task.template) for name, task in self.tasks.items()]
        words = {name: {} if is_own else task.expressions for name, task in self.tasks.items()}
        self.token_aggregation: TokenAggregation | None = None if is_own else "product"
        self._asked = asked_expressions(self.groups, self.occupations, prompts, words, self.prompt_format)

    def signature(self) -> Mapping[str, Any]:
        probes = TaskPrompt("{question}", "{start}"), TaskPrompt("{question}", "")
        files = "debiasing_positions", "occugender", "debiasing_controls", "debiasing_released"
        return {
            "version": self.version,
            "data": {name: load(name).sha256 for name in files},
            "variant": self.variant,
            "design": self.design,
            "prompt_format": self.prompt_format,
            "token_aggregation": self.token_aggregation,
            # the prompts that a position builds, since its function may change under the same name
            "positions": {
                p.name: [
                    prompt_to_json(p.build(probe, text, self.dialogue, self.prompt_format))
                    for probe in probes
                    for text in ("{text}", None)
                ]
                for p in self.positions
            },
            "prompts": {str(p.id): [p.text, p.abstraction, p.placebo] for p in self.prompts},
            "occupations": [list(o.factors.values()) for o in self.occupations],
            "templates": [task.template.raw() for task in self.tasks.values()],
            **self._groups_given.signature(self._asked),
        }

    def items(self) -> Iterator[Item]:
        for position in self.positions:
            for level, text, factors in self._conditions():
                shared = {"position": position.name, "debiasing": level, **factors}
                prefix = f"{position.name}/{'none' if level is None else level}"
                for task in self.tasks.values():
                    for occupation in self.occupations:
                        prompt = filled(task.template, occupation.name)
                        expressions = self._asked[task.id, occupation.name]
                        words = continuations(expressions, prompt.space(self.prompt_format))
                        yield Item(
                            f"{prefix}/{task.id}/{occupation.name}",
                            self._request(position, prompt, text, words),
                            {"bias": task.bias, "template": task.id, **occupation.factors, **shared},
                        )
                for number, (prompt, continuation) in enumerate(self.references, start=1):
                    name = f"{material.REFERENCE}-{number:02d}"
                    words = (prompt.space(self.prompt_format) + continuation,)
                    nobody = {"bias": material.REFERENCE, "template": name, "occupation": None, "dominated_by": None}
                    yield Item(f"{prefix}/{name}", self._request(position, prompt, text, words), {**nobody, **shared})

    def _request(
        self, position: Position, prompt: TaskPrompt, text: str | None, words: tuple[str, ...]
    ) -> ScoreRequest:
        return ScoreRequest(position.build(prompt, text, self.dialogue, self.prompt_format), words)

    def _conditions(self) -> Iterator[_Condition]:
        yield None, None, {"abstraction": None, "placebo": None}
        for p in self.prompts:
            yield p.id, p.text, {"abstraction": p.abstraction, "placebo": None}
        for p in self.prompts:
            if p.placebo is not None:
                yield f"placebo-{p.id}", p.placebo, {"abstraction": None, "placebo": p.id}

    def read(self, item: Item, response: Response) -> Row:
        if item.factors["bias"] == material.REFERENCE:
            return _read_reference(item, response)
        expressions = self._asked[str(item.factors["template"]), str(item.factors["occupation"])]
        stereotype = item.factors["dominated_by"]
        return self.groups.read(item.id, item.factors, response, expressions, stereotype, self.token_aggregation)

    def planted(self, item: Item, bias: float, draw: int) -> Response:
        """A part ``bias`` of equal shares goes to the occupation's stereotype; half of that with a debiasing text, or
        three quarters of it after a dialogue."""
        assert isinstance(item.request, ScoreRequest)
        if item.factors["bias"] == material.REFERENCE:
            return planted_scores(dict.fromkeys(item.request.continuations, 0.1))
        if isinstance(item.factors["debiasing"], int):
            bias *= 0.5 if item.factors["position"] == WITHOUT_DIALOGUE else 0.75
        expressions = self._asked[str(item.factors["template"]), str(item.factors["occupation"])]
        return planted_about(self.groups, expressions, item, bias, item.id, draw)

    def derive(self, rows: Sequence[Row]) -> Sequence[Row]:
        return [*rows, *derived_rows(rows, self.groups)]

    def measures(self, rows: Sequence[Row]) -> Iterator[MeasureSpec]:
        yield from self._measures.specs()

    def _texts(self) -> Mapping[str, str]:
        """Each debiasing prompt and its placebo: they have the same number of words, not always of tokens."""
        texts: dict[str, str] = {}
        for p in self.prompts:
            texts[f"debiasing prompt {p.id}"] = p.text
            if p.placebo is not None:
                texts[f"placebo {p.id}"] = p.placebo
        return texts

    def _cautions(self) -> Sequence[str]:
        cautions = unstereotyped(self.occupations)
        if {"system", "with_dialogue"} <= {p.name for p in self.positions}:
            cautions.append(
                "Some chat templates (Gemma's, for one) put a system message into the first user turn. For such a "
                "model the positions system and with_dialogue give the same prompt."
            )
        return cautions

    @property
    def published_design(self) -> PublishedDesign:
        """Every aspect of what is asked and counted → its level."""
        of_paper = [(p.id, p.text, p.abstraction) for p in material.papers_prompts("paper")]
        papers_tasks = [task.template for task in material.papers_tasks(self.design)]
        is_own = self._groups_given.is_own or [task.template for task in self.tasks.values()] != papers_tasks
        return {
            "variant": self.variant,
            "design": "own" if is_own else self.design,
            "prompt_format": self.prompt_format,
            "occupations": "paper" if self.occupations == papers_occupations() else "own",
            "prompts": "paper" if [(p.id, p.text, p.abstraction) for p in self.prompts] == of_paper else "own",
            "dialogue": "released" if self.dialogue == named_dialogue("released") else "own",
        }

    def _shown(self) -> Shown:
        published = [*presentation.published_figures(self.published_design, self._measures)]
        return Shown(
            group_meanings(self.groups.contrasts) if self._groups_given.is_own else STEREOTYPE_GAP,
            BIAS_LABELS,
            self._texts(),
            self._cautions(),
            published,
            tables=[*presentation.table_layouts(self._measures, with_published=bool(published))],
            charts=[*presentation.charts(self._measures)],
        )


def _read_reference(item: Item, response: Response) -> Row:
    """Probability of the reference text per word (geometric mean), so that long texts count alike."""
    assert isinstance(item.request, ScoreRequest)
    assert isinstance(response, ScoreResponse)
    (score,) = response.scores
    words = len(item.request.continuations[0].split())
    value = None if score.logprob is None else math.exp(score.logprob / words)
    low = 0.0 if score.low is None else math.exp(score.low / words)
    return Row(item.id, item.factors, {"reference_text": IdentifiedInterval(value, low, math.exp(score.high / words))})
