"""Torch losses with weights per class: their expectation over all batches is the risk of the program."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from helpers.compositions import LAM, class_means, compositions, gram, views_of  # noqa: E402

import optgeom as og  # noqa: E402
from optgeom.errors import IncompatibleError, InvalidInputError  # noqa: E402
from optgeom.programs.class_mean import ClassMeanProgram  # noqa: E402
from optgeom.training.losses import GeneralizedContrastiveLoss, SupConLoss  # noqa: E402

CLASSES = og.ClassDistribution.from_proportions(LAM, ["a", "b", "c"])
ANCHOR = {"a": 0.5, "b": 2.0, "c": 9.0}
TABLE = np.array([[0.5, 2.0, 1.0], [3.0, 0.7, 0.2], [1.5, 4.0, 2.5]])
CASES: dict[str, dict[str, Any]] = {
    "anchors": {"anchor_weights": ANCHOR},
    "both": {"anchor_weights": "balanced", "negative_weights": "class-average"},
    "table": {"anchor_weights": ANCHOR, "negative_weights": TABLE},
    "without own": {"own_class_in_denominator": False, "anchor_weights": ANCHOR},
    "without own, weighted": {"own_class_in_denominator": False, "negative_weights": TABLE},
    "batch-average": {"anchor_weights": "balanced", "negative_weights": "batch-average"},
    "temperatures": {"class_temperatures": {"a": 0.3, "b": 0.5, "c": 0.8}, "negative_weights": TABLE},
    "margins": {"margin": {"a": 0.3, "b": -0.2, "c": 0.7}, "negative_weights": TABLE},
    "batch-average with margins": {"negative_weights": "batch-average", "margin": {"a": 0.3, "b": -0.2, "c": 0.7}},
    "everything": {
        "class_temperatures": {"a": 0.3, "b": 0.5, "c": 0.8},
        "negative_weights": TABLE,
        "anchor_weights": ANCHOR,
        "own_class_in_denominator": False,
        "margin": {"a": 0.3, "b": -0.2, "c": 0.7},
    },
}
CLOSE = {"rel": 1e-10, "abs": 1e-12}


def risk(loss: Any, means: Any) -> float:
    return ClassMeanProgram.build(CLASSES, loss, grouped=False).risk(gram(means))


def ratio(terms: Any) -> float:
    """Expected sum over expected count."""
    sums = counts = 0.0
    for (total, count), chance in terms:
        sums, counts = sums + chance * float(total), counts + chance * float(count)
    return sums / counts


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("batch", [(4, 2, "zero"), (3, 3, "zero"), (5, 1, "zero"), (4, 1, "skip")])
def test_supcon_over_all_batches(batch: tuple[int, int, str], case: str) -> None:
    size, views, singletons = batch
    loss = og.SupCon(0.5, size, views, singletons, **CASES[case])
    means = class_means(1)
    module = loss.torch_module(classes=CLASSES)
    assert isinstance(module, SupConLoss)
    of_rows = ratio(
        (module.sum_and_count(views_of(means[labels], views), labels), chance) for labels, chance in compositions(size)
    )
    assert of_rows == pytest.approx(risk(loss, means), **CLOSE)
    batches = loss.class_batches(CLASSES, anchors=1)
    cosines = torch.from_numpy(gram(means))
    of_classes = ratio(
        (batches(cosines, views * torch.bincount(labels, minlength=3).double()), chance)
        for labels, chance in compositions(size)
    )
    assert of_classes == pytest.approx(risk(loss, means), **CLOSE)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("views", [1, 2])
def test_values_of_single_batches(views: int, case: str) -> None:
    loss = og.SupCon(0.5, 5, views, "skip", **CASES[case])
    means = class_means(2)
    module = loss.torch_module(classes=CLASSES)
    images = np.array([[3.0, 1.0, 1.0], [2.0, 3.0, 0.0], [1.0, 2.0, 2.0]])
    expected = [
        module(views_of(means[labels], views), labels).item()
        for labels in (torch.arange(3).repeat_interleave(torch.tensor(row, dtype=torch.int64)) for row in images)
    ]
    known = loss.batch_values(gram(means), images, loss.class_values(CLASSES))
    assert known == pytest.approx(np.array(expected), rel=1e-12)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("views", [1, 2])
def test_supcon_of_the_full_batch(views: int, case: str) -> None:
    classes = og.ClassDistribution.from_counts([4, 2, 3], ["a", "b", "c"])
    loss = og.SupConFullBatch(0.5, views, **CASES[case])
    means, labels = class_means(3), torch.tensor([0, 0, 0, 0, 1, 1, 2, 2, 2])
    module = loss.torch_module(classes=classes)
    program = ClassMeanProgram.build(classes, loss, grouped=False)
    assert module(views_of(means[labels], views), labels).item() == pytest.approx(program.risk(gram(means)), **CLOSE)


@pytest.mark.parametrize("case", sorted(set(CASES) - {"batch-average", "batch-average with margins"}))
@pytest.mark.parametrize(("k", "alpha"), [(1, 1.0), (2, 0.5)])
def test_infonce_over_all_negatives(k: int, alpha: float, case: str) -> None:
    loss = og.InfoNCE(0.5, k, alpha, **CASES[case])
    means = class_means(4)
    batches = loss.class_batches(CLASSES, anchors=1)
    cosines = torch.from_numpy(gram(means))
    terms = (
        (batches(cosines, torch.tensor([drawn])), math.prod(LAM[list(drawn)]))
        for drawn in itertools.product(range(3), repeat=k + 1)
    )
    assert ratio(terms) == pytest.approx(risk(loss, means), **CLOSE)


@pytest.mark.parametrize("case", sorted(set(CASES) - {"batch-average", "batch-average with margins"}))
def test_infonce_on_rows(case: str) -> None:
    # With k = N - 1 all other images are drawn: no chance is left.
    loss = og.InfoNCE(0.5, 3, **CASES[case])
    means = class_means(5)
    module = loss.torch_module(classes=CLASSES)
    assert isinstance(module, GeneralizedContrastiveLoss)
    mean = ratio(
        (module.sum_and_count(views_of(means[labels], 2), labels), chance) for labels, chance in compositions(4)
    )
    assert mean == pytest.approx(risk(loss, means), **CLOSE)


def plain_supcon(rows: Any, labels: Any, values: Any) -> Any:
    """The loss with weights, term by term."""
    terms, weights = [], []
    for i in range(len(rows)):
        own = [j for j in range(len(rows)) if j != i and labels[j] == labels[i]]
        if not own:
            continue
        t = values.temperature[labels[i]]
        s = rows @ rows[i] / t
        others = sum(
            values.negative[labels[i], labels[j]] * torch.exp(s[j])
            for j in range(len(rows))
            if j != i and (values.with_own or labels[j] != labels[i])
        )
        parts = [torch.log(others + (0.0 if values.with_own else torch.exp(s[p]))) - s[p] for p in own]
        terms.append(values.anchor[labels[i]] * sum(parts) / len(own))
        weights.append(values.anchor[labels[i]] if own else 0.0)
    return sum(terms), weights


@pytest.mark.parametrize("case", ["both", "table", "without own, weighted", "temperatures", "everything"])
def test_gradients_of_free_rows(case: str) -> None:
    labels = torch.tensor([0, 0, 1, 2, 1, 0, 2])
    rows = torch.nn.functional.normalize(
        torch.randn(7, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), dim=1
    )
    loss = og.SupCon(0.5, 7, 1, **CASES[case])
    values = loss.class_values(CLASSES)
    module = SupConLoss(0.5, normalize=False, weights=values)
    first, second = rows.clone().requires_grad_(), rows.clone().requires_grad_()
    total, count = module.sum_and_count(first, labels)
    expected, weights = plain_supcon(second, labels.tolist(), values)
    total.backward()
    expected.backward()
    assert total.item() == pytest.approx(expected.item(), rel=1e-12)
    assert count.item() == pytest.approx(sum(weights), rel=1e-12)
    assert torch.allclose(first.grad, second.grad, rtol=1e-10, atol=1e-12)
    parts = [module.sum_and_count(rows, labels, anchors=part)[0].item() for part in (slice(0, 3), slice(3, 7))]
    assert sum(parts) == pytest.approx(total.item(), rel=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_a_batch_of_one_class_has_a_gradient(case: str) -> None:
    rows = torch.randn(3, 4, requires_grad=True)
    total, _ = SupConLoss(0.5, weights=og.SupCon(0.5, 3, 1, **CASES[case]).class_values(CLASSES)).sum_and_count(
        rows, torch.tensor([0, 0, 0])
    )
    total.backward()
    assert torch.isfinite(total)
    assert rows.grad is not None
    assert torch.isfinite(rows.grad).all()


def test_weights_need_classes_and_numbers() -> None:
    with pytest.raises(IncompatibleError, match="`loss` has values per class; got a module for labels of unknown"):
        og.SupCon(0.5, 8, anchor_weights="balanced").torch_module()
    module = og.SupCon(0.5, 8, anchor_weights="balanced").torch_module(classes=CLASSES)
    with pytest.raises(InvalidInputError, match="`labels` must be whole numbers 0 to C - 1 in class order"):
        module(torch.randn(4, 2, 3))
    pairs = og.InfoNCE(0.5, 2, anchor_weights="balanced").torch_module(classes=CLASSES)
    with pytest.raises(InvalidInputError, match="`negatives` must be drawn from the batch for weights per class"):
        pairs(torch.randn(4, 2, 3), torch.tensor([0, 1, 2, 0]), negatives=torch.randn(4, 2, 3))
    temperatures = og.SupCon(0.5, 8, **CASES["temperatures"]).class_values(CLASSES)
    with pytest.raises(InvalidInputError, match="`base_temperature` needs one temperature for all classes"):
        SupConLoss(0.5, base_temperature=0.07, weights=temperatures)


def angles(gram_matrix: np.ndarray) -> np.ndarray:
    return np.asarray(np.degrees(np.arccos(np.clip(gram_matrix[np.triu_indices(3, 1)], -1, 1))))


@pytest.mark.parametrize("case", ["both", "batch-average with margins", "temperatures"])
def test_exact_training_ends_at_the_optimum(case: str) -> None:
    from optgeom.training.population import train_population

    loss = og.SupCon(0.5, 16, **CASES[case])
    geometry = og.solve(CLASSES, loss)
    run = train_population(CLASSES, loss)
    assert angles(run.gram) == pytest.approx(angles(np.array(geometry.gram)), abs=1e-3)


@pytest.mark.parametrize("case", ["both", "batch-average", "margins"])
def test_training_on_batches_ends_at_the_weighted_optimum(case: str) -> None:
    from optgeom.training.features import train_features
    from optgeom.training.settings import Settings

    loss = og.SupCon(0.5, 32, **CASES[case])
    geometry, plain = og.solve(CLASSES, loss), og.solve(CLASSES, og.SupCon(0.5, 32))
    assert np.abs(angles(np.array(geometry.gram)) - angles(np.array(plain.gram))).max() > 10
    run = train_features(CLASSES, loss, settings=Settings(steps=2000, learning_rate=0.03))
    assert np.abs(angles(run.gram) - angles(np.array(geometry.gram))).max() < 3


@pytest.mark.parametrize("case", ["anchors", "temperatures"])
def test_encoders_train_with_weights_by_name(case: str) -> None:
    from optgeom.training.data import LabelledData
    from optgeom.training.encoder import train_encoder
    from optgeom.training.settings import Settings

    rng = np.random.default_rng(0)
    counts = {"c": 300, "a": 100, "b": 30}  # not in the order of the classes
    inputs = [
        4 * np.eye(10)[place] + 0.3 * rng.normal(size=(number, 10)) for place, number in enumerate(counts.values())
    ]
    labels = np.repeat(list(counts), list(counts.values()))
    data = LabelledData.from_arrays(np.concatenate(inputs), labels)
    loss = og.SupCon(0.5, 64, **CASES[case])
    run = train_encoder(data, loss, settings=Settings(steps=300, learning_rate=2e-3))
    assert run.geometry.names == ("a", "b", "c")
    assert np.abs(angles(run.gram) - angles(np.array(run.geometry.gram))).max() < 3
    plain = og.solve(run.geometry.classes, og.SupCon(0.5, 64))
    assert np.abs(angles(run.gram) - angles(np.array(plain.gram))).max() > 4
