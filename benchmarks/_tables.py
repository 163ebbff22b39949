"""Tables of medians and ratios, from rows alone: every target beside what was reached."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from _harness import OURS, QUIET, Row

CUBIC = 9.0  # time at twice the classes; 8 is cubic
QUADRATIC = 2.1  # exponent of the memory beyond the interpreter's; 2 is quadratic


@dataclass(frozen=True)
class Summary:
    """All runs of one solver on one case: median seconds, and the worst certificate."""

    runs: int
    failed: int
    seconds: float
    solver_seconds: float
    gap: float
    certified: bool
    excess: float
    cosine_error: float
    difference: float
    peak_mb: float
    baseline_mb: float
    extra_mb: float
    note: str


def summarise(rows: Sequence[Row]) -> Summary:
    def worst(name: str) -> float:
        return max((value for row in rows if not math.isnan(value := getattr(row, name))), default=math.nan)

    return Summary(
        runs=len(rows),
        failed=sum(row.failed for row in rows),
        seconds=statistics.median(row.seconds for row in rows),
        solver_seconds=median(row.solver_seconds for row in rows),
        gap=worst("gap"),
        certified=all(row.certified for row in rows),
        excess=worst("excess"),
        cosine_error=worst("cosine_error"),
        difference=worst("difference"),
        peak_mb=worst("peak_mb"),
        baseline_mb=worst("baseline_mb"),
        extra_mb=median(row.extra_mb for row in rows),
        note=next((row.note for row in rows if row.note), ""),
    )


def median(values: Iterable[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return statistics.median(known) if known else math.nan


def cases(rows: Iterable[Row]) -> dict[tuple[str, int], dict[str, Summary]]:
    """(case, size) -> solver -> summary, in the order measured."""
    grouped: dict[tuple[str, int], dict[str, list[Row]]] = {}
    for row in rows:
        grouped.setdefault((row.case, row.size), {}).setdefault(row.solver, []).append(row)
    return {case: {solver: summarise(found) for solver, found in solvers.items()} for case, solvers in grouped.items()}


def versus(rows: Sequence[Row], targets: Mapping[tuple[str, int], float], size: str = "C", loss: str = "risk") -> str:
    """A line a rival. Met: faster by the target, certified, and a gap no larger than the rival's.

    A rival that failed counts with its time to failure, unless it failed within a second.
    """
    lines = []
    for (case, number_of), found in cases(rows).items():
        ours = found[OURS]
        for who, rival in found.items():
            if who == OURS:
                continue
            target = targets.get((case, number_of))
            missing = rival.failed == rival.runs
            good = ours.certified and (missing or ours.gap <= rival.gap)
            ratio = rival.seconds / ours.seconds
            reached = "-" if missing and rival.seconds < 1 else f"{ratio:.2g} x" if ratio < 10 else f"{ratio:.0f} x"
            met = "-" if target is None or reached == "-" else yes(good and ratio >= target)
            told = "-" if target is None else f">= {target:.0f} x"
            quality = [
                certificate(ours),
                "no answer" if missing else certificate(rival),
                number(rival.excess),
                number(rival.cosine_error),
            ]
            lines.append([case, str(number_of), timing(ours), who, timing(rival), reached, told, met, *quality])
    header = ["case", size, OURS, "rival", "its time", "ratio", "target", "met", "gap", "rival's gap"]
    return markdown([*header, f"rival's excess {loss}", "rival's cosine error"], lines)


def within(rows: Sequence[Row], targets: Mapping[tuple[str, int], tuple[float, float]], size: str = "C") -> str:
    """A line per case of optgeom alone.

    Targets are (seconds, gap): infinite where open, a gap of NaN where nothing is certified.
    """
    lines = []
    for (case, number_of), found in cases(rows).items():
        ours = found[OURS]
        told = met = "-"
        if (case, number_of) in targets:
            seconds, gap = targets[case, number_of]
            told = (f"<= {seconds:g} s" if math.isfinite(seconds) else "open") + (
                f", gap {gap:.0e}" if gap == gap else ""
            )
            met = yes(ours.certified and ours.seconds <= seconds)
        lines.append([case, str(number_of), timing(ours), number(ours.gap), ours.note or "-", told, met])
    return markdown(["case", size, "reached", "gap", "solver or note", "target", "met"], lines)


def eigh(rows: Sequence[Row], most: float) -> str:
    lines = []
    for (case, classes), found in cases(rows).items():
        ours = found[OURS]
        if len(found) == 1:
            lines.append(
                [case, str(classes), timing(ours), "-", "-", number(ours.gap), f"<= {most:.0f} x", "failed", yes(False)]
            )
        for who, rival in found.items():
            if who != OURS:
                ratio = ours.seconds / rival.seconds
                # On groups, the matrix that the certificate decomposes is G x G: that ratio is told, the target speaks
                # of C x C.
                target = f"<= {most:.0f} x" if who == "eigh C x C" else "-"
                met = yes(ours.certified and ratio <= most) if target != "-" else "-"
                lines.append(
                    [
                        case,
                        str(classes),
                        timing(ours),
                        who,
                        timing(rival),
                        number(ours.gap),
                        target,
                        f"{ratio:.2f} x",
                        met,
                    ]
                )
    return markdown(["case", "C", OURS, "against", "its time", "gap", "target", "reached", "met"], lines)


def finite_negatives(rows: Sequence[Row], targets: Mapping[int, tuple[float, float]]) -> str:
    lines = []
    ks = {row.size: row.k for row in rows}
    for (case, classes), found in cases(rows).items():
        ours = found[OURS]
        memory = f"{ours.peak_mb:.0f} MiB ({ours.baseline_mb:.0f} before)"
        target = met = "-"
        if classes in targets:
            seconds, peak = targets[classes]
            target = f"<= {seconds:.0f} s, <= {peak:.0f} MiB"
            met = yes(ours.certified and ours.seconds <= seconds and ours.peak_mb <= peak)
        lines.append([case, str(classes), ks[classes], timing(ours), memory, number(ours.gap), target, met])
    return markdown(["case", "C", "k", "reached: time", "reached: peak memory", "gap", "target", "met"], lines)


def doubling(rows: Sequence[Row]) -> str:
    """Time and memory of sizes that double, against cubic and quadratic growth."""
    found = cases(rows)
    lines = []
    for kind in ("zipf, time", "zipf, memory"):
        before: tuple[int, float] | None = None
        for (case, classes), solvers in found.items():
            if case != kind:
                continue
            ours = solvers[OURS]
            used = ours.peak_mb - ours.baseline_mb
            value, told = (
                (ours.seconds, timing(ours))
                if kind == "zipf, time"
                else (used, f"{used:.0f} MiB beyond {ours.baseline_mb:.0f}")
            )
            target = reached = met = "-"
            if before is not None and kind == "zipf, time":
                ratio, target = value / before[1], f"<= {CUBIC:.0f} x the time of {before[0]}"
                reached, met = f"{ratio:.1f} x", yes(ours.certified and ratio <= CUBIC)
            elif before is not None:
                exponent = (
                    math.log(value / before[1]) / math.log(classes / before[0])
                    if min(value, before[1]) > 0
                    else math.nan
                )
                target, reached, met = (
                    f"exponent <= {QUADRATIC}",
                    f"C^{exponent:.2f}",
                    yes(ours.certified and exponent <= QUADRATIC),
                )
            matrices = f"{used * 2**20 / (8 * classes**2):.1f}" if kind == "zipf, memory" else "-"
            lines.append([case, str(classes), told, matrices, number(ours.gap), target, reached, met])
            before = classes, value
    return markdown(["case", "C", "measured", "in C x C matrices", "gap", "target", "reached", "met"], lines)


def ratios(rows: Sequence[Row], above: str, below: str) -> tuple[float, int, bool]:
    """Median of the ratios of neighbouring runs, their number, and whether they are from a quiet machine."""
    turns: dict[int, dict[str, Row]] = {}
    for row in rows:
        turns.setdefault(row.repeat, {})[row.solver] = row
    pairs = [turn for turn in turns.values() if {above, below} <= set(turn)]
    quiet = [turn for turn in pairs if not any(row.busy_elsewhere > QUIET for row in turn.values())]
    chosen = quiet or pairs
    return statistics.median(turn[above].seconds / turn[below].seconds for turn in chosen), len(chosen), bool(quiet)


def a_line_a_case(header: Iterable[str], rows: Sequence[Row], line: Callable[[Sequence[Row]], list[str]]) -> str:
    names = dict.fromkeys(row.case for row in rows)
    return markdown(header, [line([row for row in rows if row.case == case]) for case in names])


def busy(rows: Sequence[Row]) -> str:
    """Median of the cores that other programs used."""
    elsewhere = median(row.busy_elsewhere for row in rows)
    return "-" if math.isnan(elsewhere) else f"{elsewhere:.1f} cores"


def second(value: float) -> str:
    return f"{value * 1e3:.3g} ms" if value < 0.9995 else f"{value:.3g} s"


def timing(found: Summary) -> str:
    failed = f", {found.failed} failed" if found.failed else ""
    return f"{second(found.seconds)} (n = {found.runs}{failed})"


def number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.1e}"


def certificate(found: Summary) -> str:
    return number(found.gap) if found.certified else f"{number(found.gap)}, not certified"


def yes(holds: bool) -> str:
    return "yes" if holds else "**no**"


def markdown(header: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    header = list(header)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [header, ["---"] * len(header), *lines])
