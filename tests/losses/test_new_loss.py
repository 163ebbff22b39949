"""A loss is one file: a toy loss, registered at run time, goes through everything; no room asks which loss it has."""

from __future__ import annotations

import ast
import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers import toy_loss

import optgeom as og
from optgeom.losses import Loss, registry
from optgeom.losses.base import DescribedLoss

ROOT = Path(og.__file__).parent.parent
COUNTS = [60, 30, 10]
KINDS = ("SupCon", "SupConFullBatch", "InfoNCE", "GeneralizedContrastive", "DescribedLoss", "ToyLoss")


@pytest.fixture(autouse=True)
def registered():
    before = dict(registry._ENTRIES)
    toy_loss.register()
    yield
    registry._ENTRIES.clear()
    registry._ENTRIES.update(before)


def classes():
    return og.ClassDistribution.from_counts(COUNTS)


def toy(temperature=0.5, boost=0.5):
    return toy_loss.ToyLoss(temperature, boost)


def test_it_is_solved_and_certified():
    geometry = og.solve(classes(), toy())
    assert geometry.certificate.certified and geometry.rank == 2
    # Two classes are opposite: F = sum lam_i log(lam_i + e^(boost - 2/tau) lam_j).
    two = og.solve(og.ClassDistribution.from_counts([3, 1]), toy())
    away = math.exp(0.5 - 2 / 0.5)
    assert two.risk == pytest.approx(
        0.75 * math.log(0.75 + away * 0.25) + 0.25 * math.log(0.25 + away * 0.75), rel=1e-12
    )
    assert og.solve(classes(), toy(boost=0.0)).risk == pytest.approx(
        og.solve(classes(), og.SupCon(0.5)).risk, rel=1e-12
    )


def test_its_geometry_is_saved_and_loaded(tmp_path):
    geometry = og.solve(classes(), toy())
    geometry.save(tmp_path / "toy.npz")
    again = og.Geometry.load(tmp_path / "toy.npz")
    assert again.loss.to_dict() == {"name": "toy", "temperature": 0.5, "boost": 0.5} == geometry.loss.to_dict()
    assert again.certificate.certified
    assert isinstance(Loss.from_dict(geometry.loss.to_dict()), toy_loss.ToyLoss)


def test_it_has_words_a_threshold_values_and_sensitivities():
    assert toy().words() == "Toy, temperature 0.5, boost 0.5" and toy().label() == "Toy"
    assert og.collapse_threshold(toy(boost=0.0)).odds == pytest.approx(
        og.collapse_threshold(og.SupCon(0.5)).odds, rel=1e-9
    )
    values = og.loss_values(classes(), toy())
    lam = np.array(COUNTS) / 100
    assert values.collapsed_value == pytest.approx(lam @ np.log(lam + math.exp(0.5) * (1 - lam)), rel=1e-12)
    step = 1e-4
    moved = [og.solve(classes(), toy(boost=0.5 + sign * step)).risk for sign in (1, -1)]
    slope = og.sensitivity(classes(), toy(), to="boost").risk
    assert slope == pytest.approx((moved[0] - moved[1]) / (2 * step), rel=1e-6)


def test_it_is_designed_and_scanned(tmp_path):
    wanted = og.solve(classes(), toy(boost=2.0)).min_angle_deg
    answer = og.design(classes(), toy(), "temperature", min_angle=80.0)
    assert answer.value is not None and answer.geometry.min_angle_deg >= 80 - 1e-9
    table = og.scan(classes(), toy(), axes={"boost": [0.0, 2.0]}, out=tmp_path / "toy.csv")
    assert table.column("boost").tolist() == [0.0, 2.0] and table.rows[1]["min_angle_deg"] == wanted
    assert og.scan(classes(), toy(), axes={"boost": [0.0, 2.0]}, out=tmp_path / "toy.csv").new == 0


def test_it_has_excess_risk_in_validate():
    geometry = og.solve(classes(), toy())
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(3), COUNTS)
    rows = geometry.prototypes(4)[labels] + 0.1 * rng.standard_normal((100, 4))
    report = og.validate(rows / np.linalg.norm(rows, axis=1, keepdims=True), labels.astype(str), geometry)
    excess = report.excess_risk
    assert excess.reason is None and abs(excess.direction) < 0.01 and excess.within > 0


