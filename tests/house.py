"""Size and structure of the code, before and after its move into folders: `python -m tests.house`.

It prints a table and never fails: figures to look at, not limits. What must hold (no circle of imports, layers) is
tested in `tests/test_imports.py`. The figures before, made by this script on the older tree, are in
`house_before.json`.
"""

from __future__ import annotations

import argparse
import ast
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
BEFORE = Path(__file__).with_name("house_before.json")
PACKAGES = ("audit", "backends", "suites")
REPEATED = 6  # so many equal lines in a row are a run that stands twice

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


def depth(graph: Graph) -> int:
    """Modules on the longest chain of imports; those of a circle count as one."""
    group = {name: members[0] for members in circles(graph) for name in members}
    merged: dict[str, set[str]] = {}
    for name, imported in graph.items():
        own = group.get(name, name)
        merged.setdefault(own, set()).update({group.get(other, other) for other in imported} - {own})
    depths: dict[str, int] = {}

    def below(node: str) -> int:
        if node not in depths:
            depths[node] = 1 + max((below(other) for other in merged[node]), default=0)
        return depths[node]

    return max(map(below, merged), default=0)


def measure(root: Path) -> dict[str, Any]:
    """All figures of a tree."""
    figures: dict[str, Any] = {}
    everything: dict[str, Path] = {}
    folders: dict[str, int] = {}
    for package in PACKAGES:
        files = modules(root, package)
        everything |= files
        figures[f"{package}: lines"] = sum(_lines(path) for path in files.values())
        figures[f"{package}: files"] = len(files)
        figures[f"{package}: modules at its top level"] = sum(path.parent == root / package for path in files.values())
        rooms = Counter(path.parent for path in files.values() if path.name != "__init__.py")
        folders |= {str(folder.relative_to(root)): count for folder, count in sorted(rooms.items())}
    figures["lines without tests"] = sum(figures[f"{package}: lines"] for package in PACKAGES)
    figures["lines of code alone"] = sum(map(_code_lines, everything.values()))
    figures["test lines"] = sum(_lines(path) for path in (root / "tests").rglob("*.py"))
    inside = import_graph(modules(root, "audit"))
    figures["audit: imports inside"] = sum(map(len, inside.values()))
    figures["audit: modules on the longest chain of imports"] = depth(inside)
    figures["circles of imports"] = len(circles(import_graph(everything)))
    functions = [_function(name, node) for name, path in everything.items() for node in _functions(path)]
    figures["functions"] = len(functions)
    longest = max(functions, key=lambda f: f["lines"])
    figures["longest function"] = f"{longest['lines']} lines, {longest['parameters']} parameters"
    figures["longest function: name"] = longest["name"]
    figures["functions over 60 lines"] = sum(f["lines"] > 60 for f in functions)
    widest = max((f for f in functions if not f["constructor"]), key=lambda f: f["parameters"])
    figures["most parameters, constructors apart"] = f"{widest['parameters']} ({widest['name']})"
    figures["functions over 8 parameters, constructors apart"] = sum(
        f["parameters"] > 8 and not f["constructor"] for f in functions
    )
    name, path = max(everything.items(), key=lambda found: _lines(found[1]))
    figures["largest module"] = f"{_lines(path)} lines ({name})"
    figures["public names at module level"] = sum(_public(path) for path in everything.values())
    figures[f"runs of {REPEATED} lines that stand twice"] = _repeated(everything.values())
    tests = [node.name for path in (root / "tests").rglob("test_*.py") for node in _functions(path)]
    figures["test names over 60 characters"] = sum(len(n) > 60 for n in tests if n.startswith("test_"))
    figures |= {f"modules in {folder}": count for folder, count in folders.items()}
    return figures


def _lines(path: Path) -> int:
    return path.read_text("utf-8").count("\n")


def _code_lines(path: Path) -> int:
    """Lines without blanks, comments and docstrings."""
    text = path.read_text("utf-8")
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = (node.body[0] for node in ast.walk(ast.parse(text)) if isinstance(node, documented) and node.body)
    written = [one for one in found if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)]
    docstrings = {line for one in written for line in range(one.lineno, (one.end_lineno or one.lineno) + 1)}
    lines = enumerate(text.splitlines(), 1)
    return sum(n not in docstrings and bool(line.strip()) and line.strip()[0] != "#" for n, line in lines)


def _functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _function(module: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, Any]:
    """Lines of code: decorators and the docstring are left out."""
    body = node.body[1:] if ast.get_docstring(node) is not None and len(node.body) > 1 else node.body
    given = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    command = module.startswith("audit.cli")  # the parameters of a command are its options
    return {
        "name": f"{module}.{node.name}",
        "lines": (node.end_lineno or 0) - body[0].lineno + 1,
        "parameters": sum(name not in ("self", "cls") for name in given),
        "constructor": node.name == "__init__" or command,
    }


def _public(path: Path) -> int:
    tree = ast.parse(path.read_text("utf-8"))
    named = [n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]
    named += [t.id for n in tree.body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)]
    return sum(not name.startswith("_") for name in named)


def _repeated(paths: Any) -> int:
    """Segments of equal lines (blanks, comments and imports left out) that occur in more than one place."""
    windows: Counter[tuple[str, ...]] = Counter()
    texts = []
    for path in paths:
        lines = [line.strip() for line in path.read_text("utf-8").splitlines()]
        kept = [line for line in lines if line and not line.startswith(("#", "import ", "from ", '"""'))]
        texts.append(kept)
        windows.update(tuple(kept[i : i + REPEATED]) for i in range(len(kept) - REPEATED + 1))
    runs = 0
    for kept in texts:
        inside = False
        for i in range(len(kept) - REPEATED + 1):
            twice = windows[tuple(kept[i : i + REPEATED])] > 1
            runs += twice and not inside
            inside = twice
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", nargs="?", type=Path, default=ROOT, help="the tree to measure")
    parser.add_argument("--write", type=Path, help="write the figures to this JSON file instead")
    options = parser.parse_args()
    now = measure(options.root)
    if options.write:
        options.write.write_text(json.dumps(now, indent=1) + "\n")
        return
    before = json.loads(BEFORE.read_text())
    width = max(map(len, now))
    print(f"{'':{width}}  {'before':>44}  {'now':>44}")
    for name in dict.fromkeys((*before, *now)):
        print(f"{name:{width}}  {before.get(name, '')!s:>44}  {now.get(name, '')!s:>44}")


if __name__ == "__main__":
    main()
