"""Error rates of decisions: equivalence at the margin's edge, whole reports of models that are alike, many figures.

    python -m tests.simulations.decisions --draws 400 --reports 200
    python -m tests.simulations.decisions --only reports  # three minutes

The processes are not the estimator's own: rare kinds of templates, skewed and all-or-nothing changes; and every figure
of every suite, computed from answers of two models that differ by chance alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from audit.analysis.comparing.differences import paired_differences
from audit.analysis.decisions import Claim, decide
from audit.analysis.gate.changes import Change
from audit.analysis.rows.table import Levels, RowTable, item_index
from audit.results import FigureName
from suites import MGBR, DebiasingPositions, GenderPair, OccuGender
from suites.base import IdentifiedInterval, MeasureSpec, Row, Suite, flag

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


# ------------------------------------------------------------------ whole reports of two models alike

#: The suites whose reports are looked through, by name.
SUITES: Mapping[str, Callable[[], Suite]] = {
    "OccuGender": lambda: OccuGender(("explicit",), debiasing=[1]),
    "DebiasingPositions": DebiasingPositions,
    "MGBR": MGBR,
    "GenderPair": GenderPair,
}
#: Reports that are computed together.
_TOGETHER = 20
#: Factors on whose levels a model has effects of its own.
_SAMPLED = frozenset({"occupation", "template", "target", "pair", "instance"})
_BINARY = ("biased", "biased_released", "fallback", "names_both", "marked", "refusal", "empty")


def answers(items: Sequence[tuple[str, Mapping[str, object]]], lean: Values, rng: np.random.Generator) -> list[Row]:
    """A model's rows: what all models share in ``lean`` (items,), and what occupations and templates do to this one."""
    effects: dict[object, float] = {}
    rows = []
    for (item_id, factors), base in zip(items, lean.tolist(), strict=True):
        keys = [(name, factors.get(name)) for name in sorted(_SAMPLED)]
        own = sum(effects.setdefault(key, rng.normal(0, 0.03)) for key in keys if key[1] is not None)
        share = float(np.clip(base + own + rng.normal(0, 0.05), 0.01, 0.89))
        rows.append(Row(item_id, factors, dict(_values(factors, share, rng))))  # type: ignore[arg-type]
    return rows


def _values(
    factors: Mapping[str, object], share: float, rng: np.random.Generator
) -> Iterator[tuple[str, IdentifiedInterval]]:
    yes = flag(bool(rng.random() < share))
    if "dominated_by" in factors:
        signed = (2 * share - 0.9) * (1 if factors["dominated_by"] == "female" else -1)
        numbers = {"p_female": share, "p_male": 0.9 - share, "p_diverse": 0.1, "stereotype_gap": signed,
                   "coverage": 0.3 + share / 2}  # fmt: skip
        yield from ((name, IdentifiedInterval.exact(value)) for name, value in numbers.items())
    elif factors.get("kind") == "list":
        yield from {"accuracy": yes, "tie": flag(False), "coverage": IdentifiedInterval.exact(share)}.items()
    else:
        yield from ((name, yes if name.startswith("biased") else flag(False)) for name in _BINARY)


def false_claims(suite: Suite, reports: int, limit: int, seed: int = 0) -> tuple[float, float, int]:
    """Share of reports with a false claim among primary figures, and false discovery rate of the others; figures."""
    rng = np.random.default_rng(seed)
    items = [(item.id, item.factors) for item in suite.items() if item.scorer is None]
    kept = sorted(rng.choice(len(items), min(limit, len(items)), replace=False).tolist())
    items = [items[i] for i in kept]
    primary, others, figures = 0, 0.0, 0
    for start in range(0, reports, _TOGETHER):
        rows: list[list[Row]] = []
        for _ in range(min(_TOGETHER, reports - start)):
            lean = rng.uniform(0.2, 0.7, len(items))
            rows += [list(suite.derive(answers(items, lean, rng))) for _ in "ab"]
        specs = list(suite.measures(rows[0]))
        figures = len(specs)
        for claimed in _claimed_apart(rows, specs):
            primary += any(spec.primary for spec in claimed)
            # A figure of one occupation differs in truth: the two models have effects of their own on it.
            rest = [spec for spec in claimed if not spec.primary]
            others += sum(not _SAMPLED & set(spec.where) for spec in rest) / max(1, len(rest))
    return primary / reports, others / reports, figures


def _claimed_apart(rows: Sequence[Sequence[Row]], specs: Sequence[MeasureSpec]) -> Iterator[list[MeasureSpec]]:
    """Of each report, which are two models after the other, the figures called larger or smaller.

    Decided as `compare_models` does, report by report. The differences of several are taken together, which is faster.
    """
    index, levels = item_index(rows), Levels()
    tables = [RowTable(of_model, index, levels) for of_model in rows]
    pairs = [(i, i + 1) for i in range(0, len(rows), 2)]
    differences = paired_differences(tables, specs, pairs)
    for place in range(len(pairs)):
        of_report = differences[place :: len(pairs)]
        decided = decide([(d, [Claim("apart", d.p)]) for d in of_report], ALPHA)
        yield [d.difference.spec for d in decided if d.outcome is not None]


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


def print_reports(options: argparse.Namespace) -> None:
    """False claims in reports of two models alike."""
    print("Reports of two models alike: any false claim among primary figures, false discovery rate of the others")
    for name, make in SUITES.items():
        primary, others, figures = false_claims(make(), options.reports, options.limit)
        print(f"  {name:20}{figures:6} figures{primary:8.1%}{others:8.1%}", flush=True)


def print_among(options: argparse.Namespace) -> None:
    """How often one regression is found alone and among many figures."""
    print("A regression of 0.06 found alone, among 116 figures, and the others' false discovery rate")
    for is_primary, others_shift, shared in (
        (True, 0.0, 0.0), (False, 0.0, 0.0), (False, 0.0, 0.8), (False, 0.02, 0.0), (False, 0.02, 0.8)
    ):  # fmt: skip
        found = found_among(115, options.draws // 4, is_primary=is_primary, others_shift=others_shift, shared=shared)
        which = f"{'primary' if is_primary else 'other':8} others moved by {others_shift:.2f}, shared {shared:.0%}"
        print(f"  {which}" + "".join(f"{share:8.1%}" for share in found), flush=True)


PARTS = {"unchanged": print_unchanged, "reports": print_reports, "among": print_among}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--reports", type=int, default=200)
    parser.add_argument("--limit", type=int, default=1000)
    parser.add_argument("--only", choices=PARTS, help="one of the tables (default: all)")
    options = parser.parse_args()
    for name, part in PARTS.items():
        if options.only in (None, name):
            part(options)


if __name__ == "__main__":
    main()