def test_your_own_psi_has_excess_risk_in_validate():
    class Steep:
        is_additive = True

        def value(self, t):
            return np.exp(t).sum(axis=-1)

        def derivative(self, t):
            return np.exp(t)

    geometry = og.solve(classes(), og.GeneralizedContrastive(Steep(), 0.5, negatives=3, name="steep"))
    labels = np.repeat(np.arange(3), COUNTS)
    rows = geometry.prototypes(4)[labels]
    report = og.validate(rows, labels.astype(str), geometry)
    assert report.excess_risk.reason is None
    assert report.excess_risk.total == pytest.approx(0.0, abs=1e-6), "rows at the optimum have its risk"


def test_names_are_taken_once():
    class Other(toy_loss.ToyLoss):
        name = "supcon"

    with pytest.raises(og.InvalidInputError, match="`name` of a loss must be new; got 'supcon', which is taken"):
        registry.register(Other, summary="another")


COMMANDS = {
    "solve": ["--counts", "60,30,10", "--loss", "toy", "--boost", "2", "--temperature", ".5"],
    "threshold": ["--loss", "toy", "--temperature", ".5"],
    "loss": ["--counts", "60,30,10", "--loss", "toy", "--temperature", ".5"],
    "design": ["--counts", "60,30,10", "--loss", "toy", "--parameter", "boost", "--min-angle", "60"],
    "scan": ["--majority", ".5,.6", "--num-classes", "3", "--boost", "0:2:3", "--temperature", ".5"],
    "solve --help": [],
}


@pytest.fixture(scope="module")
def printed():
    """What every command prints in an interpreter that registers the loss first."""
    code = (
        "import json; from helpers import toy_loss; toy_loss.register(); from optgeom_cli.main import app\n"
        "from typer.testing import CliRunner\n"
        f"runs = {{name: CliRunner().invoke(app, [*name.split(), *given]) for name, given in {COMMANDS!r}.items()}}\n"
        "print(json.dumps({name: [int(run.exit_code), run.output] for name, run in runs.items()}))"
    )
    paths = ":".join(path for path in [str(ROOT), str(ROOT / "cli"), str(ROOT / "tests"), *sys.path] if path)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": paths})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_it(command, printed):
    code, output = printed[command]
    assert code == 0, output
    expected = {
        "solve": "Toy, temperature 0.5, boost 2",
        "scan": "collapsed",
        "solve --help": "toy: added to the logits",
    }
    assert expected.get(command, "") in " ".join(output.split())


# --------------------------------------------------------------------------------------------------------------------
# nobody outside the losses asks which loss it is


def sources():
    for folder in ("optgeom", "cli"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith(("optgeom/losses/", "optgeom/training/losses/")):
                yield name, ast.parse(path.read_text(encoding="utf-8"))


def names_in(node):
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)} | {
        part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)
    }


def texts_in(node):
    parts = node.elts if isinstance(node, (ast.Tuple, ast.List, ast.Set)) else [node]
    return {part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)}


def asks_for_a_class(node):
    called = (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("isinstance", "issubclass")
    )
    if called:
        return bool(names_in(node.args[1]) & set(KINDS))
    compared = isinstance(node, ast.Compare) and any(
        isinstance(part, ast.Call) for part in (node.left, *node.comparators)
    )
    return (
        compared
        and any("type" in names_in(part) for part in (node.left, *node.comparators))
        and bool(names_in(node) & set(KINDS))
    )


def asks_for_a_name(node):
    known = set(registry._ENTRIES)
    if isinstance(node, ast.Compare):
        return any(texts_in(part) & known for part in (node.left, *node.comparators))
    if isinstance(node, ast.Dict):
        return any(texts_in(key) & known for key in node.keys if key is not None)
    return isinstance(node, ast.MatchValue) and bool(texts_in(node.value) & known)


def test_no_room_asks_which_loss_it_has():
    classes_asked = [
        f"{name}:{node.lineno}" for name, tree in sources() for node in ast.walk(tree) if asks_for_a_class(node)
    ]
    assert classes_asked == []
    # Soft weights have a scheme that is called "supcon", too: they are weights, not losses.
    names_asked = [
        f"{name}:{node.lineno}"
        for name, tree in sources()
        for node in ast.walk(tree)
        if asks_for_a_name(node) and not name.startswith("optgeom/realization/")
    ]
    assert names_asked == []


def test_the_count_counts():
    asking = (
        "isinstance(loss, (SupCon, InfoNCE)); type(x) is InfoNCE; loss.name == 'supcon'; {'infonce': "
        "1}[n]; n in ('supcon',)"
    )
    nodes = list(ast.walk(ast.parse(asking)))
    assert sum(map(asks_for_a_class, nodes)) == 2 and sum(map(asks_for_a_name, nodes)) == 3
    assert issubclass(DescribedLoss, Loss)
