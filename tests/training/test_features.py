"""Free class means end at the solver's optimum, on the exact objective and on random batches, and collapse with it."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import optgeom as og

torch = pytest.importorskip("torch")

from optgeom.training.class_batches import InfoNCEBatches, SupConBatches  # noqa: E402
from optgeom.training.features import train_features  # noqa: E402
from optgeom.training.losses import SupConLoss  # noqa: E402
from optgeom.training.population import PopulationRisk, train_population  # noqa: E402
from optgeom.training.settings import Settings  # noqa: E402
from optgeom.training.task import GramDistance  # noqa: E402

THREE = og.ClassDistribution.from_profile("exp:3:100")
TEN = og.ClassDistribution.from_profile("exp:10:100")


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def losses(temperature):
    return {
        "ucl": og.InfoNCE(temperature, 8, sampling="ucl"),
        "scl": og.InfoNCE(temperature, 8, sampling="scl"),
        "supcon": og.SupCon(temperature, 256, 2),
        "supcon limit": og.SupCon(temperature),
    }


@pytest.mark.parametrize("name", ["ucl", "scl", "supcon", "supcon limit"])
@pytest.mark.parametrize("classes", [THREE, TEN], ids=["C=3", "C=10"])
@pytest.mark.parametrize("temperature", [0.5, 0.1])
def test_exact_objective_ends_at_the_optimum(temperature, classes, name):
    run = train_features(classes, losses(temperature)[name])
    assert run.distance.class_r2 >= 0.99999
    assert run.distance.max_angle_error_deg <= 0.05
    assert abs(run.risk - run.geometry.risk) <= 1e-12
    assert run.records[0]["step"] == 0 and run.records[-1]["loss"] == run.risk


@pytest.mark.parametrize(("majority", "low", "high"), [(0.80, -1.0, 0.97), (0.82, 0.99, 1.0), (0.9, 0.99, 1.0)])
def test_minorities_collapse_exactly_where_predicted(majority, low, high):
    classes = og.ClassDistribution.from_proportions([majority, (1 - majority) / 2, (1 - majority) / 2])
    run = train_population(classes, og.InfoNCE(1.0, 1))
    assert low <= run.gram[1, 2] <= high + 1e-12
    # The SupCon limit has its threshold at .924.
    assert train_population(classes, og.SupCon(1.0)).gram[1, 2] < 0.97


def check_sampled(classes, loss):
    settings = Settings(steps=15000, learning_rate=0.03, log_every=5000)
    run = train_features(classes, loss, settings=settings)
    assert run.distance.class_r2 >= 0.999
    assert run.distance.max_angle_error_deg <= 1.0
    assert run.loop.averaged == 7500


@pytest.mark.parametrize("loss", [og.SupCon(0.5, 256, 2), og.InfoNCE(0.5, 1)], ids=["supcon", "ucl"])
def test_random_batches_end_at_the_optimum(loss):
    check_sampled(THREE, loss)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ucl", "scl", "supcon"])
@pytest.mark.parametrize("classes", [THREE, TEN], ids=["C=3", "C=10"])
def test_random_batches_end_at_the_optimum_of_every_loss(classes, name):
    check_sampled(classes, losses(0.5)[name])


@pytest.mark.slow
@pytest.mark.parametrize(("majority", "low", "high"), [(0.80, -1.0, 0.97), (0.9, 0.99, 1.0)])
def test_minorities_collapse_on_random_batches_too(majority, low, high):
    classes = og.ClassDistribution.from_proportions([majority, (1 - majority) / 2, (1 - majority) / 2])
    settings = Settings(steps=15000, learning_rate=0.03, log_every=5000)
    run = train_features(classes, og.InfoNCE(1.0, 1), settings=settings)
    assert low <= run.gram[1, 2] <= high


def means(number, dim=4, seed=0):
    return torch.nn.functional.normalize(
        torch.randn(number, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)), dim=1
    )


@pytest.mark.parametrize(
    "loss", [og.SupCon(0.3, 12, 2), og.InfoNCE(0.3, 3, sampling="scl"), og.SupConFullBatch(0.3)], ids=str
)
def test_gradient_of_the_population_risk(loss):
    classes = og.ClassDistribution.from_counts([7, 4, 3, 2])
    objective = PopulationRisk(classes, loss)
    free = (2.0 * means(4)).requires_grad_(True)
    assert torch.autograd.gradcheck(objective, (free,))
    unit = means(4)
    assert objective(free).item() == pytest.approx(objective(unit).item(), rel=1e-14)


def test_full_batch_with_several_singletons():
    classes = og.ClassDistribution.from_counts([3, 2, 1, 1])
    run = train_features(classes, og.SupConFullBatch(0.5))
    assert run.risk == pytest.approx(0.393997886069, abs=1e-11)
    assert run.gram[2, 3] == 1.0 and run.means.shape == (4, 4)
    assert run.gram[0, 1] == pytest.approx(-0.711786, abs=1e-6)


@pytest.mark.parametrize("views", [1, 2, 3])
@pytest.mark.parametrize("singletons", ["zero", "skip"])
def test_supcon_of_class_counts_is_supcon_of_rows(views, singletons):
    classes = og.ClassDistribution.from_proportions([0.7, 0.2, 0.1])
    batches = SupConBatches(classes, og.SupCon(0.4, 6, views, singletons))
    rows_loss = SupConLoss(0.4, singletons=singletons)
    generator = torch.Generator().manual_seed(3)
    unit = means(3)
    for _ in range(30):
        rows = batches.draw(generator)
        assert rows.sum() == 6 * views
        labels = torch.repeat_interleave(torch.arange(3), rows.long())
        expected = rows_loss.sum_and_count(unit[labels], labels)
        leaf = unit.clone().requires_grad_(True)
        total, count = batches(leaf @ leaf.T, rows)
        assert total.item() == pytest.approx(expected[0].item(), abs=1e-11) and count.item() == expected[1].item()
        total.backward()
        assert torch.isfinite(leaf.grad).all()


def test_supcon_batches_average_to_the_risk():
    classes = og.ClassDistribution.from_proportions([0.6, 0.3, 0.1])
    loss = og.SupCon(0.5, 5, 2)
    batches = SupConBatches(classes, loss)
    unit = means(3)
    expected = 0.0
    for composition in itertools.product(range(3), repeat=5):
        rows = 2.0 * torch.bincount(torch.tensor(composition), minlength=3).double()
        weight = math.prod(classes.proportions[c] for c in composition)
        total, count = batches(unit @ unit.T, rows)
        expected += weight * (total / count).item()
    assert PopulationRisk(classes, loss)(unit).item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("sampling", ["ucl", "scl"])
def test_infonce_batches_follow_the_law(sampling):
    classes = og.ClassDistribution.from_proportions([0.6, 0.3, 0.1])
    loss = og.InfoNCE(0.5, 2, 1.0, "mean", sampling)
    batches = InfoNCEBatches(classes, loss, 200_000)
    drawn = batches.draw(torch.Generator().manual_seed(0))
    share = np.bincount(drawn[:, 0].numpy(), minlength=3) / 200_000
    np.testing.assert_allclose(share, classes.proportions, atol=5 * 0.5 / math.sqrt(200_000))
    if sampling == "scl":
        assert not (drawn[:, :1] == drawn[:, 1:]).any()
    unit = means(3)
    total, count = batches(unit @ unit.T, drawn)
    risk = PopulationRisk(classes, loss)(unit).item()
    assert (total / count).item() == pytest.approx(risk, abs=0.01)


def test_infinite_batches_are_refused():
    with pytest.raises(
        og.IncompatibleError, match=r"`loss` must be SupCon with a finite batch size or InfoNCE.*exact objective"
    ):
        og.SupCon(0.5).class_batches(THREE, anchors=10)
    with pytest.raises(og.IncompatibleError, match="finitely many negatives"):
        train_features(THREE, og.InfoNCE(0.5, math.inf, negatives_reduction="mean"), settings=Settings(steps=1))


def test_wrong_arguments():
    with pytest.raises(og.InvalidInputError, match="`classes` must be a ClassDistribution; got list"):
        train_population([1, 2], og.SupCon())
    with pytest.raises(og.InvalidInputError, match="`classes` must be a ClassDistribution; got int"):
        train_features(3, og.SupCon())
    with pytest.raises(og.InvalidInputError, match="`loss` must be a loss; got str"):
        train_features(THREE, "supcon")
    with pytest.raises(og.InvalidInputError, match="`iterations` must be a whole number >= 1"):
        train_population(THREE, og.SupCon(), iterations=0)
    with pytest.raises(og.InvalidInputError, match="`resume` goes with runs on random batches"):
        train_features(THREE, og.SupCon(), resume=True)


def test_distance():
    gram = np.array([[1, 0.5, 0], [0.5, 1, -0.5], [0, -0.5, 1]])
    best = np.array([[1, 0.0, 0], [0.0, 1, -0.5], [0, -0.5, 1]])
    distance = GramDistance.between(gram, best)
    assert distance.max_angle_error_deg == pytest.approx(30.0)
    assert distance.class_r2 == pytest.approx(1 - 0.25 / (1 / 6))
    assert distance.relative_frobenius == pytest.approx(1.0)
    assert distance.angles_deg == pytest.approx((60.0, 90.0, 120.0))
    gram[:, 2] = gram[2, :] = np.nan
    partly = GramDistance.between(gram, best)
    assert partly.max_angle_error_deg == pytest.approx(30.0) and partly.angles_deg[1] is None
    assert (distance.num_pairs, distance.all_pairs, distance.without_direction) == (3, 3, ())
    assert (partly.num_pairs, partly.all_pairs, partly.without_direction) == (1, 3, (2,))
    assert GramDistance.between(np.full((2, 2), np.nan), np.eye(2)).as_dict()["max_angle_error_deg"] is None
    simplex = np.full((3, 3), -0.5) + 1.5 * np.eye(3)
    assert GramDistance.between(simplex, simplex).class_r2 is None
    close = simplex + 0.01 * np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]])  # cosines of standard deviation 0.01 sqrt(2)/3
    assert GramDistance.between(simplex, close).class_r2_weak and not distance.class_r2_weak
    assert GramDistance.between(np.eye(13), np.eye(13)).angles_deg is None
