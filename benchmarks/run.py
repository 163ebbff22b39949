"""The benchmarks, as one suite.

    python benchmarks/run.py              every table, about an hour; each is written when it is measured
    python benchmarks/run.py --resume     the tables that an interrupted run left
    python benchmarks/run.py --only speed-clarabel --sizes 40 --repeats 1
                                          the cases with 40 classes of one table; other rows stay
    python benchmarks/run.py --quick      small sizes, once, into a temporary folder; under five minutes on one core
    python benchmarks/run.py --page       README.md and the figures again, from the files of results
    python benchmarks/run.py --list       the names of the tables

BLAS has one thread, for optgeom and its rivals, unless OMP_NUM_THREADS says otherwise.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _suite import Effort, Table

HERE = Path(__file__).resolve().parent
UNFINISHED = "unfinished.txt"


def options_of(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="one table, or all that begin so (may be repeated)"
    )
    parser.add_argument("--sizes", default="", metavar="N,N", help="only these numbers of classes, samples or rows")
    parser.add_argument("--repeats", type=int, default=10**9, metavar="N", help="at most so many runs of everybody")
    parser.add_argument("--resume", action="store_true", help="the tables that an interrupted run left")
    level = parser.add_mutually_exclusive_group()
    level.add_argument(
        "--quick", dest="level", action="store_const", const="quick", default="full", help="small sizes, one run"
    )
    level.add_argument(
        "--tiny", dest="level", action="store_const", const="tiny", help="the smallest sizes: does it run at all?"
    )
    parser.add_argument(
        "--into", type=Path, help="folder with README.md and results/ to write to (a temporary one where not full)"
    )
    parser.add_argument("--page", action="store_true", help="measure nothing: README.md and figures from the results")
    parser.add_argument("--list", action="store_true", help="names of the tables")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = options_of(argv)
    if options.child:
        print(json.dumps(importlib.import_module(options.child[0]).child(json.loads(options.child[1]))))
        return 0
    import _page
    import _suite

    tables = _suite.tables()
    if options.list:
        print("\n".join(f"{name:20s} {table.title}" for name, table in tables.items()))
        return 0
    into = options.into or (HERE if options.level == "full" else Path(tempfile.mkdtemp(prefix="optgeom-benchmarks-")))
    into.mkdir(parents=True, exist_ok=True)
    if not (into / "README.md").exists():
        shutil.copy(HERE / "README.md", into)
    try:
        names = _suite.selected(list(tables), options.only)
        sizes = frozenset(int(float(size)) for size in options.sizes.split(",") if size)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if options.resume:
        left = unfinished(into / "results")
        names = [name for name in names if name in left]
    # Where the site finds them.
    figures = HERE.parent / "docs" / "images" if into.resolve() == HERE else into / "figures"
    failed = 0
    try:
        if not options.page:
            failed = measure(
                into, {name: tables[name] for name in names}, _suite.Effort(options.level, sizes, options.repeats)
            )
    finally:
        _page.write(into, tables, figures)
    print(f"written: {into / 'README.md'}", file=sys.stderr)
    return 1 if failed else 0


def measure(into: Path, tables: dict[str, Table], effort: Effort) -> int:
    """Each table in turn into its file; how many could not be measured at all."""
    import _machine
    import _store

    results = into / "results"
    results.mkdir(parents=True, exist_ok=True)
    machines = _store.read_machines(results)
    run = max(machines, default=0) + 1
    machines[run] = _machine.environment()
    left, failed = unfinished(results), 0
    left += [name for name in tables if name not in left and not effort.sizes]
    for name, table in tables.items():
        remember(results, left)
        began = time.perf_counter()
        try:
            fresh = []
            for row in table.measure(effort):
                fresh.append(dataclasses.replace(row, run=run))
                told = f"  {row.case:48s} {row.solver:26s} {row.size:<9d} {row.seconds:10.4g} s  {row.note}"
                print(told, file=sys.stderr, flush=True)
        except Exception as error:  # a rival that is not installed, a full disk: the other tables go on
            print(f"{name}: not measured, {type(error).__name__}: {error}", file=sys.stderr)
            failed += 1
            continue
        path = results / f"{name}.csv"
        kept = _store.read_table(path) if effort.sizes else []
        if fresh:
            _store.write_table(path, _store.merged(kept, fresh))
            _store.write_machines(results, machines)
        if name in left and not effort.sizes:
            left.remove(name)
        rendered = table.render(fresh) if fresh else ""
        print(f"{name}: {len(fresh)} rows in {time.perf_counter() - began:.0f} s\n{rendered}\n", flush=True)
    remember(results, left)
    return failed


def unfinished(results: Path) -> list[str]:
    """Tables that an interrupted run left."""
    path = results / UNFINISHED
    return path.read_text(encoding="utf-8").split() if path.exists() else []


def remember(results: Path, left: Sequence[str]) -> None:
    if left:
        from optgeom.inputs import files

        files.write_text(results / UNFINISHED, "\n".join(left) + "\n")
    else:
        (results / UNFINISHED).unlink(missing_ok=True)


def one_thread() -> None:
    """To be called before numpy is loaded."""
    threads = os.environ.get("OMP_NUM_THREADS", "1")
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, threads)


if __name__ == "__main__":
    one_thread()
    sys.exit(main())
