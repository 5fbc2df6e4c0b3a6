"""Imports go one way: backends know nothing of the project, suites know backends.base, audit knows both."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HEAVY = ("torch", "transformers", "llama_cpp", "pandas", "scipy", "altair")


def project_imports(file: Path) -> set[str]:
    """Modules of this project that a file imports, relative ones and type-checking ones included."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            found.add(node.module)
    return {name for name in found if name.split(".")[0] in ("audit", "backends", "suites", "tests")}


@pytest.mark.parametrize("file", sorted((ROOT / "backends").rglob("*.py")), ids=lambda p: p.name)
def test_backends_import_nothing_else_of_the_project(file):
    assert {n for n in project_imports(file) if n.split(".")[0] != "backends"} == set()


@pytest.mark.parametrize("file", sorted((ROOT / "suites").rglob("*.py")), ids=lambda p: p.name)
def test_suites_import_of_backends_only_the_types(file):
    foreign = {n for n in project_imports(file) if n.split(".")[0] != "suites"}
    assert foreign <= {"backends.base", "backends.errors", "backends.options", "backends.classifiers"}


@pytest.mark.parametrize("file", sorted((ROOT / "audit").rglob("*.py")), ids=lambda p: p.name)
def test_the_product_imports_no_tests(file):
    assert not {n for n in project_imports(file) if n.split(".")[0] == "tests"}


@pytest.mark.parametrize("statement", ["import audit, backends, suites", "import audit.cli; audit.cli.app"])
def test_importing_loads_no_engine(statement):
    code = f"import sys; {statement}; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"
