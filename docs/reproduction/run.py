"""The experiments of reproduction.md, and the page.

    python docs/reproduction/run.py                      every experiment, then the page
    python docs/reproduction/run.py minority_collapse    this one anew, then the page
    python docs/reproduction/run.py --page               the page from the results that are there

Results lie in results/, one JSON file per experiment; tables and figures are made from them alone.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from types import ModuleType

from experiment import DOTS_PER_INCH, IMAGES, Results, image

from optgeom.inputs import files

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "reproduction.md"
RESULTS = HERE / "results"
EXPERIMENTS = (
    "class_collapse",
    "minority_collapse",
    "soft_supcon",
    "y_aware",
    "temperature",
    "digits",
    "sampling_conditions",
    "prescriptions",
    "gpu",
)


def experiment(name: str) -> ModuleType:
    """The module of an experiment."""
    return importlib.import_module(name)


def measure(name: str, changed: Results | None = None) -> Results:
    """Run one experiment; its results, settings and seconds of processor time, as JSON would give it back."""
    module = experiment(name)
    settings = {**module.SETTINGS, **(changed or {})}
    began = time.process_time()
    results = module.run(settings)
    return dict(
        json.loads(json.dumps({"settings": settings, **results, "seconds": round(time.process_time() - began)}))
    )


def block(name: str, results: Results) -> str:
    """What stands between the markers of an experiment."""
    module = experiment(name)
    parts = [
        module.markdown(results),
        f"`docs/reproduction/{name}.py`, {results['seconds']} seconds of processor time.",
    ]
    if hasattr(module, "draw"):
        parts.insert(1, f"![{module.__doc__.splitlines()[0]}](images/{image(name)})")
    return "\n\n".join(parts)


def page(text: str, experiments: dict[str, Results]) -> str:
    """The page with the blocks of these experiments replaced."""
    for name, results in experiments.items():
        begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
        before, rest = text.split(begin)
        text = f"{before}{begin}\n\n{block(name, results)}\n\n{end}{rest.split(end)[1]}"
    return text


def draw(name: str, results: Results, folder: Path = IMAGES) -> None:
    """The figure of an experiment, if it has one."""
    from optgeom.plotting.figures import new_figure, save_figure

    module = experiment(name)
    if hasattr(module, "draw"):
        figure = new_figure(getattr(module, "SIZE", (7.0, 4.2)))
        module.draw(results, figure)
        save_figure(figure, folder / image(name), dpi=DOTS_PER_INCH)


def saved() -> dict[str, Results]:
    """Results of all experiments that have any."""
    files = {name: RESULTS / f"{name}.json" for name in EXPERIMENTS}
    return {name: json.loads(path.read_text(encoding="utf-8")) for name, path in files.items() if path.exists()}


def one_thread() -> None:
    """Everything here is small: threads within an operation cost more than they bring."""
    import torch

    torch.set_num_threads(1)


def measured(names: Sequence[str]) -> Iterator[tuple[str, Results]]:
    """Results of these experiments as they are done, two at a time where there are two processors."""
    if len(names) == 1:
        one_thread()
        yield names[0], measure(names[0])
        return
    workers = min(2, os.cpu_count() or 1)
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), one_thread) as pool:
        running = {pool.submit(measure, name): name for name in names}
        for done in as_completed(running):
            yield running[done], done.result()


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Experiments of reproduction.md")
    parser.add_argument("names", nargs="*", metavar="experiment", help=", ".join(EXPERIMENTS))
    parser.add_argument("--page", action="store_true", help="run nothing, only write the page")
    given = parser.parse_args(argv)
    unknown = sorted(set(given.names) - set(EXPERIMENTS))
    if unknown:
        parser.error(f"no such experiment: {', '.join(unknown)} (there are {', '.join(EXPERIMENTS)})")
    for name, results in () if given.page else measured(given.names or EXPERIMENTS):
        print(f"{name}: {results['seconds']} s\n\n{experiment(name).markdown(results)}\n", flush=True)
        files.write_text(RESULTS / f"{name}.json", json.dumps(results, indent=1) + "\n")
        draw(name, results)
    if given.page:
        for name, results in saved().items():
            draw(name, results)
    files.write_text(PAGE, page(PAGE.read_text(encoding="utf-8"), saved()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
