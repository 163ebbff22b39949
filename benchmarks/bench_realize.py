"""Speed of realize: against CVXPY + Clarabel, and towards the targets for larger sets of samples.

    python benchmarks/bench_realize.py             the measurement in benchmarks/README.md
    python benchmarks/bench_realize.py --quick     smaller sizes, under a minute; prints the tables and writes nothing
    python benchmarks/bench_realize.py --only NAME one hypothesis; the rows of the others stay

Labels are `numpy.random.default_rng(0).normal(size=(n, dim))` with y-Aware weights exp(-|yi - yj|^2/2) and cosine similarity, except under
`classes`. Every matrix gets the same recomputed certificate, outside the measured time; failures are kept as rows.
"""

from __future__ import annotations

import dataclasses
import math
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import _harness
import numpy as np
from _harness import Row
from _speed_tables import cases, number, timing, yes
from bench_speed import attempt, comparable, reason

from optgeom.certificates.certificate import PRIMAL_SHIFT_LIMIT
from optgeom.certificates.weighted import certify_weighted
from optgeom.realization.api import Realization, realize
from optgeom.realization.optimum import program_of
from optgeom.realization.verdict import judge, soft_supcon_temperature
from optgeom.realization.weights import Weights

HERE = Path(__file__).resolve().parent
SECTION = "bench_realize"
OURS, RIVAL = "optgeom", "CVXPY + Clarabel"
LIMIT_SECONDS = 1800.0
EPSILON = 0.1
TITLES = {
    "rival": "Inconsistent y-Aware weights against CVXPY + Clarabel",
    "inconsistent": "Inconsistent y-Aware weights",
    "near": "Nearly realizable y-Aware weights",
    "large": "Two thousand samples",
    "classes": "Soft SupCon, many samples of few classes, from the labels on",
}
NAMES = tuple(TITLES)


@dataclass(frozen=True)
class Case:
    """One problem; `seconds` is the target (inf: open), `gap` what counts as certified, relative to 1 + |loss|; NaN: the verdict alone."""

    n: int
    dim: int
    tau: float
    seconds: float
    gap: float = 1e-8
    repeats: int = 1

    @property
    def name(self) -> str:
        return f"dim {self.dim}, temperature {self.tau:g}" + (", verdict alone" if math.isnan(self.gap) else "")


@dataclass(frozen=True)
class Plan:
    """What one measurement holds."""

    rival: dict[tuple[int, int, float], tuple[float, int]]  # (n, dim, tau) -> factor to reach, runs of the rival
    towards: dict[str, tuple[Case, ...]]
    classes: tuple[int, int, float]  # samples, classes, seconds
    repeats: int


FULL = Plan(
    rival={(30, 3, 0.5): (10.0, 3), (30, 1, 0.5): (10.0, 3), (60, 3, 0.5): (100.0, 2), (60, 1, 0.5): (100.0, 2)},
    towards={
        "inconsistent": (
            Case(200, 3, 0.2, 15.0, repeats=2),
            Case(200, 1, 0.5, 15.0, repeats=2),
            Case(500, 3, 0.5, 6.0, repeats=2),
            Case(500, 1, 0.5, 20.0),
            Case(500, 3, 0.2, 60.0),
        ),
        "near": (Case(200, 3, 0.1, 20.0), Case(200, 3, 0.05, 20.0), Case(500, 3, 0.05, math.inf)),
        "large": (Case(2000, 3, 0.5, 60.0), Case(2000, 3, 0.2, 240.0, 1e-7), Case(2000, 3, 0.5, 10.0, math.nan)),
    },
    classes=(50_000, 100, 1.0),
    repeats=5,
)
QUICK = Plan(
    rival={(20, 3, 0.5): (10.0, 1)},
    towards={
        "inconsistent": (Case(60, 3, 0.2, 15.0), Case(60, 1, 0.5, 15.0), Case(100, 3, 0.5, 6.0)),
        "near": (Case(110, 3, 0.1, 20.0),),
        "large": (Case(200, 3, 0.5, 60.0), Case(200, 3, 0.5, 10.0, math.nan)),
    },
    classes=(5_000, 20, 1.0),
    repeats=2,
)


def labels(n: int, dim: int) -> Any:
    return np.random.default_rng(0).normal(size=(n, dim))


