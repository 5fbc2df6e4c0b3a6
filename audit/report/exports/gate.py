"""Gate reports for people and CI systems: JSON, JUnit XML, Markdown."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

from audit.report.phrases.gate import (
    check_title,
    check_words,
    gate_summary,
    interval_phrase,
    limit_phrase,
    over_nights_phrase,
)
from audit.report.templating import environment
from audit.results import OPEN_VERDICTS, Check, GateReport

_NOT_IN_XML = re.compile(r"[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def gate_json(report: GateReport) -> str:
    """The whole report with its sentences, the exit code and a count of each verdict."""
    checks = {"figures": _with_words(report.figures), "limits": _with_words(report.limits)}
    return json.dumps(
        {"exit_code": report.exit_code, "counts": report.counts(), **report.model_dump(), **checks}, indent=1
    )


def _with_words(checks: Sequence[Check]) -> list[dict[str, Any]]:
    return [{**check.model_dump(), "words": check_words(check)} for check in checks]


def junit_xml(report: GateReport) -> str:
    """JUnit's XML: a failed test for each failure, a skipped one for each open question."""
    failed = {id(check) for check in report.failures}
    root = ElementTree.Element("testsuites", name="audit gate")

    def group(check: Check) -> tuple[str, str]:
        return check.model, check.suite

    for (model, suite), checks in itertools.groupby(sorted(report.checks, key=group), key=group):
        element = ElementTree.SubElement(root, "testsuite", name=_printable(f"{model} / {suite}"))
        for check in checks:
            case = ElementTree.SubElement(
                element, "testcase", classname=_printable(f"{model}.{suite}"), name=_printable(check_title(check))
            )
            if id(check) in failed or check.verdict in OPEN_VERDICTS:
                message = _printable(f"{check.verdict}: {check_words(check)}")
                ElementTree.SubElement(case, "failure" if id(check) in failed else "skipped", message=message)
        for count, tag in (("tests", "testcase"), ("failures", "testcase/failure"), ("skipped", "testcase/skipped")):
            element.set(count, str(len(element.findall(tag))))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True)


def gate_markdown(report: GateReport) -> str:
    """A summary for a CI system's page: what failed first, then all verdicts, then why some are open."""
    failed = {id(check) for check in report.failures}
    heading, counted = gate_summary(report, code="`")
    text = environment().get_template("gate.md.j2").render(
        heading=heading,
        counted=counted,
        figures=report.figures,
        limits=report.limits,
        failures=report.failures,
        still_open=[c for c in report.checks if c.verdict in OPEN_VERDICTS and id(c) not in failed],
        words=check_words,
        title=check_title,
        nights=over_nights_phrase,
        interval=interval_phrase,
        allowed=limit_phrase,
    )  # fmt: skip
    return f"{text.strip()}\n"


def _printable(text: str) -> str:
    """Replace control characters, lone surrogates and non-characters, which XML 1.0 cannot contain even if escaped."""
    return _NOT_IN_XML.sub("\ufffd", text)
