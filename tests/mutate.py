"""Mutate places drawn by a seed, one at a time, and tell which test fails: `python -m tests.mutate --seed 46`.

Each mutation is made in a copy of the tree. The fast tests run once under coverage.py, which tells which of them reach
which line. A mutation is tried with the tests that reach its line, those of its own package first; then with all of its
folder, since what an import or a shared fixture runs is reached once only. `mutations.json` keeps the last result.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULT = Path(__file__).with_name("mutations.json")
PACKAGES = ("audit", "backends", "suites")
FAST = "not (models or servers or simulation or faults or battery or ray)"
PYTEST = ("-q", "-p", "no:cacheprovider", "-m", FAST)
MINUTES = 15  # for the tests that reach a line; what they have not found by then counts as uncaught
Reaching = dict[tuple[str, int], list[str]]
OPPOSITE: dict[type[ast.AST], type[ast.AST]] = {}
for one, other in (
    (ast.Lt, ast.GtE),
    (ast.Gt, ast.LtE),
    (ast.Eq, ast.NotEq),
    (ast.Is, ast.IsNot),
    (ast.In, ast.NotIn),
    (ast.Add, ast.Sub),
    (ast.Mult, ast.Div),
    (ast.And, ast.Or),
):
    OPPOSITE |= {one: other, other: one}


def places() -> Iterator[dict[str, Any]]:
    """Comparisons, arithmetic, and/or of the product, each with its opposite."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            source = path.read_text("utf-8")
            for node in ast.walk(ast.parse(source)):
                if not isinstance(node, ast.Compare | ast.BinOp | ast.BoolOp):
                    continue
                before = ast.get_source_segment(source, node)
                operator = node.ops[0] if isinstance(node, ast.Compare) else node.op
                if type(operator) not in OPPOSITE or before is None or "\n" in before:
                    continue
                opposite = OPPOSITE[type(operator)]()
                if isinstance(node, ast.Compare):
                    node.ops[0] = opposite  # type: ignore[call-overload]
                else:
                    node.op = opposite  # type: ignore[assignment]
                where = {"file": str(path.relative_to(ROOT)), "line": node.lineno, "column": node.col_offset}
                yield {**where, "before": before, "after": ast.unparse(node)}


def reaching_tests(tree: Path, tests: str = "tests") -> Reaching:
    """File and line → the fast tests that reach it, by one run of all."""
    from coverage import CoverageData

    data, settings = tree.with_name("reached"), tree.with_name("reached.toml")
    settings.write_text(f"[tool.coverage.run]\nsource = {[str(tree / package) for package in PACKAGES]}\n", "utf-8")
    run = ["coverage", "run", f"--rcfile={settings}", f"--data-file={data}", "-m", "pytest", "-p", "tests.mutate"]
    subprocess.run([sys.executable, "-m", *run, *PYTEST, tests], cwd=tree, env=_environment(tree), check=False)
    found = CoverageData(str(data))
    found.read()
    return {
        (str(Path(file).relative_to(tree)), line): [test for test in reached if test]
        for file in found.measured_files()
        for line, reached in found.contexts_by_lineno(file).items()
    }


def pytest_runtest_setup(item: Any) -> None:
    """What runs from here on is reached by this test."""
    from coverage import Coverage

    Coverage.current().switch_context(item.nodeid.partition("[")[0])  # type: ignore[union-attr]


def catching_test(tree: Path, place: dict[str, Any], reaching: Reaching) -> str:
    """The first test that fails with this mutation; empty if none does."""
    path = tree / place["file"]
    source = path.read_text("utf-8")
    lines = source.splitlines(keepends=True)
    at = place["line"] - 1
    column = len(lines[at].encode()[: place["column"]].decode())
    before, after = lines[at][:column], lines[at][column + len(place["before"]) :]
    lines[at] = f"{before}({place['after']}){after}"
    path.write_text("".join(lines), "utf-8")
    folder = Path("tests", place["file"]).parent
    while not (tree / folder).is_dir():
        folder = folder.parent
    tests = sorted(reaching.get((place["file"], place["line"]), []), key=lambda test: not test.startswith(str(folder)))
    try:
        return (tests and _first_failure(tree, tests)) or _first_failure(tree, [str(folder)])
    finally:
        path.write_text(source, "utf-8")


def _first_failure(tree: Path, tests: list[str]) -> str:
    command = [sys.executable, "-m", "pytest", "-x", "--tb=no", "--timeout=200", *PYTEST, *tests]
    limits: dict[str, Any] = {"capture_output": True, "text": True, "timeout": MINUTES * 60}
    try:
        ran = subprocess.run(command, cwd=tree, env=_environment(tree), **limits)
    except subprocess.TimeoutExpired:
        return ""
    found = [line.split(" - ")[0] for line in ran.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return found[0] if found else "" if ran.returncode in (0, 5) else "collection"


def _environment(tree: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=46)
    parser.add_argument("--count", type=int, default=40)
    options = parser.parse_args()
    drawn = random.Random(options.seed).sample(list(places()), options.count)
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".*", "__pycache__", "audit-out"))
        reaching = reaching_tests(tree)
        for place in drawn:
            place["caught by"] = catching_test(tree, place, reaching)
            caught = place["caught by"] or "NOT CAUGHT"
            print(f"{place['file']}:{place['line']} {place['before']!r}: {caught}", flush=True)
            RESULT.write_text(json.dumps({"seed": options.seed, "places": drawn}, indent=1) + "\n", "utf-8")
    count = sum(bool(place.get("caught by")) for place in drawn)
    print(f"{count} of {len(drawn)} caught")


if __name__ == "__main__":
    main()
