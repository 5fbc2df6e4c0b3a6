"""What a gate found, and how it tells people and CI systems: JSON, JUnit XML, Markdown."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Collection
from typing import Literal
from xml.etree import ElementTree

from audit.report.formatting import number
from audit.report.safe_text import one_line
from audit.results import Measure, Reported, Scalar

GateVerdict = Literal["regressed", "improved", "unchanged", "inconclusive", "not comparable"]
LimitVerdict = Literal["met", "broken", "insufficient evidence"]

_OPEN = ("inconclusive", "not comparable", "insufficient evidence")
_NOT_IN_XML = re.compile(r"[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class GatedFigure(Reported):
    """One figure against the baseline.

    ``low``/``high`` bound the change (current minus baseline) at the run's confidence,
    ``harm_low``/``harm_high`` the harm. ``p_regressed`` is after Holm's correction. ``paired`` says
    whether the change was taken item by item, or from the two runs' intervals alone. ``baseline`` and
    ``current`` are over the ``n_items`` that both runs answered; ``unmatched`` items only one did.
    """

    model: str
    suite: str
    measure: str
    where: dict[str, Scalar]
    verdict: GateVerdict
    baseline: float | None = None
    current: float | None = None
    change: float | None = None
    low: float | None = None
    high: float | None = None
    harm_low: float | None = None
    harm_high: float | None = None
    p_regressed: float | None = None
    margin: float | None = None
    n_items: int = 0
    n_unpaired: int = 0
    paired: bool = False
    words: str


class LimitCheck(Reported):
    """One figure against an absolute limit, decided on its interval."""

    model: str
    suite: str
    measure: str
    where: dict[str, Scalar]
    limit: str
    at_least: float | None
    at_most: float | None
    value: float | None
    low: float | None
    high: float | None
    verdict: LimitVerdict
    words: str


class GateReport(Reported):
    """What the gate found. ``exit_code`` is 3 where it fails, else 0."""

    run_id: str
    baseline_run_id: str | None
    confidence: float
    inconclusive_fails: bool
    figures: list[GatedFigure]
    limits: list[LimitCheck]

    @property
    def failures(self) -> list[GatedFigure | LimitCheck]:
        """What makes the gate fail."""
        bad = {"regressed", "broken"}
        if self.inconclusive_fails:
            bad |= set(_OPEN)
        return [one for one in self.checks if one.verdict in bad]

    @property
    def checks(self) -> list[GatedFigure | LimitCheck]:
        """Everything that was judged."""
        return [*self.figures, *self.limits]

    @property
    def exit_code(self) -> int:
        """0 if the gate lets the run pass, 3 if not. Where open questions fail it, having nothing to check does too."""
        return 3 if self.failures or (self.inconclusive_fails and not self.checks) else 0

    def to_json(self) -> str:
        """The whole report, with the exit code and a count of each verdict."""
        return json.dumps({"exit_code": self.exit_code, "counts": self.counts(), **self.model_dump()}, indent=1)

    def counts(self) -> dict[str, int]:
        """How often each verdict was given."""
        counts: dict[str, int] = {}
        for one in self.checks:
            counts[one.verdict] = counts.get(one.verdict, 0) + 1
        return counts

    def junit_xml(self) -> str:
        """JUnit's XML: a failed test for each failure, a skipped one for each open question."""
        failed = {id(one) for one in self.failures}
        root = ElementTree.Element("testsuites", name="audit gate")
        for (model, suite), some in itertools.groupby(
            sorted(self.checks, key=lambda one: (one.model, one.suite)),
            key=lambda one: (one.model, one.suite),
        ):
            group = ElementTree.SubElement(root, "testsuite", name=_printable(f"{model} / {suite}"))
            for one in some:
                case = ElementTree.SubElement(
                    group, "testcase", classname=_printable(f"{model}.{suite}"), name=_printable(title(one))
                )
                if id(one) in failed:
                    tag = "failure"
                elif one.verdict in _OPEN:
                    tag = "skipped"
                else:
                    continue
                ElementTree.SubElement(case, tag, message=_printable(f"{one.verdict}: {one.words}"))
            for count, tag in (
                ("tests", "testcase"),
                ("failures", "testcase/failure"),
                ("skipped", "testcase/skipped"),
            ):
                group.set(count, str(len(group.findall(tag))))
        ElementTree.indent(root)
        return ElementTree.tostring(root, encoding="unicode", xml_declaration=True)

    def markdown(self) -> str:
        """A summary for a CI system's page: what failed first, then all verdicts, then why some are open."""
        failed, total = f"{len(self.failures)} of " if self.failures else "", len(self.checks)
        counts = ", ".join(f"{count} {name}" for name, count in self.counts().items())
        against = "its limits alone" if self.baseline_run_id is None else f"baseline `{self.baseline_run_id}`"
        lines = [
            f"# Gate {gate_outcome(bool(self.exit_code), self.counts())}: {failed}{total} checks",
            "",
            f"Run `{self.run_id}` against {against}: {counts or 'nothing to check'}.",
        ]
        if failures := self.failures:
            lines += ["", *(f"- **{one.verdict}**: {_escaped(one.words)}" for one in failures)]
        if self.figures:
            lines += [
                "",
                "| model | suite | figure | baseline | current | change | verdict |",
                "|---|---|---|---|---|---|---|",
            ]
            lines += [
                f"| {_escaped(f.model)} | {_escaped(f.suite)} | {_escaped(title(f))} | {_shown(f.baseline)} "
                f"| {_shown(f.current)} | {span_words(f.low, f.high)} | {f.verdict} |"
                for f in self.figures
            ]
        if self.limits:
            lines += ["", "| model | suite | figure | limit | interval | verdict |", "|---|---|---|---|---|---|"]
            lines += [
                f"| {_escaped(c.model)} | {_escaped(c.suite)} | {_escaped(title(c))} "
                f"| {limit_words(c.at_least, c.at_most)} | {span_words(c.low, c.high)} | {c.verdict} |"
                for c in self.limits
            ]
        if still_open := [one for one in self.checks if one.verdict in _OPEN and not self.inconclusive_fails]:
            lines += ["", "## Open, and why", ""]
            lines += [f"- {one.verdict}: {_escaped(one.words)}" for one in still_open]
        return "\n".join(lines) + "\n"


