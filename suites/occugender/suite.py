"""OccuGender: which gender a model associates with an occupation.

Y. Chen, V. C. Raghuram, J. Mattern, R. Mihalcea, Z. Jin: "Causally Testing Gender Bias in LLMs:
A Case Study on Occupational Bias" (arXiv:2212.10678v3). Explicit prompts ask for the gender of
someone with an occupation; implicit prompts mention such a person and leave the pronoun to the
model. After each prompt, all expressions of male, female and diverse are scored.

    P(group) = Σ over the group's expressions of Π over their tokens of P(token | prompt, earlier tokens)
    P̃(group) = P(group) / (P(male) + P(female) + P(diverse))
    stereotype_gap = P̃(the stereotype's gender) − P̃(the other), the mean over occupations and templates
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Unpack

from backends.base import Prompt, Response, ScoreRequest
from backends.errors import ConfigError
from backends.options import checked_options
from suites.base import Item, MeasureSpec, Row, Suite
from suites.common.data_files import PublishedDesign, Variant, load, refuse_own
from suites.common.expressions import Expressions, continuations, spellings
from suites.common.gender_figures import BIAS_LABELS, STEREOTYPE_GAP, effect_row, effects_of
from suites.common.groups.baseline import BASELINE, Baseline, is_baseline
from suites.common.groups.declared import OwnExpressions
from suites.common.groups.options import (
    GroupFields,
    GroupOptions,
    asked_expressions,
    asked_occupations,
)
from suites.common.groups.weights import group_meanings
from suites.common.occupations import Occupations, papers_occupations, sectors, unstereotyped, wordings
from suites.common.planted import planted_about
from suites.common.probabilities import TokenAggregation
from suites.common.task_prompt import PromptFormat, TaskPrompt, filled
from suites.occugender import material, measures
from suites.occugender.measures import Measures, plus_minus_rows
from suites.presentation import Shown


class OccuGender(Suite):
    """Which gender a model associates with each occupation of a list (OccuGender).

    Parameters
    ----------
    bias : sequence of str
        ``explicit``, ``implicit``, or both.
    variant : str
        ``paper``: what the paper says. ``as_released``: what the authors' code asks and counts, from which most
        of the printed figures come (`suites.occugender.material`); it brings its own spellings and token
        aggregation, and asks raw text.
    prompt_format : str
        ``raw``: the papers' text as printed. ``chat``: the question as the user's turn and
        the answer's start as the assistant's. ``chat_whole``: the start is asked for in the question, for models
        that do not continue one (see `suites.common.task_prompt`).
    debiasing : bool or sequence of int
        True or ids: ask the first five templates of each kind also with the paper's debiasing
        instructions (1 to 6) on a line before ``Q:``, in chat before the question. Effects are paired
        differences on these same templates, not differences from the mean over all.
    templates : str or mapping
        ``paper``: 25 of each kind. ``anonymous_version``: the one of each kind in the earlier
        version of the paper. Or your own: ``{"explicit": ["Q: … [JOB] …\\nA:"], …}``. Default: ``paper``; as
        released, the implicit ones of the released code.
    occupations : sequence, optional
        Your own, see `suites.common.occupations.Occupations`. Default: the paper's 40.
    expressions : mapping, optional
        Your own: ``{"explicit": {"male": […], "female": […], "diverse": […]}, …}``. Each is
        scored with a capital and with a small first letter.
    groups, contrasts, stereotypes, both_cases, form, separator
        Any number of groups of your own, contrasts between them, and another form than ``Q:`` and ``A:``: see
        `suites.common.groups.options.GroupOptions`. Templates are then tables of ``question`` and ``start``, and
        ``expressions`` of a kind of prompt replace the groups' own.
    prior_corrected : bool
        Whether contrasts of your own groups are also given corrected for how common the words are, see
        `suites.common.groups.baseline`.

    Raises
    ------
    ConfigError
        For an option that cannot be used; the error names it.
    """

    version = 2  # 2: instructions stand before "Q:", as in the paper, not after it
    strata = ("dominated_by", "template")
    sampled_together = ("template", "occupation")

    @checked_options
    def __init__(
        self,
        bias: material.Biases = material.BIASES,
        *,
        variant: Variant = "paper",
        prompt_format: PromptFormat = "raw",
        debiasing: material.Debiasing = False,
        templates: material.Templates | None = None,
        occupations: Occupations | None = None,
        expressions: dict[material.Bias, OwnExpressions] | None = None,
        prior_corrected: bool = False,
        **of_groups: Unpack[GroupFields],
    ) -> None:
        self._groups_given = GroupOptions(**of_groups)
        if variant == "as_released":
            refuse_own(
                prompt_format=prompt_format != "raw" and prompt_format,
                expressions=expressions,
                **self._groups_given.given,
            )
        self.groups = self._groups_given.design()
        self.variant, self.prompt_format = variant, prompt_format
        self.biases = tuple(b for b in material.BIASES if b in bias)
        chosen = tuple(material.occugender_instructions()) if debiasing is True else debiasing or ()
        self.instructions = {i: text for i, text in material.occugender_instructions().items() if i in chosen}
        asked = [*material.occugender_templates(variant if templates is None else templates, self.biases)]
        formed = self._groups_given.formed([template.text for template in asked], prompt_format)
        self.templates = tuple(replace(one, text=text) for one, text in zip(asked, formed, strict=True))
        self.occupations = asked_occupations(occupations, self.groups)
        self.token_aggregation: dict[str, TokenAggregation | None] = dict.fromkeys(material.BIASES, "product")
        degrees = {i: degree for i, (_, degree) in self.instructions.items()}
        self._measures = Measures(self.biases, degrees, self.templates, self.occupations, self.groups)
        self._choose_expressions(expressions)
        form = self.templates[0].text
        own = self._asked.values() if self._groups_given.is_own else ()
        self.baseline = Baseline(self.groups, form.form, form.separator, prompt_format, [*own], prior_corrected)
        families = {
            "template": wordings({template.id: template.text.raw() for template in self.templates}),
            "occupation": sectors(one.name for one in self.occupations),
        }
        super().__init__(families=families, shown=self._shown())

    def _choose_expressions(self, given: Mapping[Any, OwnExpressions] | None) -> None:
        """Set what is scored after each prompt, and how the probabilities of tokens are combined."""
        prompts = [(template.bias, template.text) for template in self.templates]
        asked = partial(asked_expressions, self.groups, self.occupations, prompts, prompt_format=self.prompt_format)
        if self._groups_given.is_own:
            self.token_aggregation = dict.fromkeys(material.BIASES)
            self.expressions: dict[str, Expressions] = {}
            self._asked = asked({bias: (given or {}).get(bias, {}) for bias in self.biases})
            return
        spelled = material.occugender_expressions()
        if given is not None:
            spelled = {kind: spellings(words, ("expressions", kind)) for kind, words in given.items()}
        if self.variant == "as_released":
            spelled, self.token_aggregation = material.released_expressions(), material.released_aggregation()
        if absent := [b for b in self.biases if b not in spelled]:
            raise ConfigError(
                "expressions", given, f"has no entry {absent[0]!r}", "Give one for each bias that is asked about"
            )
        self.expressions = {b: spelled[b] for b in self.biases}
        self._asked = asked(self.expressions)

    def signature(self) -> Mapping[str, Any]:
        return {
            "suite": self.name,
            "version": self.version,
            "data": load("occugender").sha256,
            "prompt_format": self.prompt_format,
            "variant": self.variant,
            "token_aggregation": {b: self.token_aggregation[b] for b in self.biases},
            "debiasing": {str(i): text for i, (text, _) in self.instructions.items()},
            "templates": {t.id: t.text.raw() for t in self.templates},
            "occupations": [list(o.factors.values()) for o in self.occupations],
            "expressions": {b: {g: list(words) for g, words in e.items()} for b, e in self.expressions.items()},
            **({"prior_corrected": True} if self.baseline.corrected else {}),
            **self._groups_given.signature(self._asked),
        }

    def items(self) -> Iterator[Item]:
        yield from self.baseline.items()
        conditions: list[tuple[int | None, str | None]] = [(None, None)]
        conditions += [(i, text) for i, (text, _) in self.instructions.items()]
        for debiasing, text in conditions:
            suffix = "" if text is None else f"/debiasing-{debiasing}"
            for template in self.templates:
                if text is not None and not template.for_debiasing:
                    continue
                for occupation in self.occupations:
                    task = filled(template.text, occupation.name)
                    expressions = self._asked[template.bias, occupation.name]
                    words = continuations(expressions, task.space(self.prompt_format))
                    yield Item(
                        f"{template.id}/{occupation.name}{suffix}",
                        ScoreRequest(self._prompt(task, text), words),
                        {
                            "bias": template.bias,
                            "template": template.id,
                            **occupation.factors,
                            "debiasing": debiasing,
                            "abstraction": None if debiasing is None else self.instructions[debiasing][1],
                            "ten_templates": template.for_debiasing,
                        },
                    )

    def _prompt(self, task: TaskPrompt, instruction: str | None) -> Prompt:
        """The prompt; an instruction comes on its own line before ``Q:``, in chat at the start of the user's turn."""
        if instruction is None or self.prompt_format != "raw":
            return task.prompt(self.prompt_format, instruction)
        return f"{instruction}\n{task.raw()}"

    def read(self, item: Item, response: Response) -> Row:
        if is_baseline(item.factors):
            return self.baseline.read(item, response)
        aggregation = self.token_aggregation[str(item.factors["bias"])]
        stereotype = item.factors["dominated_by"]
        return self.groups.read(item.id, item.factors, response, self._words_of(item), stereotype, aggregation)

    def _words_of(self, asked: Item | Row) -> Expressions:
        return self._asked[str(asked.factors["bias"]), str(asked.factors["occupation"])]

    def planted(self, item: Item, bias: float, draw: int) -> Response:
        """A part ``bias`` of the groups' equal shares goes to the group that the occupation is stereotyped with."""
        if is_baseline(item.factors):
            return self.baseline.planted(item)
        return planted_about(self.groups, self._words_of(item), item, bias, item.id, draw)

    def derive(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Add the effect of each instruction (the answer with it minus the answer without, on the same template and
        occupation), and how far templates differ."""
        names = effects_of(self.groups)
        rows, neutral = self.baseline.derive(rows, self._words_of)
        plain = {row.item_id: row for row in rows if row.factors["debiasing"] is None}
        effects = []
        for row in rows:
            instruction = row.factors["debiasing"]
            control = plain.get(row.item_id.removesuffix(f"/debiasing-{instruction}"))
            if instruction is not None and control is not None:
                # `abstraction` is a factor of answers
                of_effect = {"instruction": instruction, "degree": row.factors["abstraction"], "abstraction": None}
                effects.append(effect_row(f"{row.item_id}/effect", row, control, names, {**row.factors, **of_effect}))
        return [*rows, *effects, *plus_minus_rows(rows, self.groups.probabilities), *neutral]

    def measures(self, rows: Sequence[Row]) -> Iterator[MeasureSpec]:
        over_templates = not rows or any("of" in row.factors for row in rows)  # a sample's templates are not compared
        with_baseline: set[str] = set()
        for spec in self._specs:
            if spec.measure in self.groups.contrasts and self._groups_given.is_own:
                yield replace(spec, baseline=f"{spec.measure}_{BASELINE}")
                if spec.measure not in with_baseline:
                    with_baseline.add(spec.measure)
                    yield from self.baseline.measures(spec)
            elif over_templates or spec.family != "plus-minus":
                yield spec

    @cached_property
    def _specs(self) -> Sequence[MeasureSpec]:
        return list(self._measures.specs())

    @property
    def published_design(self) -> PublishedDesign:
        """Every aspect of what is asked and counted → its level."""
        papers = material.occugender_expressions()
        aspects = {
            "variant": self.variant,
            "prompt_format": self.prompt_format,
            "occupations": "paper" if self.occupations == papers_occupations() else "own",
        }
        for bias in self.biases:
            aspects |= {
                f"templates.{bias}": material.name_of_templates(bias, self.templates),
                f"expressions.{bias}": "paper" if self.expressions.get(bias) == papers[bias] else "own",
            }
        return aspects

    def _shown(self) -> Shown:
        design, is_own = self.published_design, self._groups_given.is_own
        shares = {o.name: o.female_share for o in self.occupations if o.female_share is not None}
        return Shown(
            group_meanings(self.groups.contrasts) if is_own else STEREOTYPE_GAP,
            BIAS_LABELS,
            texts={f"instruction {i}": text for i, (text, _) in self.instructions.items()},
            cautions=unstereotyped(self.occupations),
            published=[*measures.published_figures(design, self.biases, tuple(self.instructions))],
            tables=[*measures.table_layouts(design, self._measures)],
            charts=[*measures.charts(self.groups, shares, with_effects=bool(self.instructions))],
        )
