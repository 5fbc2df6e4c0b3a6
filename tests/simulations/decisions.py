"""Error rates of decisions: equivalence at the margin's edge, one regression or several among many figures.

    python -m tests.simulations.decisions --draws 400
    python -m tests.simulations.decisions --only discovered  # ten minutes

The processes are not the estimator's own: rare kinds of templates, skewed and all-or-nothing changes, heavy tails.
Whole reports of two models that are alike: `tests.simulations.alike_models`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from audit.analysis.comparing.differences import paired_differences
from audit.analysis.decisions import Claim, decide
from audit.analysis.gate.changes import Change
from audit.analysis.rows.table import RowTable
from audit.results import FigureName
from suites.base import IdentifiedInterval, MeasureSpec, Row

ALPHA = 0.05
Values = np.ndarray
#: (generator, occupations, templates, mean change) → changes (occupations, templates).
Process = Callable[[np.random.Generator, int, int, float], Values]


def _by_template(draw: Callable[[np.random.Generator, int, float], Values]) -> Process:
    def process(rng: np.random.Generator, occupations: int, templates: int, mean: float) -> Values:
        return np.broadcast_to(draw(rng, templates, mean), (occupations, templates)).copy()

    return process


def rare(size: float) -> Process:
    """A share mean / size of the templates moves by ``size``, the others not at all."""
    return _by_template(lambda rng, n, mean: size * (rng.random(n) < mean / size))


#: Changes of scores in [0, 1].
CHANGES: Mapping[str, Process] = {
    "smooth": _by_template(lambda rng, n, mean: rng.normal(mean, 0.03, n)),
    "rare: by 0.3": rare(0.3),
    "rare: by 0.7": rare(0.7),
    "skewed": _by_template(lambda rng, n, mean: np.minimum(rng.exponential(mean, n), 0.7)),
}
#: Changes from no to yes.
FLIPS: Mapping[str, Process] = {
    "yes/no by item": lambda rng, o, t, mean: (rng.random((o, t)) < mean).astype(float),
    "yes/no by template": rare(1.0),
}


def called_unchanged(
    process: Process,
    *,
    design: tuple[int, int],
    margin: float,
    draws: int,
    mean: float | None = None,
    binary: bool = False,
    largest_change: float | None = None,
    seed: int = 0,
) -> float:
    """How often a change of that mean, by default the margin itself, is called none at all."""
    rng = np.random.default_rng(seed)
    mean = margin if mean is None else mean
    start = 0.0 if binary else 0.25
    changes = np.stack([process(rng, *design, mean) for _ in range(draws)], axis=-1)
    tables = [RowTable(grid(values)) for values in (np.full_like(changes, start), start + changes)]
    unchanged = 0
    for draw in range(draws):
        spec = MeasureSpec("p", f"q{draw}", clusters=("occupation", "template"), primary=True,
                           kind="share" if binary else "probability")  # fmt: skip
        (difference,) = paired_differences(tables, [spec], [(0, 1)])
        difference.margin = margin
        difference.allow_unseen(largest_change)
        change = Change(FigureName("s", "p", {}, "m"), None, difference)
        unchanged += decide([(difference, change.claims(ALPHA))], ALPHA)[0].outcome == "unchanged"
    return unchanged / draws


def grid(values: Values) -> list[Row]:
    """A row for each cell of (occupations, templates, quantities)."""
    return [
        Row(f"{o}/{t}", {"occupation": o, "template": t},
            {f"q{i}": IdentifiedInterval.exact(float(v)) for i, v in enumerate(values[o, t])})
        for o, t in np.ndindex(*values.shape[:2])
    ]  # fmt: skip


# ------------------------------------------------------------------ one regression among many figures


def found_among(
    others: int,
    draws: int,
    *,
    shift: float = 0.06,
    is_primary: bool = True,
    others_shift: float = 0.0,
    shared: float = 0.0,
    seed: int = 0,
) -> tuple[float, float, float]:
    """How often a figure that moved is called regressed, alone, and beside so many figures that moved elsewhere.

    Third the false discovery rate of the others: ``others_shift`` is at most the margin, 0.02. The ``shared`` part of
    an occupation's effects is the same in all figures.
    """
    rng = np.random.default_rng(seed)
    alone = among = 0
    false = 0.0
    for _ in range(draws):
        before = rng.uniform(0.2, 0.4, (20, 10, others + 1))
        own, of_all = rng.normal(0, 0.03, (20, 1, others + 1)), rng.normal(0, 0.03, (20, 1, 1))
        noise = shared**0.5 * of_all + (1 - shared) ** 0.5 * own + rng.normal(0, 0.06, before.shape)
        noise[..., 0] += shift
        noise[..., 1:] += others_shift
        tables = [RowTable(grid(values)) for values in (before, before + noise)]
        specs = [
            MeasureSpec(f"f{i}", f"q{i}", clusters=("occupation", "template"), kind="probability", neutral=0.0,
                        primary=is_primary and i == 0)
            for i in range(others + 1)
        ]  # fmt: skip
        family = []
        for difference in paired_differences(tables, specs, [(0, 1)]):
            difference.margin = 0.02
            name = FigureName("s", difference.spec.measure, {}, "m")
            family.append((difference, Change(name, 0.0, difference).claims(ALPHA)))
        alone += decide(family[:1], ALPHA)[0].outcome == "regressed"
        is_claimed = np.array([decision.outcome == "regressed" for decision in decide(family, ALPHA)])
        among += int(is_claimed[0])
        false += is_claimed[1:].sum() / max(1, is_claimed.sum())
    return alone / draws, among / draws, false / draws


class Discovered(NamedTuple):
    """Of runs in which some figures moved: the share of these that is found, and the false discovery rate."""

    found: float
    false: float


def discovered(
    moved: int,
    runs: int,
    *,
    templates: int = 10,
    shared: float = 0.5,
    still: float = 0.0,
    is_gate: bool = False,
    seed: int = 0,
) -> Discovered:
    """How many of 116 figures that are not primary are called apart, or regressed, if so many moved by 0.04 to 0.1.

    Changes have heavy-tailed parts of 20 occupations, of templates and of items, of which the ``shared`` part is the
    same in all figures. The others have not moved, or by ``still``: a gate's margin at most.
    """
    rng, shape = np.random.default_rng([seed, moved, templates]), (20, templates, 116)
    specs = [
        MeasureSpec(f"f{i}", f"q{i}", clusters=("occupation", "template"), kind="probability", neutral=0.0)
        for i in range(shape[-1])
    ]
    found = false = 0.0
    for _ in range(runs):
        before = rng.uniform(0.2, 0.4, shape)
        parts = [rng.standard_t(3, size) for size in ((20, 1, 117), (1, templates, 117), (20, templates, 117))]
        of_own, of_all = sum(sd * part for sd, part in zip((0.02, 0.01, 0.03), parts, strict=True)), shared**0.5
        changes = of_all * of_own[..., :1] + (1 - shared) ** 0.5 * of_own[..., 1:]
        changes += np.where(np.arange(shape[-1]) < moved, rng.uniform(0.04, 0.1, shape[-1]), still)
        tables = [RowTable(grid(values)) for values in (before, np.clip(before + changes, 0, 1))]
        family = []
        for difference in paired_differences(tables, specs, [(0, 1)]):
            difference.margin = 0.02
            change = Change(FigureName("s", difference.spec.measure, {}, "m"), 0.0, difference)
            claims = change.claims(ALPHA) if is_gate else [Claim("apart", difference.p)]
            family.append((difference, claims))
        is_claimed = np.array([one.outcome in ("regressed", "apart") for one in decide(family, ALPHA)])
        found += is_claimed[:moved].mean()
        false += is_claimed[moved:].sum() / max(1, is_claimed.sum())
    return Discovered(found / runs, false / runs)


def print_unchanged(options: argparse.Namespace) -> None:
    """How often changes at the margin, and none, are called unchanged."""
    print("Called unchanged although the change is as large as the margin (10 templates: a tenth moves by 0.3)")
    for (occupations, templates), margin in (((40, 10), 0.03), ((40, 40), 0.15), ((60, 60), 0.1)):
        for binary, processes in ((False, CHANGES), (True, FLIPS)):
            for name, process in processes.items():
                wrong = called_unchanged(
                    process, design=(occupations, templates), margin=margin, draws=options.draws, binary=binary
                )
                print(f"  {occupations} × {templates}, ±{margin:<6g}{name:22}{wrong:7.1%}", flush=True)
    print("A tenth or a fifteenth of the templates moves by 0.3, by templates; largest change: not given, 0.1")
    for templates in (10, 14, 25, 43, 150):
        shares = [
            called_unchanged(
                rare(0.3), design=(40, templates), margin=margin, draws=options.draws, largest_change=largest
            )
            for largest in (None, 0.1)
            for margin in (0.03, 0.02)
        ]
        print(f"  {templates:4} templates" + "".join(f"{share:7.1%}" for share in shares), flush=True)
    print("The price: called unchanged where nothing but smooth noise moved, by margin; largest change: not given, 0.1")
    for templates in (10, 25, 40, 100):
        shares = [
            called_unchanged(CHANGES["smooth"], design=(templates, templates), margin=margin, mean=0.0,
                             draws=options.draws // 4, largest_change=largest)
            for largest in (None, 0.1)
            for margin in (0.02, 0.05, 0.1, 0.15, 0.2)
        ]  # fmt: skip
        print(f"  {templates:4} templates" + "".join(f"{share:7.0%}" for share in shares), flush=True)


def print_among(options: argparse.Namespace) -> None:
    """How often one regression is found alone and among many figures."""
    print("A regression of 0.06 found alone, among 116 figures, and the others' false discovery rate")
    for is_primary, others_shift, shared in (
        (True, 0.0, 0.0), (False, 0.0, 0.0), (False, 0.0, 0.8), (False, 0.02, 0.0), (False, 0.02, 0.8)
    ):  # fmt: skip
        found = found_among(115, options.draws // 4, is_primary=is_primary, others_shift=others_shift, shared=shared)
        which = f"{'primary' if is_primary else 'other':8} others moved by {others_shift:.2f}, shared {shared:.0%}"
        print(f"  {which}" + "".join(f"{share:8.1%}" for share in found), flush=True)


def print_discovered(options: argparse.Namespace) -> None:
    """False discoveries where some figures moved."""
    print("Some of 116 figures moved by 0.04 to 0.1: how many of these are found, and the false discovery rate")
    for templates, is_gate, still in ((10, False, 0.0), (5, False, 0.0), (10, True, 0.0), (10, True, 0.02)):
        for moved in (5, 20):
            found = discovered(moved, options.draws // 2, templates=templates, is_gate=is_gate, still=still)
            which = f"{'gate' if is_gate else 'comparison'}, {templates} templates, others moved by {still:.2f}"
            print(f"  {which}, {moved} moved{found.found:8.1%}{found.false:8.1%}", flush=True)


PARTS = {"unchanged": print_unchanged, "among": print_among, "discovered": print_discovered}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--only", choices=PARTS, help="one of the tables (default: all)")
    options = parser.parse_args()
    for name, part in PARTS.items():
        if options.only in (None, name):
            part(options)


if __name__ == "__main__":
    main()
