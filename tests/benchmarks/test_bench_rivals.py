"""The rivals of the benchmarks solve the same programs."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from helpers.scripts import BENCHMARKS, importable

with importable(BENCHMARKS):
    import _rivals
    import bench_scaling
    import bench_training
    import bench_validate
    from _harness import OURS

SIMPLEX = np.full((3, 3), -0.5) + 1.5 * np.eye(3)


def solved(who: str, program: _rivals.RowsProgram) -> _rivals.Answer:
    if who == "pymanopt":
        pytest.importorskip("pymanopt", reason="the `bench` extra has it")
        return _rivals.oblique(program)
    if who == "SCS" and importlib.util.find_spec("scs") is None:
        pytest.skip("scs comes with the extra `bench`")
    return _rivals.conic(program, who)


@pytest.mark.parametrize("who", ["CLARABEL", "SCS", "pymanopt"])
@pytest.mark.parametrize("make", [_rivals.supcon_limit, _rivals.scl_limit])
def test_class_means_in_closed_form(who, make):
    # Balanced classes: the simplex, at every temperature; C = 2: antipodes.
    assert np.max(np.abs(solved(who, make(np.full(3, 1 / 3), 0.5)).gram - SIMPLEX)) < 1e-3
    assert solved(who, make(np.array([0.6, 0.4]), 1.0)).gram[0, 1] == pytest.approx(
        -1, abs=2e-3 if who == "pymanopt" else 1e-3
    )


def test_values_are_the_losses_in_their_own_words():
    p, tau = np.array([0.5, 0.3, 0.2]), 0.4
    gram = np.array([[1, -0.2, 0.1], [-0.2, 1, 0.3], [0.1, 0.3, 1]])
    limit = sum(p[i] * np.log(sum(p[j] * np.exp((gram[i, j] - 1) / tau) for j in range(3))) for i in range(3))
    assert _rivals.supcon_limit(p, tau).value(gram) == pytest.approx(limit, rel=1e-13)
    others = sum(
        p[i] * np.log(sum(p[j] / (1 - p[i]) * np.exp((gram[i, j] - 1) / tau) for j in range(3) if j != i))
        for i in range(3)
    )
    assert _rivals.scl_limit(p, tau).value(gram) == pytest.approx(others, rel=1e-13)
    w = np.array([[9, 2, 1], [2, 9, 0.5], [1, 0.5, 9]])
    weighted = 0.0
    for i in range(3):
        rest = [j for j in range(3) if j != i]
        norm = np.log(sum(np.exp(gram[i, j] / tau) for j in rest))
        weighted -= sum(w[i, j] / sum(w[i, k] for k in rest) * (gram[i, j] / tau - norm) for j in rest) / 3
    assert _rivals.weighted_infonce(w, tau, 3).value(gram) == pytest.approx(weighted, rel=1e-13)


# Made once with Clarabel at tight tolerances, to 1e-10.
@pytest.mark.parametrize(("dim", "tau", "loss"), [(1, 0.5, 3.5437936865), (3, 0.5, 3.1425744352)])
def test_weighted_losses_known_to_ten_digits(dim, tau, loss):
    pytest.importorskip("pymanopt", reason="the `bench` extra has it")
    program = _rivals.y_aware(np.random.default_rng(0).normal(size=(40, dim)), tau)
    assert program.value(_rivals.oblique(program).gram) == pytest.approx(loss, abs=1e-6)


def test_both_ways_to_write_a_conic_program_agree():
    program = _rivals.y_aware(np.random.default_rng(0).normal(size=(8, 3)), 0.5)
    first, second = (way(program, "CLARABEL") for way in (_rivals.conic, _rivals.conic_by_rows))
    assert first.status == second.status == "optimal"
    assert program.value(first.gram) == pytest.approx(program.value(second.gram), abs=1e-6)


def test_scaling_recovers_distances_and_spheres():
    pytest.importorskip("sklearn")
    y = np.random.default_rng(1).normal(size=(15, 3))
    y /= np.linalg.norm(y, axis=1, keepdims=True)
    distances = np.linalg.norm(y[:, None] - y[None], axis=-1)
    points, stress, _ = _rivals.smacof(distances, 3)
    assert stress < 1e-20
    assert np.max(np.abs(_rivals.on_sphere(points + 5.0) @ _rivals.on_sphere(points + 5.0).T - y @ y.T)) < 1e-9


def test_scaling_is_judged_by_distances_and_loss():
    problem = bench_scaling.euclidean(10)
    right, wrong = problem.distances, 1.1 * np.random.default_rng(0).normal(size=(10, 3))
    assert np.allclose(-2.0 * np.log(problem.weights), right**2)
    row, _ = bench_scaling.judged(lambda **told: told, problem, (wrong, ""))
    assert row["difference"] == pytest.approx(0.1) and row["gap"] > 1e-3 and not row["certified"]
    chords = bench_scaling.spherical(10).distances
    assert 0 < chords.max() <= 2 and np.all(np.diag(chords) == 0)


def test_a_first_pass_and_a_sum_read_every_row(tmp_path):
    path = bench_validate.make_file(tmp_path, 300, 3)
    table = np.load(path).astype(np.float64)
    np.testing.assert_allclose(bench_validate.chunked_sum(path), table.sum(axis=0))
    unit = table / np.linalg.norm(table, axis=1, keepdims=True)
    np.testing.assert_allclose(bench_validate.first_pass(path).sums.sum(axis=0), unit.sum(axis=0))


def test_the_losses_in_torch_agree():
    pytest.importorskip("torch")
    pytest.importorskip("pytorch_metric_learning", reason="the `bench` extra has it")
    assert bench_training.difference(bench_training.TINY, "cpu") < bench_training.AGREEMENT
    features, labels = bench_training.batch(64, 8, 4, "cpu", True)
    ours = bench_training.step(bench_training.loss_of(OURS), features, labels).item()
    unit = features.detach().numpy() / np.linalg.norm(features.detach().numpy(), axis=1, keepdims=True)
    similar, codes = unit @ unit.T / 0.1, labels.numpy()
    np.fill_diagonal(similar, -np.inf)
    logs = similar - np.log(np.exp(similar).sum(axis=1, keepdims=True))
    by_hand = -np.mean([np.mean([logs[i, j] for j in range(64) if j != i and codes[j] == codes[i]]) for i in range(64)])
    assert ours == pytest.approx(by_hand, rel=1e-10)
