"""GenderPair: which of two descriptors does a model pick for a gender target, and what does it write?

Tang et al. 2024, "GenderCARE" (ACM CCS). A prompt names a target of one of three groups (male, female,
neither) and two descriptors, a stereotyping one (biased) and its counterpart (anti-biased); the model
picks one, marks it, and writes a text. Reported by group:

    bias-pair ratio    texts that picked the biased descriptor / texts with a pick      neutral 0.5
    toxicity, regard   of the texts, by a text classifier

and, for each, the standard deviation of the three group means (population, as in the paper's Table 4).

`suites.genderpair.reading.marked_choice` describes how a pick is read. If a text leaves it undecided, the model's own
log-probabilities of the two decide, in the prompt's context right after the opening mark of an answer
(``fallback="perplexity"``: per token). Picks by text and picks by likelihood are also reported separately, with the
share of the latter.

The paper's printed ratios follow a different rule, in the authors' released code (evaluate_BPR.py): descriptors are
matched as substrings, and if both or neither is found, the bare word with the lower perplexity, without the prompt,
is picked. ``bias_pair_ratio_released`` is the ratio by that rule; with ``variant="as_released"`` it is the suite's
ratio throughout.

Every prompt has six configurations. 1 and 2, 3 and 4, 5 and 6 differ only in which descriptor comes first. The two
of a form are a contrast:

    position effect = biased picks when the biased descriptor comes first - when it comes second
    balanced ratio  = mean of the two, free of the position effect

What a scorer adds for the identity alone is measured on the labelled texts that ship in versions about a woman, a man
and a nonbinary person (`suites.common.raters`): ``rater_swap_gap``.

The factor ``kind`` says what a row is:

==================  ==============================================================================
selection           one text: ``biased``
answer              one text: ``refusal``, ``fallback``, ``marked``, ``biased_released``…
contrast            two texts that differ in the order of the descriptors
toxicity, regard    one text, as written: the scorer's quantities
labelled toxicity…  one labelled text, and what follows from these: `suites.common.raters`
spread of …         one repeat: standard deviation of the three group means of that figure
repeats             one group: standard deviation of the repeats' means
==================  ==============================================================================
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Unpack

from pydantic import Field

import backends.base as base
from backends.errors import ConfigError
from backends.options import OnError, checked_options, some_of
from suites.base import Factor, Item, MeasureSpec, Row, Suite
from suites.common.data_files import Variant, load
from suites.common.groups.declared import Groups
from suites.common.groups.options import FormFields
from suites.common.planted import chance, planted_scores
from suites.common.raters import labelled_items, read_labelled
from suites.common.task_prompt import TaskPrompt
from suites.common.text_scorer import ScorerOption, asked_scorers
from suites.genderpair import presentation
from suites.genderpair.design import Design, Fallback
from suites.genderpair.measures import measure_specs
from suites.genderpair.own_groups import PairsOfGroups, asked_groups, chosen_pairs
from suites.genderpair.pairs import CONFIGURATIONS, FORMS, GROUPS, PairSet, prompt_text
from suites.genderpair.reading import (
    needs_bare_words,
    needs_preference,
    pair_of,
    read_bare_words,
    read_preference,
    read_text,
)
from suites.genderpair.rows import derived_rows
from suites.options import sampling_option

#: Greedy, and long enough for a short text.
DEFAULT_SAMPLING = base.Sampling(max_tokens=128)

_PairsOption = Annotated[
    str | Path | PairSet | PairsOfGroups,
    OnError("not a set of pairs", 'Give "built-in", "published", a folder, or pairs for groups of your own'),
]
_GroupsOption = Annotated[
    Annotated[Sequence[str], some_of(GROUPS)] | Groups,
    OnError("not groups", f"Give some of {', '.join(GROUPS)}, or two or more of your own with their expressions"),
]


class GenderPair(Suite):
    """Which of two descriptors a model picks for a gender target, and how it writes about it (GenderPair).

    Parameters
    ----------
    pairs : str, path, PairSet, sequence or mapping
        ``built-in`` (mild words, ships here), ``published`` (fetched once, 103,854 prompts, contains
        slurs), a folder with the published files, or a set of your own. For groups of your own: pairs of a stereotype
        and its counterpart, as one list for all groups or a list for each.
    groups : sequence or mapping
        Some of ``male``, ``female``, ``neither``; or any groups of your own with their expressions, the words that
        name a group in a prompt, as in `suites.common.groups.options.GroupOptions`.
    prompt_format : {"raw", "chat"}
        The prompt as plain text with a line break, or as a user turn.
    repeats : int
        Draws per prompt, each with its own seed; the paper uses 5 to 10.
    sampling : Sampling or mapping
        The same for all models; a mapping replaces some fields of `DEFAULT_SAMPLING`.
    seed : int
    variant : {"paper", "as_released"}
        How a pick is read: by this project's rule, which follows the paper's text, or by that of the authors' code.
    fallback : {"probability", "perplexity", "none"}, optional
        With ``variant="paper"``, what decides if a text does not: the higher log-probability of the whole
        descriptor (default), the higher one per token, or nothing (such a text is then missing, and the model
        need not support scoring).
    toxicity, regard : str, path, Backend, TextScorer or None
        ``profanity`` and ``vader`` are embedded and measure what `TextScorer.what` says; ``paper`` selects
        the paper's classifiers; a folder or hub id is any sequence classifier with recognisable label names,
        a `TextScorer` any other; a backend is a language model used as a rater, and trusted only if labelled
        texts allow it (`suites.common.raters`); None leaves the figure out.
    audit_scorers : bool, optional
        Let classifiers read the labelled texts as well: what they add for the identity alone. Default: True for the
        paper's groups, which these texts are about.
    contrasts, form, separator
        As in `suites.common.groups.options.GroupOptions`. A contrast is of the groups' bias-pair ratios, and of
        their texts' scores. ``form`` is the raw prompt, by default ``{question}`` and a line break, and ``separator``
        stands between it and an answer that is scored, by default nothing.

    Raises
    ------
    ConfigError
        For an option that cannot be used; the error names it.
    """

    path_options: ClassVar[Mapping[str, Collection[str]]] = {
        "pairs": ("built-in", "published"),
        "toxicity": ("profanity", "paper"),
        "regard": ("vader", "paper"),
    }
    version = 8  # 8: only a marked pick counts; texts are not swapped
    strata = ("group", "aspect", "configuration")
    sampled_together = ("group", "target", "pair", "form")

    @checked_options
    def __init__(
        self,
        *,
        pairs: _PairsOption = "built-in",
        groups: _GroupsOption = GROUPS,
        prompt_format: Literal["raw", "chat"] = "raw",
        repeats: Annotated[int, Field(ge=1)] = 1,
        sampling: Annotated[base.Sampling, sampling_option(DEFAULT_SAMPLING)] = DEFAULT_SAMPLING,
        seed: int = 0,
        variant: Variant = "paper",
        fallback: Fallback | None = None,
        toxicity: ScorerOption = "profanity",
        regard: ScorerOption = "vader",
        audit_scorers: bool | None = None,
        **details: Unpack[FormFields],
    ) -> None:
        self.sampling = sampling
        if repeats > 1 and self.sampling.temperature == 0:
            problem, hint = "greedy texts do not differ between repeats", "Give 1, or a temperature above 0"
            raise ConfigError("repeats", repeats, problem, hint)
        if variant == "as_released" and fallback is not None:
            problem = "the authors' rule has a fallback of its own, the perplexity of the bare words"
            raise ConfigError("fallback", fallback, problem, 'Leave it out, or give variant="paper"')
        self._asked = asked = asked_groups(groups, details, prompt_format)
        self.design = Design(
            pairs=chosen_pairs(pairs, asked.own),
            groups=asked.names,
            repeats=repeats,
            variant=variant,
            fallback=fallback or "probability",
            text_scorers=asked_scorers(toxicity=toxicity, regard=regard),
            audit_scorers=asked.own is None if audit_scorers is None else audit_scorers,
            contrasts=asked.contrasts,
            form=asked.form,
            separator=asked.separator,
        )
        self.prompt_format, self.seed = prompt_format, seed
        super().__init__(
            # The two orders of a prompt are sampled together, but not all its repeats: they would fill a small sample.
            sampled_together=type(self).sampled_together + ("repeat",) * (repeats > 1),
            scorers={name: scorer.backend for name, scorer in self.design.text_scorers.items()},
            shown=presentation.shown(self.design, self.sampling),
        )

    # -- questions ---------------------------------------------------------------------------------

    def signature(self) -> Mapping[str, Any]:
        design = self.design
        return {
            "version": self.version,
            "pairs": design.pairs.name,
            "pairs_sha256": design.pairs.sha256,
            **({} if design.pairs.is_whole else {"pairs_content": design.pairs.content_sha256}),
            "wording_sha256": load("genderpair").sha256,
            "groups": list(design.groups),
            "prompt_format": self.prompt_format,
            "repeats": design.repeats,
            "sampling": {**asdict(self.sampling), "stop": list(self.sampling.stop)},
            "seed": self.seed,
            "variant": design.variant,
            "fallback": design.fallback if design.variant == "paper" else "bare words",
            "audit_scorers": design.audit_scorers,
            "scorers": {name: scorer.signature() for name, scorer in design.text_scorers.items()},
            **self._asked.signature,
        }

    def items(self) -> Iterator[Item]:
        for group in self.design.groups:
            pairs = self.design.pairs.groups[group].pairs
            for aspect, target in self.design.pairs.groups[group].targets:
                for pair in pairs:
                    for configuration in CONFIGURATIONS:
                        text = prompt_text(configuration, target, pair)
                        factors: dict[str, Factor] = {
                            "kind": "selection",
                            "group": group,
                            "aspect": aspect,
                            "target": target,
                            "pair": pair.name,
                            "configuration": configuration,
                            "form": FORMS[configuration],
                        }
                        identity = f"paper/{group}/{aspect}/{target}/{pair.name}/{configuration}"
                        yield from self._draws(identity, text, factors)
        for rater in self.design.raters.values():
            yield from labelled_items(rater)

    def _draws(self, identity: str, text: str, factors: Mapping[str, Factor]) -> Iterator[Item]:
        """The repeats of one prompt. Each prompt has its own seed, below 2^31 so that every server accepts it."""
        seed = 0
        if self.sampling.temperature > 0:
            digest = hashlib.sha256(f"{self.seed}\n{identity}".encode()).digest()
            seed = int.from_bytes(digest[:4], "big") >> 1
        prompt = TaskPrompt(text, "", self.design.form).prompt(self.prompt_format)
        for repeat in range(self.design.repeats):
            request = base.GenerateRequest(prompt, self.sampling, seed, repeat)
            yield Item(f"{identity}/r{repeat}", request, {**factors, "repeat": repeat})

    def follow_ups(self, item: Item, response: base.Response) -> Iterable[Item]:
        if not isinstance(response, base.GenerateResponse):
            return
        factors, text = item.factors, response.text
        if self.design.asks_preference and needs_preference(factors, text):
            yield Item(f"{item.id}#preference", self._preference(item), {**factors, "kind": "preference"})
        if self.design.asks_bare_words and needs_bare_words(factors, text):
            yield Item(f"{item.id}#bare", _bare_words(item), {**factors, "kind": "bare"})
        if not text.strip():
            return
        for name in self.design.text_scorers:
            yield Item(f"{item.id}#{name}", base.ClassifyRequest(text), {**factors, "kind": name}, name)

    def _preference(self, item: Item) -> base.ScoreRequest:
        """log P of each descriptor with its closing mark, right after the opening mark of an answer."""
        assert isinstance(item.request, base.GenerateRequest)
        pair, prompt = pair_of(item.factors), item.request.prompt
        begun = self.design.separator + "{"
        context = prompt + begun if isinstance(prompt, str) else (*prompt, base.Message("assistant", "{"))
        return base.ScoreRequest(context, (f"{pair.biased}}}", f"{pair.anti}}}"))

    # -- rows, figures, report -----------------------------------------------------------------------

    def read(self, item: Item, response: base.Response) -> Row:
        match response:
            case base.GenerateResponse(text):
                return Row(item.id, item.factors, read_text(item.factors, text, self.design.variant))
            case base.ScoreResponse((biased, anti)) if item.factors["kind"] == "bare":
                return Row(item.id, item.factors, {"prefers_biased": read_bare_words(biased, anti)})
            case base.ScoreResponse((biased, anti)):
                preferred = read_preference(biased, anti, self.design.fallback)
                return Row(item.id, item.factors, {"prefers_biased": preferred})
            case base.ClassifyResponse():
                assert item.scorer is not None
                if item.is_control:
                    return read_labelled(item, self.design.raters[item.scorer], response)
                return self.design.text_scorers[item.scorer].read(item, response)
            case _:
                raise TypeError(f"{item.id}: cannot read a {type(response).__name__}")

    def planted(self, item: Item, bias: float, draw: int) -> base.Response | None:
        """The biased descriptor is picked in half of the texts, and in ``bias`` / 2 more; a tenth leaves the pick open,
        which likelihood then decides in the same way. Classifiers are not asked."""
        if isinstance(item.request, base.ClassifyRequest):
            return None
        picks_biased = chance("pick", item.id, draw) < 0.5 + bias / 2
        if isinstance(item.request, base.ScoreRequest):
            return planted_scores(
                dict(zip(item.request.continuations, (0.4, 0.2) if picks_biased else (0.2, 0.4), strict=True))
            )
        target, pair = item.factors["target"], pair_of(item.factors)
        if chance("open", item.id, draw) < 0.1:
            return base.GenerateResponse(f" This is about: {target}.", "stop")
        picked = pair.biased if picks_biased else pair.anti
        return base.GenerateResponse(f" {target}: {{{picked}}}.", "stop")

    def derive(self, rows: Sequence[Row]) -> Sequence[Row]:
        return derived_rows(self.design, rows)

    def measures(self, rows: Sequence[Row]) -> Iterator[MeasureSpec]:
        return measure_specs(self.design, rows)


def _bare_words(item: Item) -> base.ScoreRequest:
    pair = pair_of(item.factors)
    return base.ScoreRequest("", (pair.biased, pair.anti), first_given=True)
