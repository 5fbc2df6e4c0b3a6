"""One word for one thing: the names that were given up stay given up."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house import PACKAGES

ROOT = Path(__file__).parent.parent
FOLDERS = (*PACKAGES, "tests", "examples")
DOCUMENTS = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "backends/openai/QUIRKS.md",
    "docs/papers.md",
    "docs/evidence.md",
)

#: Words that no text of the project uses any more, in code, comments, messages or documents.
ANYWHERE = """
    run_telling tell_nobody take_doubtful suspect_since asked_of wave set_aside judge judged SuiteVerdict
    local_work StopSignal _begun patiently patience TokenForcing whole_sequence untruthful
    SeenAnswers then_any_of PathScorer takes_the_likeliest TextSoFar _close_ranks _apart ran_out mend mends
    mended wheres unmatched detectable in_words yes_no _good_place ledger telling write_whole ModelChanged
    NothingDrawn ImpossibleMass MOODY IN_VAIN forgotten stretches remembering
"""
#: Words of plain English that name nothing any more: no class, function, attribute or parameter.
AS_NAMES = """
    Tell finish Asked Prepared Answered Reading evidence Breaker known explain fits learn note Findings
    Listing Notebook spread numbered covers Bounded detail turned counted
"""
#: (file, word) → why it stays there.
ALLOWED = {
    ("tests/test_vocabulary.py", ""): "the list itself",
    ("audit/results/figures.py", "unmatched"): "a key of report.json, which is a public format",
    ("audit/results/figures.py", "detectable"): "a key of report.json",
    ("audit/results/figures.py", "ledger"): "a key of report.json",
    ("CHANGELOG.md", "forgotten"): "what users find under a new name",
    ("audit/results/older.py", "forgotten"): "a measure's name in results that are stored already",
    ("suites/mgbr", "judged"): "a level of MGBR's factor `kind`, in results that are stored already",
    ("tests/suites/mgbr", "judged"): "the same level",
    ("backends/errors.py", "untruthful"): "a kind of error in stores that are written already",
    ("audit/cli", "explain"): "a verb of the command line",
    ("audit/store/sqlite/schema.py", "detail"): "a column of the store",
    ("audit/collect/jobs.py", "note"): "a key of the progress lines that --json prints",
    ("audit/collect/job_run.py", "note"): "a key of the progress lines that --json prints",
    ("suites/presentation.py", "note"): "a key of report.json",
    ("backends/local/generation.py", "finish"): "a text ends; no backend does",
    ("tests/audit/test_results.py", "forgotten"): "results that are stored already",
    ("tests/audit/report/made_up.py", "detectable"): "a key of report.json",
}


def sources() -> Iterator[Path]:
    for folder in FOLDERS:
        yield from sorted(p for p in (ROOT / folder).rglob("*") if p.suffix in (".py", ".js", ".j2", ".css"))
    yield from (ROOT / name for name in DOCUMENTS if (ROOT / name).exists())


def is_allowed(path: Path, word: str) -> bool:
    name = path.relative_to(ROOT).as_posix()
    return any(name.startswith(file) and of in ("", word) for file, of in ALLOWED)


def names(path: Path) -> Iterator[tuple[str, int]]:
    """Names that a file of the product gives: classes, functions, parameters, fields and attributes."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name, node.lineno
            case ast.arg(arg=name):
                yield name, node.lineno
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name, node.lineno
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield name, node.lineno


@pytest.mark.parametrize("word", ANYWHERE.split())
def test_the_old_word_is_gone(word):
    pattern = re.compile(rf"\b{re.escape(word)}\b", re.IGNORECASE)
    places = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sources()
        if not is_allowed(path, word)
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if pattern.search(line)
    ]
    assert places == []


def test_the_old_names_are_gone():
    places = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path in sources()
        if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in PACKAGES
        for name, line in names(path)
        if name.lstrip("_") in AS_NAMES.split() and not is_allowed(path, name.lstrip("_"))
    ]
    assert places == []


def test_the_names_of_tests_are_short():
    """Unit, condition, outcome: in 60 characters."""
    names = [
        node.name
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert len(names) > 1000
    assert [name for name in names if name.startswith("test_") and len(name) > 60] == []
