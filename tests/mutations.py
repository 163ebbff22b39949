"""Wrong signs and factors, each put into a copy of the package: the suite must notice every one of them.

    python tests/mutations.py            all of them, one after the other
    python tests/mutations.py SupCon     those with this in their name

Each mutant is one changed line (two where the same formula stands twice). The tests named with it run on the copy until
one fails; the script prints which test it was, and ends with status 1 if a mutant survives. The unchanged copy must
pass the same tests.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("optgeom", "cli", "tests", "docs", "benchmarks", "pyproject.toml", "README.md", "Makefile")


@dataclass(frozen=True)
class Mutant:
    """(file, right line, wrong line) changes, and the test files that run against them."""

    name: str
    changes: tuple[tuple[str, str, str], ...]
    tests: tuple[str, ...]


MUTANTS = (
    Mutant(
        "factor 2 in G'",
        (
            (
                "optgeom/programs/class_mean.py",
                "np.logaddexp(log_pull, log_pull.T) - np.log(2 * self.temperature)",
                "np.logaddexp(log_pull, log_pull.T) - np.log(self.temperature)",
            ),
            (
                "optgeom/programs/class_mean.py",
                "np.asarray((weighted + weighted.T) / (2 * self.temperature))",
                "np.asarray((weighted + weighted.T) / self.temperature)",
            ),
        ),
        ("certificates/test_certificates.py",),
    ),
    Mutant(
        "sign of nu",
        (
            (
                "optgeom/certificates/dual.py",
                "nu = (program.rows.count * gradient * cosines).sum(axis=1)",
                "nu = -(program.rows.count * gradient * cosines).sum(axis=1)",
            ),
        ),
        ("certificates/test_certificates.py",),
    ),
    Mutant(
        "V in q",
        (("optgeom/losses/supcon.py", "(self.views - 1) / self.views)", "float(self.views - 1))"),),
        ("losses/test_losses.py",),
    ),
    Mutant(
        "alpha = V - 1",
        (
            ("optgeom/losses/supcon.py", "(self.views - 1) / self.views)", "1.0)"),
            (
                "optgeom/losses/supcon.py",
                "math.log(self.views - 1), math.log(self.views))",
                "math.log(self.views), math.log(self.views))",
            ),
        ),
        ("losses/test_losses.py",),
    ),
    Mutant(
        "self-exclusion in SupCon, full batch",
        (("optgeom/losses/supcon.py", "total, rows - 1.0, log_weight)", "total, rows, log_weight)"),),
        ("losses/test_losses.py",),
    ),
    Mutant(
        "self-exclusion in SupCon, positives in torch",
        (("optgeom/training/losses/supcon.py", "others = counts[part] - 1.0", "others = counts[part]"),),
        ("training/test_losses_programs.py",),
    ),
    Mutant(
        "m_g - 1 classes beside one's own",
        (("optgeom/losses/law.py", "np.fill_diagonal(count, sizes - 1.0)", "np.fill_diagonal(count, 1.0 * sizes)"),),
        ("losses/test_losses.py", "solvers/test_solve_properties.py"),
    ),
    Mutant(
        "m_g - 1 in the matrix of a group",
        (
            (
                "optgeom/programs/group_matrix.py",
                "diagonal + (sizes - 1.0) * np.diag(between)",
                "diagonal + sizes * np.diag(between)",
            ),
        ),
        ("certificates/test_certificates.py", "solvers/test_solve_properties.py"),
    ),
    Mutant(
        "sign of the row KL",
        (
            (
                "optgeom/programs/weighted.py",
                "near = w * (np.expm1(np.where(small, x, 0.0)) - x)",
                "near = w * (np.expm1(np.where(small, -x, 0.0)) + x)",
            ),
        ),
        ("realization/test_weights.py", "realization/test_realize.py", "realization/test_weighted.py"),
    ),
    Mutant(
        "Lingoes' constant 2 lambda_min",
        (
            (
                "optgeom/realization/euclidean.py",
                "return 2.0 * float(self.values.min())",
                "return float(self.values.min())",
            ),
        ),
        ("realization/test_euclidean.py",),
    ),
    Mutant(
        "n - 1 in rho^2",
        (("optgeom/embeddings/moments/directions.py", "weight**2 - weight_squares", "weight**2"),),
        ("embeddings/test_statistics_directions.py",),
    ),
    Mutant(
        "1/4 in the curvature of a cosine",
        (
            (
                "optgeom/embeddings/statistics/pair_intervals.py",
                "size * (one + other) / 4",
                "size * (one + other) / 2",
            ),
        ),
        ("embeddings/test_statistics_pair_intervals.py",),
    ),
)


def run(mutant: Mutant | None, tests: tuple[str, ...]) -> str | None:
    """The first test that fails on a copy with this change, None if all pass.

    Raises
    ------
    RuntimeError
        A line to be changed is not there exactly once, or the tests did not run.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for part in PARTS:
            source = ROOT / part
            if source.is_dir():
                shutil.copytree(source, copy / part, ignore=shutil.ignore_patterns("__pycache__", "results", "*.png"))
            else:
                shutil.copy(source, copy / part)
        for file, right, wrong in mutant.changes if mutant else ():
            text = (copy / file).read_text(encoding="utf-8")
            if text.count(right) != 1:
                raise RuntimeError(f"{file} holds the line to change {text.count(right)} times, not once: {right}")
            (copy / file).write_text(text.replace(right, wrong), encoding="utf-8")
        # First in the path: before the package that is installed.
        paths = os.pathsep.join((str(copy), str(copy / "cli")))
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-q",
            "--no-header",
            "-rf",
            "-m",
            "not slow",
            "-p",
            "no:cacheprovider",
        ]
        done = subprocess.run(
            [*command, *(f"tests/{name}" for name in tests)],
            cwd=copy,
            capture_output=True,
            text=True,
            timeout=1800,
            env={**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"},
        )
    if done.returncode == 0:
        return None
    failed = re.search(r"^FAILED (\S+)", done.stdout, re.MULTILINE)
    if failed is None:
        raise RuntimeError(f"the tests did not run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return failed[1]


def main(wanted: str = "") -> int:
    chosen = [mutant for mutant in MUTANTS if wanted in mutant.name]
    unchanged = run(None, tuple(sorted({test for mutant in chosen for test in mutant.tests})))
    if unchanged is not None:
        print(f"the unchanged package fails {unchanged}")
        return 1
    survivors = 0
    print("| mutation | file | caught by |\n| --- | --- | --- |")
    for mutant in chosen:
        caught = run(mutant, mutant.tests)
        survivors += caught is None
        print(
            f"| {mutant.name} | `{mutant.changes[0][0]}` | {'NOTHING' if caught is None else f'`{caught}`'} |",
            flush=True,
        )
    return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
