"""Lines of each part beside its budget, and the graph of imports: `python -m tests.house`.

It prints a table and never fails. What must hold (no circle of imports, layers) is tested in `tests/test_imports.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("audit", "backends", "suites")
BUDGETS = {
    "backends/transformers backends/local": 5500,
    "backends/llamacpp": 800,
    "backends/vllm": 600,
    "backends/classifiers backends/reading": 900,
    "backends/openai backends/anthropic backends/http": 4600,
    "backends": 14500,
    "suites/common suites/kinds": 2400,
    "suites/custom": 1600,
    "suites/occugender": 700,
    "suites/debiasing": 900,
    "suites/mgbr": 1900,
    "suites/genderpair": 1600,
    "suites/benchmarks": 1800,
    "suites": 11500,
    "audit/analysis": 4200,
    "audit/store": 2200,
    "audit/collect": 1600,
    "audit/prepare audit/config": 1900,
    "audit/run audit/results audit/api": 2400,
    "audit/report": 5500,
    "audit/cli": 1100,
    "audit/schedule": 400,
    "audit": 19500,
    "tests": 30000,
}

Graph = Mapping[str, set[str]]


def modules(root: Path, package: str) -> dict[str, Path]:
    """Module name → file, for every Python file below a package."""
    found = {}
    for path in sorted((root / package).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def import_graph(files: Mapping[str, Path]) -> dict[str, set[str]]:
    """Who imports whom when the program runs: in functions and by name too, but not what is for type checkers alone.

    A package's ``__init__`` that gives its names on demand imports none of them.
    """
    return {name: set(_imported(path, files)) - {name} for name, path in files.items()}


def _imported(path: Path, files: Mapping[str, Path]) -> Iterator[str]:
    text = path.read_text("utf-8")
    for node in _walk_at_run_time(ast.parse(text)):
        by_name = isinstance(node, ast.Constant) and node.value in files and "import_module" in text
        if by_name and path.name != "__init__.py":
            yield str(node.value)
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            if name in files:
                yield name
            elif name.rpartition(".")[0] in files:
                yield name.rpartition(".")[0]


def _walk_at_run_time(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        yield from _walk_at_run_time(node)


def circles(graph: Graph) -> list[list[str]]:
    """Groups of modules that import each other round about (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph[node]):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            group = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(group) > 1:
                found.append(sorted(group))

    for node in graph:
        if node not in index:
            visit(node)
    return found


def lines(folder: Path) -> int:
    """Python lines below a folder, with docstrings and blanks."""
    return sum(path.read_text("utf-8").count("\n") for path in folder.rglob("*.py"))


def main() -> None:
    width = max(map(len, BUDGETS))
    print(f"{'':{width}}  {'lines':>6}  {'budget':>6}")
    for folders, budget in BUDGETS.items():
        print(f"{folders:{width}}  {sum(lines(ROOT / folder) for folder in folders.split()):6}  {budget:6}")


if __name__ == "__main__":
    main()
