"""The wheel, in an environment that holds nothing but it and its core dependencies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = ("torch", "matplotlib", "pyarrow", "safetensors", "dask", "sklearn")  # jinja2 and joblib come with cvxpy


def run(*command: str | Path, folder: Path) -> str:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([str(part) for part in command], cwd=folder, capture_output=True, text=True, env=clean)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_wheel_works_with_core_dependencies_only(tmp_path: Path) -> None:
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, ROOT, folder=tmp_path)
    (wheel,) = tmp_path.glob("optgeom-*.whl")
    venv.create(tmp_path / "clean", with_pip=True)
    binaries = tmp_path / "clean" / "bin"
    run(binaries / "python", "-m", "pip", "install", "--quiet", wheel, folder=tmp_path)

    found = json.loads(run(binaries / "optgeom", "solve", "--profile", "places-lt", "--json", folder=tmp_path))
    assert found["certificate"]["certified"]
    assert (found["num_classes"], found["rank"]) == (365, 364)
    present = f"[name for name in {EXTRAS} if importlib.util.find_spec(name)]"
    script = f"import importlib.util, optgeom\nprint(optgeom.__file__, {present})"
    place, extras = run(binaries / "python", "-c", script, folder=tmp_path).split(maxsplit=1)
    assert place.startswith(str(tmp_path))
    assert extras.strip() == "[]"
    assert next(Path(place).parent.glob("py.typed")).is_file()
    assert run(binaries / "optgeom", "--version", folder=tmp_path).split()[-1] == wheel.name.split("-")[1]