def gate_outcome(failed: bool, verdicts: Collection[str]) -> str:
    """A gate in words. One that could judge no check has not passed: it knows nothing."""
    if failed:
        return "failed"
    return "decided nothing" if set(verdicts) <= set(_OPEN) else "passed"


def title(one: Measure | GatedFigure | LimitCheck) -> str:
    """The figure's name and where it holds."""
    where = ", ".join(f"{factor} {level}" for factor, level in one.where.items())
    name = one.measure
    if isinstance(one, LimitCheck):
        name = f"limit on {one.limit}" if one.limit == one.measure else f"limit on {one.limit} of {one.measure}"
    return f"{name} ({where})" if where else name


def limit_words(least: float | None, most: float | None) -> str:
    """A limit as a phrase."""
    parts = [f"at least {least:g}"] if least is not None else []
    parts += [f"at most {most:g}"] if most is not None else []
    return " and ".join(parts) or "none"


def _shown(value: float | None) -> str:
    return "" if value is None else number(value)


def span_words(low: float | None, high: float | None) -> str:
    """An interval as a phrase."""
    return "unknown" if low is None or high is None else f"{number(low)} to {number(high)}"


def _escaped(text: str) -> str:
    """Text that is no markup in Markdown, and still reads well on a terminal: underscores within words are none."""
    escaped = one_line(text).replace("&", "&amp;").replace("<", "&lt;")
    for char in "\\|*`[":
        escaped = escaped.replace(char, "\\" + char)
    return escaped


def _printable(text: str) -> str:
    """XML 1.0 has no control characters, lone surrogates and non-characters, not even escaped."""
    return _NOT_IN_XML.sub("�", text)
