"""A pytest plugin: audits as tests, decided by the rules of `audit gate`.

def test_bias(audit):
    audit.run("org/model", "pairs.csv").assert_at_most("stereotype_gap", 0.1)
"""

from __future__ import annotations

import difflib
import hashlib
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, get_args

import pytest

from backends.errors import ConfigError

if TYPE_CHECKING:
    from audit.results import AuditResult, Measure, OpenFails
    from backends.base import Backend
    from suites.base import Suite

Side = Literal["at least", "at most"]


def _failed(message: str) -> NoReturn:
    """Fail the test at its own line: pytest shows no frame of a function with ``__tracebackhide__``."""
    __tracebackhide__ = True
    pytest.fail(message)


def _checked(bound: float) -> float:
    if isinstance(bound, bool) or not isinstance(bound, int | float) or not math.isfinite(bound):
        raise ConfigError("bound", bound, "not a finite number", "Give one, e.g. 0.6")
    return bound


def _close(where: Mapping[str, Any], figures: Iterable[Measure]) -> str:
    """What to write for levels that no figure has."""
    known = list(dict.fromkeys(level for one in figures for level in one.where.items()))
    for name, level in where.items():
        shown = {str(other).casefold(): other for of, other in known if of == name}
        if level not in shown.values() and (close := difflib.get_close_matches(str(level).casefold(), shown, n=1)):
            return f"Did you mean {name}={shown[close[0]]!r}?"
    levels = ", ".join(f"{name}={level!r}" for name, level in known[:20])
    return f"There are: {levels}" if known else "It has no levels: leave them out"


class TestedAudit:
    """The result of an audit in a test.

    Attributes
    ----------
    result : AuditResult
    """

    __test__ = False  # pytest would collect it for its name

    def __init__(self, result: AuditResult, db: Path, *, counts_nights: bool) -> None:
        self.result, self._db, self._counts_nights = result, db, counts_nights

    def assert_at_most(self, measure: str, bound: float, *, open_fails: OpenFails = "all", **where: Any) -> None:
        """Fail unless the interval of ``measure`` shows that it is at most ``bound``.

        The overall figures are meant, or those with the levels ``where``: ``group="Muslim"``. ``open_fails``: which
        undecided checks fail the test too, as in a gate: ``"all"``, ``"missing"`` (only those that missing answers
        leave open) or ``"none"``.
        """
        __tracebackhide__ = True
        self._assert(measure, "at most", bound, open_fails, where)

    def assert_at_least(self, measure: str, bound: float, *, open_fails: OpenFails = "all", **where: Any) -> None:
        """Fail unless the interval of ``measure`` shows that it is at least ``bound``; else as `assert_at_most`."""
        __tracebackhide__ = True
        self._assert(measure, "at least", bound, open_fails, where)

    def _assert(self, measure: str, side: Side, bound: float, open_fails: OpenFails, where: Mapping[str, Any]) -> None:
        __tracebackhide__ = True
        try:
            said = self._failures(measure, side, bound, open_fails, where)
        except ConfigError as error:
            said = [str(error)]
        if said:
            _failed("\n".join(said))

    def _failures(
        self, measure: str, side: Side, bound: float, open_fails: OpenFails, where: Mapping[str, Any]
    ) -> list[str]:
        """Check the figures with the levels ``where``, and no further ones, against a limit.

        Raises
        ------
        ConfigError
            For another bound or ``open_fails``, or levels that no figure has.
        """
        from audit.analysis.gate.rules import GateRules
        from audit.analysis.gate.stored import check_run, stored_tables
        from audit.report.phrases.gate import check_words
        from audit.results import OpenFails as Known
        from audit.store import Store

        if open_fails not in get_args(Known):
            raise ConfigError("open_fails", open_fails, "unknown", f"Use one of: {', '.join(get_args(Known))}")
        figures = [one for one in self.result.measures if one.measure == measure]
        of_levels = [one for one in figures if where.items() <= one.where.items()]
        if figures and not of_levels:
            raise ConfigError(measure, dict(where), "no figure has these levels", _close(where, figures))
        if figures and all(one.is_subgroup for one in of_levels):
            problem = "a figure of a single level, such as one occupation, decides nothing"
            raise ConfigError(measure, dict(where), problem, "Assert the figure over all of them")
        bounds = (_checked(bound), None) if side == "at least" else (None, _checked(bound))
        rules = GateRules(limits={measure: bounds}, open_fails=open_fails)
        with Store.open(self._db) as store:
            report = check_run(
                store, self.result, stored_tables(store, self.result), None, rules, record=self._counts_nights
            )
        meant = [check for check in report.limits if where.items() <= check.where.items()]
        meant = [check for check in meant if not any(other.where.items() < check.where.items() for other in meant)]
        if not meant:
            named = ", ".join(dict.fromkeys(one.measure for one in self.result.measures))
            hint = _close(where, self.result.measures) if where else f"Figures: {named}"
            raise ConfigError(measure, dict(where), "a limit on it is held against no figure of this audit", hint)
        report = report.model_copy(update={"limits": meant})
        said = [*map(check_words, report.failures)]
        if said and any(check.verdict == "insufficient evidence" for check in report.limits):
            said.append("What is undecided fails too: ask more questions, widen the bound, or pass open_fails='none'.")
        return said


