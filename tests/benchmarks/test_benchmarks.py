"""The benchmarks run, certify and write what they say; nothing here measures a time."""

from __future__ import annotations

import importlib.util
import math
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.scripts import BENCHMARKS, importable

import optgeom as og

with importable(BENCHMARKS):
    import _harness
    import _machine
    import _page
    import _rivals
    import _store
    import _suite
    import bench_speed
    import run

    TABLES = _suite.tables()

PACKAGES = {"SCS": "scs", "pymanopt": "pymanopt", "pytorch": "pytorch_metric_learning", "MDS": "sklearn"}
# Tables that start no process and no worker.
AT_ONCE = [
    name
    for name in TABLES
    if re.match(r"speed-(clarabel|scs|pymanopt|eigh|many)|collapse|ranges|realize|validate-(first|labels)", name)
]
NO_CERTIFICATE = re.compile("validate|training|scan")


def has(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def measured(into: Path, *arguments: str) -> dict[str, list[_harness.Row]]:
    """All rows by table after a run on the smallest sizes."""
    assert run.main(["--tiny", "--into", str(into), *arguments]) == 0
    return {path.stem: _store.read_table(path) for path in sorted((into / "results").glob("*-*.csv"))}


def check(name: str, rows: list[_harness.Row]) -> None:
    """Ours are certified, and nobody failed whose package is there."""
    assert rows, name
    for row in rows:
        missing = [package for word, package in PACKAGES.items() if word in row.solver and not has(package)]
        assert row.failed == bool(missing), row
        if row.solver == _harness.OURS and not NO_CERTIFICATE.match(name):
            assert row.certified, row


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("benchmarks")
    measured(folder, *(part for name in AT_ONCE for part in ("--only", name)))
    return folder


@pytest.fixture
def tables(folder):
    return {name: _store.read_table(folder / "results" / f"{name}.csv") for name in AT_ONCE}


def test_every_table_has_rows_that_are_certified(tables):
    for name, rows in tables.items():
        check(name, rows)


@pytest.mark.slow
def test_every_table_runs(tmp_path):
    for package in ("torch", "pytorch_metric_learning", "joblib", "matplotlib"):
        pytest.importorskip(package, reason="everything is needed: `make bench` installs it")
    for name, rows in {"scan": [], **measured(tmp_path)}.items():
        check(name, rows or _store.read_table(tmp_path / "results" / "scan.csv"))
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "Not measured yet" not in text
    for name in TABLES:
        if name.startswith("growth"):
            assert (tmp_path / "figures" / f"benchmark-{name}.png").stat().st_size > 10_000
    assert not (tmp_path / "results" / run.UNFINISHED).exists()


def test_rivals_are_certified_by_the_same_rule(tables):
    (found,) = [row for row in tables["speed-clarabel"] if row.solver == "CVXPY + Clarabel"]
    classes, loss = og.ClassDistribution.from_proportions(bench_speed.zipf(4)), og.SupCon(temperature=1.0)
    expected = og.certify_gram(
        _rivals.conic(_rivals.supcon_limit(bench_speed.zipf(4), 1.0), "CLARABEL").gram, classes, loss
    )
    assert found.certified == expected.certified
    assert found.gap == pytest.approx(expected.gap, rel=1e-4)
    assert found.backward_error == pytest.approx(expected.backward_error, rel=1e-4)
    assert 0 <= found.excess + 1e-12 <= found.gap + 1e-12
    assert found.cosine_error < 1e-3


def test_the_page_holds_the_tables_and_not_the_machine(folder):
    text = (folder / "README.md").read_text(encoding="utf-8")
    for name in AT_ONCE:
        section = text.split(f"<!-- {name}:begin -->")[1].split(f"<!-- {name}:end -->")[0]
        assert f"### `{name}`: {TABLES[name].title}" in section and "n = 1" in section
    for secret in (socket.gethostname(), BENCHMARKS.parent.as_posix().lstrip("/"), folder.as_posix().lstrip("/")):
        for path in folder.rglob("*.*"):
            found = path.suffix in (".md", ".csv") and re.search(
                rf"\b{re.escape(secret)}\b", path.read_text(encoding="utf-8")
            )
            assert not found, f"{path.name} names the machine"


def test_the_committed_page_is_what_the_files_say(tmp_path):
    pytest.importorskip("matplotlib")
    into = tmp_path / "benchmarks"
    shutil.copytree(BENCHMARKS / "results", into / "results")
    shutil.copy(BENCHMARKS / "README.md", into)
    _page.write(into, TABLES, tmp_path / "docs" / "images")
    assert (into / "README.md").read_text(encoding="utf-8") == (BENCHMARKS / "README.md").read_text(encoding="utf-8")


def test_a_run_of_some_sizes_keeps_the_other_rows(folder, tmp_path):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "results" / "speed-eigh.csv"
    before = _store.read_table(path)
    measured(tmp_path, "--only", "speed-eigh", "--sizes", "6")
    after = _store.read_table(path)
    assert [repr(row) for row in after if row.size != 6] == [repr(row) for row in before if row.size != 6] != []
    assert {row.run for row in after if row.size == 6} == {2} and {row.run for row in before} == {1}
    assert set(_store.read_machines(tmp_path / "results")) == {1, 2}
    assert (
        "Run 1: (inaturalist2018-supercategories, 14 groups, 14); run 2: (zipf, 6 groups, 6)."
        in (tmp_path / "README.md").read_text()
    )


def test_an_interrupted_run_is_resumed(tmp_path, monkeypatch):
    def stop(effort):
        raise KeyboardInterrupt

    names = ["speed-many-classes", "realize-classes"]
    chosen = [part for name in names for part in ("--only", name)]
    broken = {**TABLES, names[1]: _suite.Table(names[1], "", "", stop, TABLES[names[1]].render)}
    monkeypatch.setattr(_suite, "tables", lambda: broken)
    with pytest.raises(KeyboardInterrupt):
        run.main(["--tiny", "--into", str(tmp_path), *chosen])
    assert run.unfinished(tmp_path / "results") == [names[1]]
    assert _store.read_table(tmp_path / "results" / f"{names[0]}.csv"), "what is measured is written"
    assert "20 groups, ClassDistribution.from_groups" in (tmp_path / "README.md").read_text(encoding="utf-8")
    monkeypatch.setattr(_suite, "tables", lambda: TABLES)
    assert {row.run for row in measured(tmp_path, "--resume")[names[1]]} == {2}
    assert run.unfinished(tmp_path / "results") == []


def test_a_table_that_cannot_be_measured_does_not_stop_the_others(tmp_path, monkeypatch, capsys):
    def refuse(effort):
        raise OSError("no room")

    broken = {**TABLES, "realize-near": _suite.Table("realize-near", "", "", refuse, TABLES["realize-near"].render)}
    monkeypatch.setattr(_suite, "tables", lambda: broken)
    chosen = ["--only", "realize-near", "--only", "realize-classes"]
    assert run.main(["--tiny", "--into", str(tmp_path), *chosen]) == 1
    assert "realize-near: not measured, OSError: no room" in capsys.readouterr().err
    assert _store.read_table(tmp_path / "results" / "realize-classes.csv")
    assert run.unfinished(tmp_path / "results") == ["realize-near"]


def test_quick_does_not_write_over_the_results(capsys):
    options = run.options_of(["--quick"])
    assert options.into is None and options.level == "quick"
    assert run.main(["--tiny", "--only", "speed-many-classes"]) == 0
    written = Path(capsys.readouterr().err.split("written: ")[1].strip())
    assert BENCHMARKS not in written.parents and (written.parent / "results" / "speed-many-classes.csv").exists()
    shutil.rmtree(written.parent)


def test_names_of_tables(capsys):
    assert _suite.selected(["a", "a-b", "ab", "c"], ["a"]) == ["a", "a-b"]
    assert _suite.selected(["a", "b"], []) == ["a", "b"]
    assert run.main(["--only", "sped"]) == 2
    assert (
        "`--only` must be a table or a part of the page; got 'sped' (one of speed-clarabel," in capsys.readouterr().err
    )
    assert run.main(["--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(TABLES)


def test_a_failing_rival_is_a_row(monkeypatch):
    def refuse(program, solver):
        raise RuntimeError("no finite matrix, status infeasible\nat some place")

    monkeypatch.setattr(_rivals, "conic", refuse)
    rows = list(TABLES["speed-clarabel"].measure(_suite.Effort("tiny")))
    (failed,) = [row for row in rows if row.solver != _harness.OURS]
    assert failed.note == "failed: RuntimeError: no finite matrix, status infeasible"
    assert failed.failed and not failed.certified and math.isnan(failed.gap)
    assert "no answer" in TABLES["speed-clarabel"].render(rows)


def test_rows_survive_their_file(tmp_path):
    rows = [
        _harness.Row("a, b", "x", 3, 0, 0.25, gap=1e-9, certified=True, note="one\nline"),
        _harness.Row("a, b", "y", 3, 0),
    ]
    _store.write_table(tmp_path / "t.csv", rows)
    text = (tmp_path / "t.csv").read_text()
    assert text.splitlines()[0] == "case,solver,size,repeat,seconds,gap,certified,note,run"
    back = _store.read_table(tmp_path / "t.csv")
    assert (back[0].seconds, back[0].gap, back[0].certified, back[0].note) == (0.25, 1e-9, True, "one line")
    assert math.isnan(back[1].seconds) and back[1].failed and list(tmp_path.iterdir()) == [tmp_path / "t.csv"]


def test_peak_memory_is_of_the_process_itself():
    own = "import sys; sys.path.insert(0, {folder!r}); import _harness; print(_harness.peak_mb())"
    code = """
import subprocess, sys
sys.path.insert(0, {folder!r})
import numpy as np
import _harness
before = _harness.peak_mb()
np.ones(2**25)
after = _harness.peak_mb()
print(before, after, subprocess.run([sys.executable, "-c", {own!r}], capture_output=True, text=True, check=True).stdout)
"""
    code = code.format(folder=str(BENCHMARKS), own=own.format(folder=str(BENCHMARKS)))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, after, child = map(float, done.stdout.split())
    assert after - before == pytest.approx(256, abs=8)
    assert child < before + 8, "a child process must not start with the peak of its parent"


def test_a_fresh_process_measures_and_says_why_it_failed():
    found = _harness.in_fresh_process("bench_speed", {"classes": 5, "k": 3})
    assert found["certified"] and 10 < found["baseline_mb"] <= found["peak_mb"] < 1000
    assert _harness.in_fresh_process("bench_speed", {})["note"].startswith("failed: exit status 1: KeyError")


def test_rivals_take_turns():
    order = []
    calls = {name: (lambda name=name: order.append(name)) for name in "ab"}
    list(_harness.alternate(calls, {"a": 3, "b": 2}))
    assert order == ["a", "b", "b", "a", "a"]


def test_a_text_without_its_markers_is_refused():
    with pytest.raises(ValueError, match="must hold the lines '<!-- x:begin -->'"):
        _page.replace_between("nothing", "x", "body")


def test_the_machine_is_told_in_words():
    found = _machine.environment()
    assert found["python"] == sys.version.split()[0] and "cores" in found["cpu"] and found["numpy"] == np.__version__


def test_a_table_with_a_figure_shows_it(tmp_path):
    pytest.importorskip("matplotlib")
    (tmp_path / "results").mkdir()
    shutil.copy(BENCHMARKS / "README.md", tmp_path)
    rows = [
        _harness.Row(
            case,
            _harness.OURS,
            size,
            0,
            size**power,
            gap=0.0,
            certified=True,
            extra_mb=size**2.0,
            peak_mb=9.0,
            baseline_mb=8.0,
        )
        for case, power in (("labels in 3 dimensions", 1.5), ("labels in 1 dimension", 2.0))
        for size in (30, 100, 300)
    ]
    failed = _harness.Row(
        "labels in 1 dimension", _harness.OURS, 1000, 0, note="failed: exit status 1: SolverError: no luck"
    )
    _store.write_table(tmp_path / "results" / "growth-samples.csv", [*rows, failed])
    rival = [
        _harness.Row("dim 3, temperature 0.5", who, 60, 0, 1.0, gap=0.0) for who in (_harness.OURS, "CVXPY + Clarabel")
    ]
    _store.write_table(tmp_path / "results" / "realize-clarabel.csv", rival)
    _page.write(tmp_path, TABLES, tmp_path / "pictures")
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert (
        "](pictures/benchmark-growth-samples.png)" in text
        and "| labels in 1 dimension | 1000 | failed | - | - | - | - | no luck |" in text
    )
    assert (tmp_path / "pictures" / "benchmark-growth-samples.png").read_bytes().startswith(b"\x89PNG")
