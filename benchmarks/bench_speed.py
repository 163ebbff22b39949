"""Speed and memory of optgeom.solve against CVXPY with Clarabel and SCS, and against one eigendecomposition.

    python benchmarks/bench_speed.py             the measurement in benchmarks/README.md
    python benchmarks/bench_speed.py --quick     smaller sizes, under two minutes; prints the tables and writes nothing
    python benchmarks/bench_speed.py --only scs  one hypothesis; the rows of the others stay

Each hypothesis has a target, printed beside what was reached. Rivals take turns in one process; every matrix gets the same recomputed
certificate, outside the measured time; failures are kept as rows. optgeom's time includes its own certificate.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import _harness
import _rivals
import numpy as np
import scipy.linalg
from _harness import Row
from _speed_tables import NAMES, report_text

import optgeom as og
from optgeom.certificates import Certified, certify
from optgeom.certificates.certificate import PRIMAL_SHIFT_LIMIT
from optgeom.losses.base import Loss
from optgeom.programs import group_matrix
from optgeom.programs.class_mean import ClassMeanProgram

HERE = Path(__file__).resolve().parent
SECTION = "bench_speed"
SUPCON_TEMPERATURE = 0.1


@dataclass(frozen=True)
class Plan:
    """Sizes and repeats of one measurement."""

    conic: dict[str, dict[int, int]]  # hypothesis -> classes -> runs of the rival
    temperatures: tuple[float, ...]
    eigh: tuple[int, ...]
    profiles: tuple[str, ...]
    finite_k: tuple[int, int, int]  # classes, k, runs
    many: tuple[int, int]  # classes, groups
    growth: tuple[int, int, int]  # classes: time at the first two, memory at all
    repeats: int  # runs of everything that takes seconds


FULL = Plan(
    conic={"clarabel": {20: 5, 40: 3, 60: 2}, "scs": {60: 2, 100: 1}},
    temperatures=(0.1, 1.0),
    eigh=(365, 1203),
    profiles=("places-lt", "lvis-v1"),
    finite_k=(1000, 4096, 3),
    many=(10**7, 650),
    growth=(1000, 2000, 4000),
    repeats=7,
)
QUICK = Plan(
    conic={"clarabel": {10: 3, 20: 2}, "scs": {10: 3, 20: 2}},
    temperatures=(0.1, 1.0),
    eigh=(100, 365),
    profiles=("places-lt",),
    finite_k=(200, 4096, 1),
    many=(10**6, 650),
    growth=(250, 500, 1000),
    repeats=3,
)


def zipf(classes: int) -> Any:
    """(C,) proportions 1/i."""
    weights = 1.0 / np.arange(1, classes + 1)
    return weights / weights.sum()


def judge(program: ClassMeanProgram, cosines: Any) -> tuple[Certified, float, bool]:
    """The certificate for everybody: diagonal brought to 1, then `certify`. Returns it, the primal shift and the verdict."""
    given = np.asarray(cosines, dtype=np.float64)
    root = np.where(program.sizes == 1, np.sqrt(np.abs(np.diag(given))), 1.0)
    unit = given / (root[:, None] * root[None, :])
    found = certify(program, unit)
    shift = found.certificate.primal_shift + float(np.max(np.abs(unit - given)))
    return found, shift, found.certificate.certified and shift <= PRIMAL_SHIFT_LIMIT


def judged(row: Callable[..., Row], program: ClassMeanProgram, cosines: Any, reference: Certified | None = None, **more: Any) -> Row:
    """A row with its certificate, and its distance from `reference` where there is one."""
    found, shift, certified = judge(program, cosines)
    held = found.certificate
    note = [more.pop("note", ""), "" if certified else held.failure(found.risk) or f"the diagonal was off by {shift:.1e}"]
    if reference is not None:
        more["excess_risk"] = found.risk - reference.risk
        more["cosine_error"] = float(np.max(np.abs(found.cosines - reference.cosines)))
    gaps = {"gap": held.gap, "backward_error": held.backward_error, "certified": certified}
    return row(**gaps, **more, note="; ".join(part for part in note if part))


def solve_from(proportions: Any, loss: Loss) -> og.Geometry:
    """What a user of optgeom runs: from an array of proportions to the certified geometry."""
    return og.solve(og.ClassDistribution.from_proportions(proportions), loss)


# The hypotheses: each yields rows.


def against_conic(plan: Plan, name: str) -> Iterable[Row]:
    solver = name.upper()
    rival = f"CVXPY + {'Clarabel' if name == 'clarabel' else solver}"
    for temperature in plan.temperatures:
        loss = og.SupCon(temperature=temperature)
        for classes, repeats in plan.conic[name].items():
            p = zipf(classes)
            program = ClassMeanProgram.build(og.ClassDistribution.from_proportions(p), loss, grouped=False)
            ours = attempt(partial(solve_from, p, loss))
            reference = None if isinstance(ours, Exception) else judge(program, ours.gram)[0]
            calls: dict[str, Callable[[], Any]] = {
                "optgeom": partial(solve_from, p, loss),
                rival: partial(_rivals.supcon_limit, p, temperature, solver),
            }
            attempt(partial(_rivals.supcon_limit, zipf(4), temperature, solver))
            for who, turn, seconds, result in _harness.alternate(calls, {"optgeom": plan.repeats, rival: repeats}):
                row = partial(Row, name, f"zipf, temperature {temperature}", who, classes, "inf", turn, seconds)
                if isinstance(result, Exception):
                    yield row(note=reason(result))
                elif who == "optgeom":
                    yield judged(row, program, result.gram)
                else:
                    note = f"status {result.status}, {result.iterations} iterations"
                    yield judged(row, program, result.gram, reference, solver_seconds=result.solver_seconds, note=note)


def attempt(call: Callable[[], Any]) -> Any:
    """What one untimed call returns, or the exception that it raises: a failure shows again where it is timed."""
    try:
        return call()
    except Exception as error:
        return error


def reason(error: Exception) -> str:
    """First line of an error, without paths."""
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:160]}"


def against_eigh(plan: Plan) -> Iterable[Row]:
    loss = og.SupCon(temperature=SUPCON_TEMPERATURE)
    cases = [(f"zipf, {classes} groups", og.ClassDistribution.from_proportions(zipf(classes))) for classes in plan.eigh]
    for profile in plan.profiles:
        classes = og.ClassDistribution.from_profile(profile)
        cases.append((f"{profile}, {classes.groups.num_groups} groups", classes))
    for case, classes in cases:
        program = ClassMeanProgram.build(classes, loss)
        geometry = attempt(partial(og.solve, classes, loss))
        if isinstance(geometry, Exception):
            yield Row("eigh", case, "optgeom", classes.num_classes, "inf", 0, math.nan, note=reason(geometry))
            continue
        gram = np.array(geometry.gram)
        block = group_matrix.symmetric_block(geometry.group_cosines, np.ones(program.sizes.size), program.sizes)
        calls: dict[str, Callable[[], Any]] = {"optgeom": partial(og.solve, classes, loss), "eigh C x C": partial(scipy.linalg.eigh, gram)}
        if program.sizes.size < classes.num_classes:
            calls["eigh G x G"] = partial(scipy.linalg.eigh, block)
        for call in calls.values():
            attempt(call)
        for who, turn, seconds, result in _harness.alternate(calls, dict.fromkeys(calls, plan.repeats)):
            row = partial(Row, "eigh", case, who, classes.num_classes, "inf", turn, seconds)
            if isinstance(result, Exception):
                yield row(note=reason(result))
            else:
                yield judged(row, program, result.group_cosines) if who == "optgeom" else row()


def finite_negatives(plan: Plan) -> Iterable[Row]:
    classes, k, repeats = plan.finite_k
    for turn in range(repeats):
        yield child_row("finite-k", "zipf, InfoNCE (sum, alpha 1, UCL), temperature 0.1", classes, k, turn)


def many_classes(plan: Plan) -> Iterable[Row]:
    """Long-tailed counts 1 to G, the number of classes with count n falling as n^-1.5."""
    classes, groups = plan.many
    loss = og.SupCon(temperature=SUPCON_TEMPERATURE)
    counts = np.arange(1, groups + 1)
    sizes = np.maximum(1, np.floor(counts**-1.5 / np.sum(counts**-1.5) * classes)).astype(np.int64)
    sizes[0] += classes - sizes.sum()
    every = np.random.default_rng(0).permutation(np.repeat(counts, sizes))
    calls: dict[str, Callable[[], Any]] = {
        "from_groups": lambda: og.solve(og.ClassDistribution.from_groups(counts, sizes), loss),
        "from_counts": lambda: og.solve(og.ClassDistribution.from_counts(every), loss),
    }
    program = ClassMeanProgram.build(og.ClassDistribution.from_groups(counts, sizes), loss)
    attempt(calls["from_groups"])
    for how, turn, seconds, result in _harness.alternate(calls, dict.fromkeys(calls, plan.repeats)):
        row = partial(Row, "many-classes", f"{groups} groups, ClassDistribution.{how}", "optgeom", classes, "inf", turn, seconds)
        yield row(note=reason(result)) if isinstance(result, Exception) else judged(row, program, result.group_cosines)


def growth(plan: Plan) -> Iterable[Row]:
    loss = og.SupCon(temperature=SUPCON_TEMPERATURE)
    calls = {str(classes): partial(solve_from, zipf(classes), loss) for classes in plan.growth[:2]}
    for call in calls.values():
        attempt(call)
    for size, turn, seconds, result in _harness.alternate(calls, dict.fromkeys(calls, max(2, plan.repeats - 2))):
        row = partial(Row, "growth", "zipf, time", "optgeom", int(size), "inf", turn, seconds)
        if isinstance(result, Exception):
            yield row(note=reason(result))
        else:
            program = ClassMeanProgram.build(result.classes, loss)
            yield judged(row, program, result.group_cosines)
    for classes in plan.growth:
        yield child_row("growth", "zipf, memory", classes, math.inf, 0)


def child_row(hypothesis: str, case: str, classes: int, k: float, turn: int) -> Row:
    """One run in a fresh process, for its peak memory."""
    found = _harness.in_fresh_process(Path(__file__).resolve(), {"classes": classes, "k": k if math.isfinite(k) else None})
    return Row(hypothesis, case, "optgeom", classes, f"{k:.0f}", turn, found.pop("seconds", math.nan), **found)


def child(arguments: dict[str, Any]) -> dict[str, Any]:
    """What the fresh process does: warm up on a small problem, solve, read the peak, and only then certify again."""
    k = arguments["k"]
    loss = og.SupCon(temperature=SUPCON_TEMPERATURE) if k is None else og.InfoNCE(
        temperature=0.1, negatives=k, alpha=1.0, negatives_reduction="sum", sampling="ucl"
    )
    solve_from(zipf(5), loss)
    baseline = _harness.peak_mb()
    seconds, geometry = _harness.timed(partial(solve_from, zipf(arguments["classes"]), loss))
    peak = _harness.peak_mb()
    row = judged(partial(Row, "", "", "", 0, "", 0, seconds), ClassMeanProgram.build(geometry.classes, loss), geometry.group_cosines)
    kept = ("seconds", "gap", "backward_error", "certified", "note")
    return {**{name: getattr(row, name) for name in kept}, "peak_mb": peak, "baseline_mb": baseline}


def run(plan: Plan, names: Iterable[str] = NAMES, report: Callable[[Row], None] = lambda row: None) -> list[Row]:
    """All rows of the hypotheses named."""
    hypotheses: dict[str, Callable[[], Iterable[Row]]] = {
        "clarabel": partial(against_conic, plan, "clarabel"),
        "scs": partial(against_conic, plan, "scs"),
        "eigh": partial(against_eigh, plan),
        "finite-k": partial(finite_negatives, plan),
        "many-classes": partial(many_classes, plan),
        "growth": partial(growth, plan),
    }
    rows = []
    for name in names:
        for row in hypotheses[name]():
            report(row)
            rows.append(row)
    return rows


def comparable(first: dict[str, str], second: dict[str, str]) -> bool:
    """Whether rows of two runs may stand in one table: the same machine and the same versions."""
    return {**first, _harness.LOAD: ""} == {**second, _harness.LOAD: ""}


def main(argv: Sequence[str] | None = None, plans: tuple[Plan, Plan] = (FULL, QUICK)) -> int:
    about = "Speed and memory of optgeom.solve against its rivals."
    options = _harness.read_options(about, NAMES, "smaller sizes, under two minutes", HERE, argv)
    if options.child:
        print(json.dumps(child(json.loads(options.child))))
        return 0
    names = [name for name in NAMES if options.only is None or name in options.only]
    results, readme = options.into / "results", options.into / "README.md"
    machine = _harness.environment()
    kept: list[Row] = []
    if not options.quick and options.only and (results / "speed.csv").exists():
        if not comparable(_harness.read_environment(results / "speed-machine.csv"), machine):
            print("the kept rows come from another machine or other versions: run all hypotheses, or give --into", file=sys.stderr)
            return 2
        kept = [row for row in _harness.read_rows(results / "speed.csv") if row.hypothesis not in names]

    def told(row: Row) -> None:
        line = f"{row.hypothesis:13s} {row.case:52s} {row.solver:17s} C={row.C:<9d} {row.seconds:10.4f} s  gap {row.gap:.1e}  {row.note}"
        print(line, file=sys.stderr, flush=True)

    fresh = run(plans[1 if options.quick else 0], names, told)
    rows = sorted([*kept, *fresh], key=lambda row: NAMES.index(row.hypothesis))
    text = report_text(rows, machine)
    print(text)
    if not options.quick:
        results.mkdir(parents=True, exist_ok=True)
        _harness.write_rows(results / "speed.csv", rows)
        _harness.write_environment(results / "speed-machine.csv", machine)
        readme.write_text(_harness.replace_between(readme.read_text(encoding="utf-8"), SECTION, text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