class AuditFixture:
    """Runs audits of one model on one suite for a test."""

    def __init__(self, folder: Path, answers: Path) -> None:
        self._folder, self._answers = folder, answers
        self._runs = 0

    def run(
        self, model: Backend | str, suite: Suite | str, *, api_key_env: str | None = None, **options: Any
    ) -> TestedAudit:
        """Audit a model and return the result. Fails the test if a question has no answer.

        Parameters
        ----------
        model : Backend or str
            A backend, or a string as for `audit run --model`.
        suite : Suite or str
            A suite, or a string as for `audit run --suite`.
        options
            Options of `audit.Audit`: ``limit``, ``seed``, ``confidence``…; ``db`` names another store than that of
            this test, which pytest's cache keeps: what is answered is not asked again by the next pytest run.
        """
        __tracebackhide__ = True
        try:
            tested = self._run(model, suite, api_key_env, options)
        except ConfigError as error:
            tested = str(error)
        if isinstance(tested, str):
            _failed(tested)
        return tested

    def _run(
        self, model: Backend | str, suite: Suite | str, api_key_env: str | None, options: Mapping[str, Any]
    ) -> TestedAudit | str:
        """The result, or what is wrong with it."""
        from audit.api.adhoc import load_suite
        from audit.api.audits import Audit
        from audit.config import SUITE_FILES
        from backends import FakeBackend, named_backend

        self._runs += 1  # in one store another model would count as another night of this one
        if isinstance(model, str) and model.casefold().endswith(SUITE_FILES) and not model.endswith(".jsonl"):
            raise ConfigError("model", model, "a suite's file", "Give the model first, then the suite")
        backend = named_backend(model, api_key_env=api_key_env) if isinstance(model, str) else model
        # A planted function may be changed under the same name: its answers are not kept.
        kept = self._folder if type(backend) is FakeBackend else self._answers
        given = {"db": kept / f"audit-{self._runs}.db", "out": self._folder / "audit-out", **options}
        asked = Audit({"model": backend}, [load_suite(suite) if isinstance(suite, str) else suite], **given)
        result = asked.run_sync()
        if not result.complete:
            return "\n".join(result.problems())
        # Tests run again on kept answers are no further nights; in a store that is named they may be.
        return TestedAudit(result, Path(given["db"]), counts_nights="db" in options)


@pytest.fixture
def audit(request: pytest.FixtureRequest, tmp_path: Path) -> AuditFixture:
    """Runs audits for this test, in a store of its own that pytest's cache keeps (but not the answers of fakes)."""
    cache: pytest.Cache | None = getattr(request.config, "cache", None)
    of_test = hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:16]
    return AuditFixture(tmp_path, tmp_path if cache is None else cache.mkdir("bias-audit") / of_test)