def clarabel(y: Any, tau: float) -> tuple[Any, str]:
    """The Gram matrix of weighted InfoNCE as its user writes it, with the default tolerances; and the solver's status."""
    import cvxpy as cp

    n = len(y)
    w = np.exp(-((y[:, None] - y[None]) ** 2).sum(axis=-1) / 2)
    np.fill_diagonal(w, 0.0)
    rows = w / w.sum(axis=1, keepdims=True)
    gram = cp.Variable((n, n), PSD=True)
    others = [np.flatnonzero(np.arange(n) != i) for i in range(n)]
    norms = cp.sum(cp.hstack([cp.log_sum_exp(gram[i, others[i]] / tau) for i in range(n)]))
    problem = cp.Problem(cp.Minimize((norms - cp.sum(cp.multiply(rows, gram)) / tau) / n), [cp.diag(gram) == 1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "solution may be inaccurate": the certificate says how inaccurate
        problem.solve(solver="CLARABEL", time_limit=LIMIT_SECONDS)
    if gram.value is None or not np.all(np.isfinite(gram.value)):
        raise RuntimeError(f"no finite matrix, status {problem.status}")
    return np.asarray(gram.value), str(problem.status)


def ours(y: Any, tau: float, tolerance: float) -> Realization:
    """What a user of optgeom runs: from labels to the certified optimum."""
    return realize(Weights.y_aware(y), "cosine", tau, tolerance=tolerance)


def judged(
    row: Callable[..., Row], weights: Weights, tau: float, gram: Any, tolerance: float, note: str = "", best: float = math.nan
) -> Row:
    """The certificate for everybody: diagonal brought to 1, then `certify_weighted`."""
    given = np.asarray(gram, dtype=np.float64)
    root = np.where(weights.sizes == 1, np.sqrt(np.abs(np.diag(given))), 1.0)
    unit = given / (root[:, None] * root[None, :])
    found = certify_weighted(program_of(weights, tau), unit, tolerance)
    shift = found.certificate.primal_shift + float(np.max(np.abs(unit - given)))
    held = found.certificate.certified and shift <= PRIMAL_SHIFT_LIMIT
    if not held:
        note = "; ".join(part for part in (note, f"gap {found.certificate.gap:.1e}, shift {shift:.1e}") if part)
    return row(gap=found.certificate.gap, certified=held, excess_risk=found.risk - best, note=note)


def of_ours(row: Callable[..., Row], found: Realization, tolerance: float) -> Row:
    """Our row: the same certificate where there is a matrix; the closed form of an attained bound has its own."""
    if found.group_cosines is not None:
        return judged(row, found.weights, found.temperature, found.group_cosines, tolerance, found.solver)
    return row(gap=abs(found.optimal_loss - found.lower_bound), certified=found.certified, note=found.solver)


def against_rival(plan: Plan) -> Iterable[Row]:
    attempt(partial(clarabel, labels(5, 1), 0.5))
    for (n, dim, tau), (_, repeats) in plan.rival.items():
        y = labels(n, dim)
        weights = Weights.y_aware(y)
        reference = attempt(partial(ours, y, tau, 1e-9))
        best = math.nan if isinstance(reference, Exception) else reference.optimal_loss
        calls: dict[str, Callable[[], Any]] = {OURS: partial(ours, y, tau, 1e-9), RIVAL: partial(clarabel, y, tau)}
        for who, turn, seconds, result in _harness.alternate(calls, {OURS: plan.repeats, RIVAL: repeats}):
            row = partial(Row, "rival", f"dim {dim}, temperature {tau:g}", who, n, "", turn, seconds)
            if isinstance(result, Exception):
                yield row(note=reason(result))
            elif who == OURS:
                yield of_ours(row, result, 1e-9)
            else:
                yield judged(row, weights, tau, result[0], 1e-9, f"status {result[1]}", best)


def towards(plan: Plan, name: str) -> Iterable[Row]:
    attempt(partial(ours, labels(20, 3), 0.5, 1e-8))
    for case in plan.towards[name]:
        y = labels(case.n, case.dim)
        alone = math.isnan(case.gap)
        call: Callable[[], Any] = partial(ours, y, case.tau, case.gap)
        if alone:
            call = partial(lambda y, tau: judge(Weights.y_aware(y), "cosine", tau), y, case.tau)
        for _, turn, seconds, result in _harness.alternate({OURS: call}, {OURS: case.repeats}):
            row = partial(Row, name, case.name, OURS, case.n, "", turn, seconds)
            if isinstance(result, Exception):
                yield row(note=reason(result))
            elif alone:
                yield row(certified=True)
            else:
                yield of_ours(row, result, case.gap)


def many_samples(plan: Plan) -> Iterable[Row]:
    n, classes, _ = plan.classes
    codes = np.random.default_rng(0).permutation(np.arange(n) % classes)
    border = soft_supcon_temperature(classes, EPSILON)
    calls: dict[str, Callable[[], Any]] = {
        word: partial(lambda tau: realize(Weights.soft_supcon(codes, EPSILON), "cosine", tau), factor * border)
        for word, factor in (("below the border", 0.8), ("beyond the border", 1.2))
    }
    for word, turn, seconds, result in _harness.alternate(calls, dict.fromkeys(calls, plan.repeats)):
        row = partial(Row, "classes", f"{classes} classes, {word}", OURS, n, "", turn, seconds)
        yield row(note=reason(result)) if isinstance(result, Exception) else of_ours(row, result, 1e-9)


# The tables, from the rows and the plan that made them.


def rival_table(rows: Sequence[Row], plan: Plan) -> str:
    """Met: faster by the target, certified, and a gap no larger than the rival's."""
    lines = []
    factors = {(f"dim {dim}, temperature {tau:g}", n): factor for (n, dim, tau), (factor, _) in plan.rival.items()}
    for (case, n), found in cases(rows, "rival").items():
        mine, other = found[OURS], found[RIVAL]
        target = factors.get((case, n))
        ratio, missing = other.seconds / mine.seconds, other.failed == other.runs
        met = "-" if target is None else yes(mine.certified and ratio >= target and (missing or mine.gap <= other.gap))
        gaps = [number(mine.gap), "no answer" if missing else number(other.gap), number(other.excess_risk)]
        told = "-" if target is None else f">= {target:.0f} x"
        lines.append([case, str(n), timing(mine), timing(other), *gaps, told, f"{ratio:.0f} x", met])
    header = ["case", "n", OURS, RIVAL, "gap", "rival's gap", "rival's excess loss", "target", "reached", "met"]
    return _harness.markdown(header, lines)


def towards_table(rows: Sequence[Row], plan: Plan, name: str) -> str:
    held = {(case.name, case.n): case for case in plan.towards[name]}
    lines = []
    for (case, n), found in cases(rows, name).items():
        mine, target = found[OURS], held.get((case, n))
        note = next(row.note for row in rows if (row.hypothesis, row.case, row.C) == (name, case, n))
        told, met = "-", "-"
        if target is not None:
            gap = "" if math.isnan(target.gap) else f", gap {target.gap:.0e}"
            told = (f"<= {target.seconds:g} s" if math.isfinite(target.seconds) else "open") + gap
            met = yes(mine.certified and mine.seconds <= target.seconds)
        lines.append([case, str(n), timing(mine), number(mine.gap), note, told, met])
    return _harness.markdown(["case", "n", "reached", "gap", "solver or note", "target", "met"], lines)


def classes_table(rows: Sequence[Row], plan: Plan) -> str:
    lines, target = [], plan.classes[2]
    for (case, n), found in cases(rows, "classes").items():
        mine = found[OURS]
        met = yes(mine.certified and mine.seconds <= target)
        lines.append([case, str(n), timing(mine), number(mine.gap), f"<= {target:g} s", met])
    return _harness.markdown(["case", "n", "reached", "gap", "target", "met"], lines)


def report_text(rows: Sequence[Row], plan: Plan, machine: dict[str, str]) -> str:
    """All tables with rows, in Markdown."""
    parts = ["Machine: " + "; ".join(f"{key} {value}" for key, value in machine.items()) + "."]
    for name, title in TITLES.items():
        if any(row.hypothesis == name for row in rows):
            table = {"rival": rival_table, "classes": classes_table}.get(name, partial(towards_table, name=name))
            parts.append(f"### `{name}`: {title}\n\n{table(rows, plan)}")
    return "\n\n".join(parts)


def run(plan: Plan, names: Iterable[str] = NAMES, report: Callable[[Row], None] = lambda row: None) -> list[Row]:
    """All rows of the hypotheses named."""
    rows = []
    for name in names:
        made = {"rival": against_rival, "classes": many_samples}.get(name, partial(towards, name=name))
        for row in made(plan):
            report(row)
            rows.append(row)
    return rows


def main(argv: Sequence[str] | None = None, plans: tuple[Plan, Plan] = (FULL, QUICK)) -> int:
    about = "Speed of realize against its rival and its targets."
    options = _harness.read_options(about, NAMES, "smaller sizes, under a minute", HERE, argv)
    names = [name for name in NAMES if options.only is None or name in options.only]
    plan = plans[1 if options.quick else 0]
    results, readme = options.into / "results", options.into / "README.md"
    machine = _harness.environment()
    kept: list[Row] = []
    if not options.quick and options.only and (results / "realize.csv").exists():
        if not comparable(_harness.read_environment(results / "realize-machine.csv"), machine):
            print("the kept rows come from another machine or other versions: run all hypotheses, or give --into", file=sys.stderr)
            return 2
        kept = [row for row in _harness.read_rows(results / "realize.csv") if row.hypothesis not in names]

    def told(row: Row) -> None:
        line = f"{row.hypothesis:13s} {row.case:36s} {row.solver:17s} n={row.C:<6d} {row.seconds:10.4f} s  gap {row.gap:.1e}  {row.note}"
        print(line, file=sys.stderr, flush=True)

    rows = sorted([*kept, *run(plan, names, told)], key=lambda row: NAMES.index(row.hypothesis))
    text = report_text(rows, plan, machine)
    print(text)
    if not options.quick:
        results.mkdir(parents=True, exist_ok=True)
        _harness.write_rows(results / "realize.csv", [dataclasses.replace(row, note=row.note.replace("\n", " ")) for row in rows])
        _harness.write_environment(results / "realize-machine.csv", machine)
        readme.write_text(_harness.replace_between(readme.read_text(encoding="utf-8"), SECTION, text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
