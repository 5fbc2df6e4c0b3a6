"""Mutate places drawn by a seed, one at a time, and tell which test fails: `python -m tests.mutate --seed 44`.

Each mutation is made in a copy of the tree. The tests of the same folder run first, then those of the folders above
up to the package's, until one fails. Slow tests (models, servers, simulations) are left out. `mutations.json` keeps the
last result.
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

ROOT = Path(__file__).parent.parent
RESULT = Path(__file__).with_name("mutations.json")
PACKAGES = ("audit", "backends", "suites")
SLOW = "models or servers or simulation or faults or battery or ray"
SECONDS = 240  # for the tests of one folder; what they have not found by then counts as uncaught
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


def places() -> Iterator[dict[str, object]]:
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


def catching_test(tree: Path, place: dict[str, object]) -> str:
    """The first test that fails with this mutation; empty if none does."""
    path = tree / str(place["file"])
    source = path.read_text("utf-8")
    lines = source.splitlines(keepends=True)
    at = int(str(place["line"])) - 1
    column = len(lines[at].encode()[: int(str(place["column"]))].decode())
    head, tail = lines[at][:column], lines[at][column + len(str(place["before"])) :]
    lines[at] = f"{head}({place['after']}){tail}"
    path.write_text("".join(lines), "utf-8")
    folder = (Path("tests") / str(place["file"])).parent
    tried: set[str] = set()
    try:
        while True:
            files = {str(file.relative_to(tree)) for file in (tree / folder).rglob("test_*.py")} - tried
            if files and (failed := _first_failure(tree, sorted(files))):
                return failed
            tried |= files
            if folder.parent == Path("tests"):
                return ""
            folder = folder.parent
    finally:
        path.write_text(source, "utf-8")


def _first_failure(tree: Path, files: list[str]) -> str:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-xq",
        "--tb=no",
        "--timeout=100",
        "-p",
        "no:cacheprovider",
        "-m",
        f"not ({SLOW})",
    ]
    environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    try:
        ran = subprocess.run(
            [*command, *files], cwd=tree, env=environment, capture_output=True, text=True, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        return ""
    found = [line.split(" - ")[0] for line in ran.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return found[0] if found else "" if ran.returncode in (0, 5) else "collection"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=44)
    parser.add_argument("--count", type=int, default=40)
    options = parser.parse_args()
    drawn = random.Random(options.seed).sample(list(places()), options.count)
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".*", "__pycache__", "audit-out"))
        for place in drawn:
            place["caught by"] = catching_test(tree, place)
            caught = place["caught by"] or "NOT CAUGHT"
            print(f"{place['file']}:{place['line']} {place['before']!r}: {caught}", flush=True)
            RESULT.write_text(json.dumps({"seed": options.seed, "places": drawn}, indent=1) + "\n", "utf-8")
    count = sum(bool(place.get("caught by")) for place in drawn)
    print(f"{count} of {len(drawn)} caught")


if __name__ == "__main__":
    main()
