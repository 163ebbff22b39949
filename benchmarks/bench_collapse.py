"""How long does a collapsed geometry take, to a certificate?

Hypotheses, each with its target (SCL, infinitely many negatives, alpha 0, proportions i^-s):

* s = 2, temperature 1, C = 100 (rank 17): at most 1.5 s; s = 2.1, C = 300: at most 1 s; s = 2.5, temperature .5, C = 1000: at most 5 s;
  each certified with a gap below 1e-9;
* against CVXPY + Clarabel at s = 2, C = 20 and 40: at least 5 and 50 times as fast.

The rival is the plain CVXPY program; its matrix gets the same certificate. Medians of alternating runs; all runs are in
results/collapse.csv, the table in README.md.

    python benchmarks/bench_collapse.py [--quick]
"""

from __future__ import annotations

import argparse
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from _harness import Row, alternate, environment, markdown, replace_between, write_rows

import optgeom as og
from optgeom.certificates import certify
from optgeom.programs.class_mean import ClassMeanProgram

HERE = Path(__file__).parent
CASES = (("2", 1.0, 20, 5.0), ("2", 1.0, 40, 50.0))  # exponent, temperature, classes, least ratio
ALONE = (("2", 1.0, 100, 1.5), ("2.1", 1.0, 300, 1.0), ("2.5", 0.5, 1000, 5.0))  # ..., most seconds
REPEATS, RIVAL_REPEATS = 5, 3


def classes_of(exponent: str, number: int) -> og.ClassDistribution:
    return og.ClassDistribution.from_counts(np.arange(1, number + 1.0) ** -float(exponent))


def scl(temperature: float) -> og.InfoNCE:
    return og.InfoNCE(temperature, math.inf, 0.0, "mean", "scl")


def clarabel(proportions: Any, temperature: float) -> Any:
    """The program as a CVXPY script: sum_i p_i log sum_{j != i} p_j/(1 - p_i) exp((A_ij - 1)/tau)."""
    import cvxpy as cp

    number = proportions.size
    gram = cp.Variable((number, number), PSD=True)
    law = proportions[None, :] / (1 - proportions)[:, None]
    with np.errstate(divide="ignore"):
        offsets = np.where(np.eye(number, dtype=bool), -1e3, np.log(law))  # exp(-1000) takes the anchor's own class out
    rows = cp.log_sum_exp((gram - 1) / temperature + offsets, axis=1)
    problem = cp.Problem(cp.Minimize(proportions @ rows), [cp.diag(gram) == 1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem.solve(solver="CLARABEL")
    return np.asarray(gram.value)


def measure(exponent: str, temperature: float, number: int, rival: bool, repeats: int) -> list[Row]:
    classes, loss = classes_of(exponent, number), scl(temperature)
    program = ClassMeanProgram.build(classes, loss, grouped=False)
    calls: dict[str, Any] = {"optgeom": lambda: og.solve(classes, loss)}
    counts = {"optgeom": repeats}
    if rival:
        calls["CVXPY + Clarabel"] = lambda: clarabel(classes.proportions, temperature)
        counts["CVXPY + Clarabel"] = min(repeats, RIVAL_REPEATS)
    og.solve(classes, loss)
    rows = []
    for name, turn, seconds, result in alternate(calls, counts):
        if isinstance(result, Exception):
            rows.append(row(exponent, temperature, number, name, turn, seconds, math.nan, math.nan, False, f"failed: {result}"))
            continue
        if name == "optgeom":
            held, note = result.certificate, f"rank {result.rank}, {result.solver.name}"
        else:
            root = np.sqrt(np.diag(result))
            held, note = certify(program, result / (root[:, None] * root[None, :])).certificate, ""
        rows.append(row(exponent, temperature, number, name, turn, seconds, held.gap, held.backward_error, held.certified, note))
    return rows


def row(exponent: str, temperature: float, number: int, name: str, turn: int, *found: Any) -> Row:
    seconds, gap, backward, certified, note = found
    return Row(
        hypothesis="collapse", case=f"zipf {exponent}, temperature {temperature:g}", solver=name, C=number, k="inf", repeat=turn,
        seconds=seconds, gap=gap, backward_error=backward, certified=certified, note=note,
    )  # fmt: skip


def table(rows: list[Row]) -> str:
    lines = []
    for exponent, temperature, number, target in (*CASES, *ALONE):
        case = f"zipf {exponent}, temperature {temperature:g}"
        ours = [r for r in rows if (r.case, r.C, r.solver) == (case, number, "optgeom")]
        theirs = [r for r in rows if (r.case, r.C, r.solver) == (case, number, "CVXPY + Clarabel")]
        if not ours:
            continue
        mine = float(np.median([r.seconds for r in ours]))
        cells = [case, str(number), ours[0].note, f"{mine:.3g} s (n = {len(ours)})", f"{max(r.gap for r in ours):.1e}"]
        if theirs:
            ratio = float(np.median([r.seconds for r in theirs])) / mine
            cells += [f"{ratio * mine:.3g} s (n = {len(theirs)})", f"{max(r.gap for r in theirs):.1e}"]
            cells += [f">= {target:g} x", f"{ratio:.0f} x", "yes" if ratio >= target else "**no**"]
        else:
            met = mine <= target and all(r.certified and r.gap <= 1e-9 for r in ours)
            cells += ["-", "-", f"<= {target:g} s", f"{mine:.3g} s", "yes" if met else "**no**"]
        lines.append(cells)
    header = ("case", "C", "found", "optgeom", "gap", "CVXPY + Clarabel", "its gap", "target", "reached", "met")
    return markdown(header, lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="Time of collapsed geometries.")
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing written")
    quick = parser.parse_args().quick
    rows: list[Row] = []
    for exponent, temperature, number, _ in CASES[: 1 if quick else None]:
        rows += measure(exponent, temperature, number, True, 1 if quick else REPEATS)
    for exponent, temperature, number, _ in () if quick else ALONE:
        rows += measure(exponent, temperature, number, False, REPEATS)
    text = table(rows)
    print(text)
    if not quick:
        machine = ", ".join(f"{key} {value}" for key, value in environment().items())
        write_rows(HERE / "results" / "collapse.csv", rows)
        readme = HERE / "README.md"
        body = f"Machine: {machine}.\n\n{text}"
        readme.write_text(replace_between(readme.read_text(encoding="utf-8"), "bench_collapse", body), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
