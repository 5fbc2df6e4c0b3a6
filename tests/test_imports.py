"""Imports go one way, in no circle, and the generic engine names no suite and no backend."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import suites
from tests.house import PACKAGES, circles, import_graph, modules
from tests.suites.benchmarks import invented

ROOT = Path(__file__).parent.parent
HEAVY = ("torch", "transformers", "llama_cpp", "vllm", "pandas", "scipy", "altair", "ray")
FILES = {name: path for package in (*PACKAGES, "tests") for name, path in modules(ROOT, package).items()}

#: What each part of `audit` may import of the others. `audit/__init__` binds the parts together.
LAYERS = {
    "logs": (),
    "results": (),
    "store": ("analysis", "results"),
    "collect": ("logs", "store"),
    "analysis": ("results", "store"),
    "report": (
        "analysis",
        "collect",
        "prepare.boundaries",
        "prepare.forecast",
        "prepare.rehearsal",
        "results",
        "store",
    ),
    "config": ("collect",),
    "prepare": (),
    "prepare.resolve": ("collect", "config", "results", "store"),
    "prepare.boundaries": (),
    "prepare.rehearsal": ("analysis", "collect", "config", "prepare.boundaries", "results"),
    "prepare.forecast": ("analysis", "collect", "config", "prepare.resolve", "results", "store"),
    "api": (),
    "api.audits": ("collect", "config", "report", "results", "run", "store"),
    "api.adhoc": ("api.audits", "config"),
    "pytest_plugin": ("analysis", "api.adhoc", "api.audits", "config", "report", "results", "store"),
    "run": (
        "analysis",
        "collect",
        "config",
        "logs",
        "prepare.rehearsal",
        "prepare.resolve",
        "results",
        "store",
    ),
    "schedule": ("analysis", "collect", "config", "report", "results", "run", "store"),
    "cli": (
        "analysis",
        "api.adhoc",
        "collect",
        "config",
        "prepare.forecast",
        "prepare.rehearsal",
        "report",
        "results",
        "run",
        "schedule",
        "store",
    ),
    "__main__": ("cli",),
}


def part(module: str) -> str:
    """The part of `audit` that a module belongs to: ``audit.prepare.resolve`` to ``prepare.resolve``."""
    names = module.split(".")[1:]
    return ".".join(names[:2] if names[:1] in (["prepare"], ["api"]) else names[:1])


#: Factors whose names are plain words, or keys of chart specifications, a model card or other tools' formats too.
PLAIN = {"aspect", "condition", "form", "group", "identity", "kind", "other", "p", "prompt", "q", "question", "r"}
PLAIN |= {"target", "task", "type"}


def project_imports(file: Path) -> set[str]:
    """Modules of this project that a file imports, those for type checkers included."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            found.add(str(node.module))
    return {name for name in found if name.split(".")[0] in (*PACKAGES, "tests")}


def imports_of(package: str) -> list[tuple[str, str]]:
    """(module, imported) over a package's files."""
    pairs = [(name, project_imports(path)) for name, path in FILES.items() if name.split(".")[0] == package]
    return [(name, imported) for name, found in pairs for imported in sorted(found)]


def test_backends_import_nothing_else_of_the_project():
    assert [pair for pair in imports_of("backends") if pair[1].split(".")[0] != "backends"] == []


def test_suites_import_only_the_types_of_backends():
    names = (
        "base",
        "errors",
        "options",
        "options.toml_lines",
        "catalogue.plugins",
        "reading.answers",
        "reading.words",
    )
    types = {f"backends.{name}" for name in names}
    foreign = [pair for pair in imports_of("suites") if pair[1].split(".")[0] != "suites" and pair[1] not in types]
    # `backends` gives text classifiers by their names and language models as raters: no suite names a module of one.
    assert foreign == [("suites.common.text_scorer", "backends")]


def test_the_product_imports_no_tests():
    everything = [pair for package in PACKAGES for pair in imports_of(package)]
    assert [pair for pair in everything if pair[1].split(".")[0] == "tests"] == []


def test_audit_imports_downwards():
    broken = []
    for name, imported in imports_of("audit"):
        here, there = part(name), part(imported)
        if imported.split(".")[0] == "audit" and here and there not in (here, "", *LAYERS[here]):
            broken.append((name, imported))
    assert broken == []


def test_no_imports_go_in_a_circle():
    assert circles(import_graph({n: p for n, p in FILES.items() if n.split(".")[0] in PACKAGES})) == []


def test_contributing_names_every_folder():
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    folders = [path for path in (ROOT / "audit").iterdir() if path.is_dir() and any(path.glob("*.py"))]
    assert [path.name for path in folders if f"audit/{path.name}" not in text] == []


def test_audit_imports_no_concrete_suite_or_backend():
    """`config` and `cli` name them by their public names; all else goes through the interfaces."""
    allowed = (
        "suites",
        "suites.base",
        "suites.presentation",
        "backends",
        "backends.base",
        "backends.checking",
        "backends.errors",
    )
    allowed += (
        "backends.files",
        "backends.options",
        "backends.catalogue.plugins",
        "backends.options.toml_lines",
        "backends.reading.words",
        "backends.telling",
    )
    named = [pair for pair in imports_of("audit") if pair[1].split(".")[0] in ("suites", "backends")]
    assert [pair for pair in named if pair[1] not in allowed] == []


def test_audit_names_no_factor_of_a_suite(monkeypatch, tmp_path):
    invented.use(monkeypatch, tmp_path)
    factors = set()
    for name in suites.__all__:
        suite = getattr(suites, name)()
        factors |= {factor for _, item in zip(range(50), suite.items(), strict=False) for factor in item.factors}
    assert {"occupation", "template"} <= factors
    named = []
    for name, path in modules(ROOT, "audit").items():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in factors - PLAIN:
                named.append((name, node.lineno, node.value))
    assert named == []


@pytest.mark.parametrize(
    "statement", ["import audit, backends, suites; audit.Audit", "import audit.cli; audit.cli.main"]
)
def test_importing_loads_no_engine(statement):
    code = f"import sys; {statement}; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"
