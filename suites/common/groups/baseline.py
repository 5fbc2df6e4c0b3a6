"""How common a contrast's words are: the same continuations after a neutral start, asked once for each list of words.

A contrast of expressions also measures which of them are frequent. So beside each contrast stands the same contrast
after ``...`` in the form of the prompts (``NAME_baseline``), and by option the contrast corrected for it: with the
shares P̃ of a question and B̃ of the neutral start,

    P̃(group) / B̃(group), divided by the sum of these over all groups        (``NAME_prior_corrected``)

which is 1 / n for each of n groups where a prompt changes nothing. Holtzman et al. 2021 (arXiv:2104.08315), eq. 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from backends.base import Response, ScoreRequest
from suites.base import KIND, Factor, IdentifiedInterval, Item, MeasureSpec, Row
from suites.common.expressions import Expressions, continuations
from suites.common.groups.design import GroupDesign
from suites.common.planted import planted_groups
from suites.common.probabilities import weighted_share
from suites.common.task_prompt import PromptFormat, TaskPrompt

#: The neutral start: no language's word.
NEUTRAL_START = "..."
#: The kind of its rows.
BASELINE = "baseline"


@dataclass(frozen=True)
class Baseline:
    """The neutral questions of a suite.

    ``form``, ``separator``, ``prompt_format``: those of the suite's prompts. ``asked``: the lists of words that its
    questions score. ``corrected``: whether the corrected contrasts are reported too.
    """

    groups: GroupDesign
    form: str
    separator: str
    prompt_format: PromptFormat
    asked: Sequence[Expressions]
    corrected: bool = False

    @cached_property
    def _lists(self) -> list[Expressions]:
        return [*{tuple(words.items()): words for words in self.asked}.values()]

    def _words(self, of: Item | Row) -> Expressions:
        return self._lists[int(str(of.factors["list"]))]

    def items(self) -> Iterator[Item]:
        """One question for each list of words."""
        prompt = TaskPrompt(NEUTRAL_START, "", self.form, self.separator)
        asked, space = prompt.prompt(self.prompt_format), prompt.space(self.prompt_format)
        for number, words in enumerate(self._lists if self.groups.contrasts else ()):
            factors: dict[str, Factor] = {KIND: BASELINE, "list": number}
            yield Item(
                f"{BASELINE}/{number}", ScoreRequest(asked, continuations(words, space)), factors, is_control=True
            )

    def read(self, item: Item, response: Response) -> Row:
        """The groups' shares and the contrasts after the neutral start."""
        row = self.groups.read(item.id, item.factors, response, self._words(item), None)
        return replace(row, values={f"{name}_{BASELINE}": value for name, value in row.values.items()})

    def planted(self, item: Item) -> Response:
        """Equal shares."""
        return planted_groups(self._words(item), item, self.groups.names, 0.0, item.id)

    def derive(self, rows: Iterable[Row], words_of: Callable[[Row], Expressions]) -> tuple[list[Row], list[Row]]:
        """The rows of questions, with their corrected contrasts, and those of the neutral start that have an answer.

        ``words_of``: a question's list of words.
        """
        every = list(rows)
        if not self.asked:
            return every, []
        neutral = [row for row in every if is_baseline(row.factors) and row.missing is None]
        asked = [row for row in every if not is_baseline(row.factors)]
        if self.corrected:
            by_list = {tuple(self._words(row).items()): row for row in neutral}
            asked = [self._corrected(row, by_list.get(tuple(words_of(row).items()))) for row in asked]
        return asked, neutral

    def _corrected(self, row: Row, neutral: Row | None) -> Row:
        if neutral is None:
            return row
        ratios = {}
        for group in self.groups.names:
            share, base = row.values.get(f"p_{group}"), neutral.values.get(f"p_{group}_{BASELINE}")
            if share is None or base is None or base.low <= 0:  # missing, or no drawn answer names a group
                return row
            at = None if share.value is None or not base.value else share.value / base.value
            ratios[group] = IdentifiedInterval(at, share.low / base.high, share.high / base.low)
        found = {f"{name}_prior_corrected": weighted_share(ratios, w) for name, w in self.groups.contrasts.items()}
        return replace(row, values={**row.values, **found})

    def measures(self, spec: MeasureSpec) -> Iterator[MeasureSpec]:
        """What stands beside the figure of a contrast."""
        name, plain = spec.measure, replace(spec, primary=False, family="how common the words are")
        beside = replace(plain, measure=f"{name}_{BASELINE}", quantity=f"{name}_{BASELINE}")
        yield replace(beside, where={KIND: BASELINE}, clusters=(), stratum=None, weights=None, population="")
        if self.corrected:
            yield replace(plain, measure=f"{name}_prior_corrected", quantity=f"{name}_prior_corrected")


def is_baseline(factors: Mapping[str, Factor]) -> bool:
    """Whether a row or an item is of a neutral start."""
    return factors.get(KIND) == BASELINE
