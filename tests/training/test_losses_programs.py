"""On features at class means, the expectation of every torch loss over all batches is the risk of its program."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from helpers.compositions import LAM, class_means, compositions, gram, views_of  # noqa: E402

import optgeom as og  # noqa: E402
from optgeom.losses import GeneralizedContrastive  # noqa: E402
from optgeom.programs.class_mean import ClassMeanProgram  # noqa: E402
from optgeom.realization.optimum import program_of  # noqa: E402
from optgeom.realization.weights import Weights  # noqa: E402
from optgeom.training.losses import (  # noqa: E402
    GeneralizedContrastiveLoss,
    HardContrastiveLoss,
    InfoNCEPsi,
    SoftSupConLoss,
    SupConLoss,
    SupportCorrectedLoss,
    WeightedInfoNCELoss,
    XCLRLoss,
    YAwareLoss,
)

CLASSES = og.ClassDistribution.from_proportions(LAM)
CLOSE = {"rel": 1e-10, "abs": 1e-12}
SEEDS = range(3)


def risk(loss, means, classes=CLASSES):
    return ClassMeanProgram.build(classes, loss, grouped=False).risk(gram(means))


def expected(loss, size, batch):
    """Ratio of the expected sum and the expected count."""
    sums = counts = 0.0
    for labels, chance in compositions(size):
        total, count = batch(loss, labels)
        sums, counts = sums + chance * total.item(), counts + chance * count.item()
    return sums / counts


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("size", "views"), [(2, 2), (4, 2), (6, 2), (3, 3), (6, 3)])
def test_supcon_with_views(seed, size, views):
    means = class_means(seed)
    mean = expected(
        SupConLoss(0.5), size, lambda loss, labels: loss.sum_and_count(views_of(means[labels], views), labels)
    )
    assert mean == pytest.approx(risk(og.SupCon(0.5, size, views), means), **CLOSE)


@pytest.mark.parametrize("singletons", ["zero", "skip"])
@pytest.mark.parametrize("size", [3, 4, 6])
@pytest.mark.parametrize("seed", SEEDS)
def test_supcon_with_one_view(seed, size, singletons):
    means = class_means(seed)
    loss = SupConLoss(0.5, singletons=singletons)
    mean = expected(loss, size, lambda loss, labels: loss.sum_and_count(means[labels], labels))
    assert mean == pytest.approx(risk(og.SupCon(0.5, size, 1, singletons), means), **CLOSE)


def test_a_mean_of_batch_means_is_a_different_number():
    # At the regular simplex .2812 against .2249; batches without any positive have no mean.
    means = torch.full((3, 3), -1 / 3, dtype=torch.float64) + torch.eye(3)
    loss = SupConLoss(0.5, singletons="skip")
    batches = [(loss.sum_and_count(means[labels], labels), chance) for labels, chance in compositions(3)]
    ratio = sum(chance * total for (total, _), chance in batches) / sum(
        chance * count for (_, count), chance in batches
    )
    with_anchors = [((total / count).item(), chance) for (total, count), chance in batches if count > 0]
    of_means = sum(value * chance for value, chance in with_anchors) / sum(chance for _, chance in with_anchors)
    assert ratio == pytest.approx(risk(og.SupCon(0.5, 3, 1, "skip"), torch.nn.functional.normalize(means)), **CLOSE)
    assert (round(float(ratio), 4), round(of_means, 4)) == (0.2812, 0.2249)


@pytest.mark.parametrize("singletons", ["zero", "skip"])
@pytest.mark.parametrize("views", [1, 2])
def test_supcon_of_the_full_batch(singletons, views):
    counts = [3, 2, 1, 1]
    means = class_means(5, 4)
    labels = torch.arange(4).repeat_interleave(torch.tensor(counts))
    loss = SupConLoss(0.5, singletons=singletons)
    # Singletons share a group of the program, so they must share a mean.
    means[3] = means[2]
    program = ClassMeanProgram.build(
        og.ClassDistribution.from_counts(counts), og.SupConFullBatch(0.5, views, singletons), grouped=False
    )
    known = gram(means)[: program.sizes.size, : program.sizes.size].copy()
    assert loss(views_of(means[labels], views), labels).item() == pytest.approx(program.risk(known), **CLOSE)


def test_supcon_tends_to_its_limit_for_large_batches():
    means = class_means(1)
    limit = risk(og.SupCon(0.5), means)
    away = []
    for size in (2000, 4000):
        # The typical batch; its counts fluctuate by sqrt(N), which costs O(1/N).
        labels = torch.arange(3).repeat_interleave(torch.tensor([round(size * p) for p in LAM]))
        away.append(SupConLoss(0.5)(views_of(means[labels], 2), labels).item() - math.log(2 * (size - 1)) - limit)
    assert abs(away[1]) < 1e-3
    assert away[0] == pytest.approx(2 * away[1], rel=0.02)


def test_base_temperature_is_a_factor():
    means = class_means(2)
    labels = torch.tensor([0, 0, 1, 2])
    plain, scaled = (
        SupConLoss(0.1, base_temperature=base)(views_of(means[labels], 2), labels) for base in (None, 0.07)
    )
    assert scaled.item() == pytest.approx(plain.item() * 0.1 / 0.07, rel=1e-14)


def negatives_enumerated(loss, means, k, law):
    """Expectation over the class of the anchor and those of k negatives."""
    total = 0.0
    for anchor, *drawn in itertools.product(range(3), repeat=k + 1):
        chance = LAM[anchor] * math.prod(law[anchor, c] for c in drawn)
        if chance > 0:
            features = views_of(means[[anchor]], 2)
            sums, count = loss.sum_and_count(features, negatives=means[drawn][None])
            assert count == 2
            total += chance * sums.item() / 2
    return total


LAWS = {"ucl": np.tile(LAM, (3, 1)), "scl": np.where(np.eye(3) > 0, 0.0, LAM[None, :] / (1 - LAM[:, None]))}


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("alpha", [0.0, 1.0, 2.5])
@pytest.mark.parametrize("sampling", ["ucl", "scl"])
@pytest.mark.parametrize("k", [1, 3])
def test_infonce_with_given_negatives(k, sampling, alpha, reduction):
    means = class_means(k)
    loss = GeneralizedContrastiveLoss(0.5, psi=InfoNCEPsi(alpha, negatives_reduction=reduction))
    program = og.InfoNCE(0.5, k, alpha, reduction, sampling)
    assert negatives_enumerated(loss, means, k, LAWS[sampling]) == pytest.approx(risk(program, means), **CLOSE)


class SquaredHinge:
    """A psi that is additive and no InfoNCE."""

    is_additive = True

    def value(self, t):
        return np.sum(np.square(np.maximum(t + 3.0, 0.0)), axis=-1)

    def derivative(self, t):
        return 2 * np.maximum(t + 3.0, 0.0)


@pytest.mark.parametrize("sampling", ["ucl", "scl"])
def test_any_psi(sampling):
    means = class_means(7)
    loss = GeneralizedContrastiveLoss(0.5, psi=lambda t: (t + 3.0).clamp_min(0.0).square().sum(-1))
    program = GeneralizedContrastive(SquaredHinge(), 0.5, 2, sampling)
    assert negatives_enumerated(loss, means, 2, LAWS[sampling]) == pytest.approx(risk(program, means), **CLOSE)


@pytest.mark.parametrize("k", [2, 5])
def test_all_negatives_of_the_batch_are_k_independent_ones(k):
    # k = N - 1 drawn without replacement are all others: nothing is left to chance.
    means = class_means(3)
    loss = GeneralizedContrastiveLoss(0.5, negatives=k)
    mean = expected(loss, k + 1, lambda loss, labels: loss.sum_and_count(views_of(means[labels], 2)))
    assert mean == pytest.approx(risk(og.InfoNCE(0.5, k), means), **CLOSE)


@pytest.mark.parametrize(("sampling", "skipped"), [("ucl", "zero"), ("scl", "skip")])
def test_one_drawn_negative(sampling, skipped):
    # The mean over the draws is the mean over the images to draw from: summed by hand, so that this is exact too.
    means = class_means(4)
    sums = counts = 0.0
    for labels, chance in compositions(4):
        for i, j in itertools.permutations(range(4), 2):
            others = [c for c in range(4) if c != i and (sampling == "ucl" or labels[c] != labels[i])]
            if j in others:
                pair = views_of(means[labels[[i]]], 2)
                total, count = GeneralizedContrastiveLoss(0.5, singletons=skipped).sum_and_count(
                    pair, negatives=means[labels[[j]]][None]
                )
                # SCL conditions on the anchor having an image of another class: weigh anchors as the program does.
                weight = chance / len(others) / (1.0 if sampling == "ucl" else 1 - LAM[labels[i]] ** 3)
                sums, counts = sums + weight * total.item(), counts + weight * count.item()
    assert counts == pytest.approx(8.0)
    assert sums / counts == pytest.approx(risk(og.InfoNCE(0.5, 1, sampling=sampling), means), **CLOSE)


class Hardest:
    """log(1 + the sum of the largest exp t), every negative present in two views."""

    is_additive = False

    def __init__(self, kept):
        self.kept = kept

    def value(self, t):
        both = np.sort(np.repeat(np.exp(t), 2, axis=-1), axis=-1)
        return np.log1p(both[..., both.shape[-1] - self.kept :].sum(axis=-1))

    def derivative(self, t):
        rank = np.argsort(np.argsort(-t, axis=-1, kind="stable"), axis=-1)
        copies = np.clip(self.kept - 2 * rank, 0, 2)
        return copies * np.exp(t) / (1 + (copies * np.exp(t)).sum(axis=-1, keepdims=True))


@pytest.mark.parametrize(("share", "kept"), [(0.1, 1), (0.3, 2), (0.5, 3), (0.9, 6), (1.0, 6)])
def test_hard_contrastive(share, kept):
    means = class_means(6)
    loss = HardContrastiveLoss(0.5, share)
    mean = expected(loss, 4, lambda loss, labels: loss.sum_and_count(views_of(means[labels], 2)))
    assert mean == pytest.approx(risk(GeneralizedContrastive(Hardest(kept), 0.5, 3), means), **CLOSE)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("views", [2, 3])
def test_support_corrected_without_correction_is_infonce(views, alpha):
    # log(alpha + V sum exp t) = log V + log(alpha/V + sum exp t).
    means = class_means(8)
    loss = SupportCorrectedLoss(0.5, rho=0.0, alpha=alpha)
    supports = torch.arange(5)
    mean = expected(loss, 5, lambda loss, labels: loss.sum_and_count(views_of(means[labels], views), supports))
    assert mean == pytest.approx(risk(og.InfoNCE(0.5, 4, alpha / views), means) + math.log(views), **CLOSE)


@pytest.mark.parametrize("rho", [0.5, 1.0])
def test_support_corrected_is_infonce_of_every_support(rho):
    # Four images in two supports, two in each: the masses are 1 - rho for the other support and 1 - rho + 3 rho for the
    # own one.
    means = class_means(9)
    supports = torch.tensor([0, 1, 1, 0])
    mask = supports[:, None] == supports[None, :]
    loss = SupportCorrectedLoss(0.5, rho=rho)
    for labels, _ in compositions(4):
        known = gram(means)[np.ix_(labels, labels)]
        mass = np.where(supports[:, None] == supports[None, :], 1 - rho + 3 * rho, 1 - rho)
        np.fill_diagonal(mass, 0.0)
        value = np.mean(np.log(2 * (mass * np.exp((known - 1) / 0.5)).sum(axis=1)))
        features = views_of(means[labels], 2)
        assert loss(features, supports).item() == pytest.approx(value, **CLOSE)
        assert loss(features, mask).item() == pytest.approx(value, **CLOSE)


def weighted_batches(loss, weights, extra, size=5):
    """Expectations over all batches of the torch loss and of the weighted program at the same Gram matrix."""
    means = class_means(10)
    ours = theirs = 0.0
    for labels, chance in compositions(size):
        total, count = loss.sum_and_count(means[labels], extra(labels))
        assert count == size
        ours += chance * total.item() / size
        scheme = weights(labels)
        first = [int(np.flatnonzero(scheme.index == g)[0]) for g in range(scheme.sizes.size)]
        known = gram(means)[np.ix_(labels[first], labels[first])]
        theirs += chance * program_of(scheme, loss.temperature).risk(known)
    return ours, theirs


@pytest.mark.parametrize("epsilon", [0.02, 0.3, 1.0])
def test_soft_supcon(epsilon):
    ours, theirs = weighted_batches(
        SoftSupConLoss(0.5, epsilon), lambda labels: Weights.soft_supcon(labels.numpy(), epsilon), lambda x: x
    )
    assert ours == pytest.approx(theirs, **CLOSE)


@pytest.mark.parametrize("paper", [False, True])
def test_y_aware(paper):
    values = torch.tensor([0.3, -1.0, 2.5], dtype=torch.float64)
    loss = YAwareLoss(0.5, 0.8, paper=paper)
    ours, theirs = weighted_batches(
        loss, lambda labels: Weights.y_aware(values[labels].numpy(), 0.8, paper), lambda x: values[x]
    )
    assert ours == pytest.approx(theirs, **CLOSE)


def test_x_clr():
    captions = torch.tensor([[1.0, 2.0], [-0.5, 0.3], [0.0, 4.0]], dtype=torch.float64)
    loss = XCLRLoss(0.5, 0.2)
    ours, theirs = weighted_batches(
        loss, lambda labels: Weights.x_clr(captions[labels].numpy(), 0.2), lambda x: captions[x]
    )
    assert ours == pytest.approx(theirs, **CLOSE)


def test_any_weights():
    table = torch.tensor([[1.0, 0.5, 0.01], [0.5, 2.0, 0.3], [0.01, 0.3, 1.0]], dtype=torch.float64)

    def matrix(labels):
        return table[labels][:, labels]

    ours, theirs = weighted_batches(
        WeightedInfoNCELoss(0.5), lambda labels: Weights.from_matrix(matrix(labels).numpy()), matrix
    )
    assert ours == pytest.approx(theirs, **CLOSE)


def test_weights_of_a_class_are_supcon():
    means = class_means(11)
    for labels, _ in compositions(5):
        weights = (labels[:, None] == labels[None, :]).double()
        for singletons in ("zero", "skip"):
            one = WeightedInfoNCELoss(0.5, singletons=singletons).sum_and_count(means[labels], weights)
            other = SupConLoss(0.5, singletons=singletons).sum_and_count(means[labels], labels)
            assert [part.item() for part in one] == pytest.approx([part.item() for part in other], **CLOSE)


def test_euclidean_latents_attain_the_entropic_bound():
    # s_ij = -|z_i - z_j|^2 / T with z = y sqrt(T/2) has exp(s) = w of the Gaussian kernel: the loss is the entropy of
    # the weights.
    labels = torch.randn(7, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    weights = Weights.y_aware(labels.numpy(), 1.0)
    rows = np.exp(weights.log_rows)
    np.fill_diagonal(rows, 0.0)
    entropy = -np.sum(rows[rows > 0] * np.log(rows[rows > 0])) / 7
    features = labels * math.sqrt(0.3 / 2) + 5.0
    assert YAwareLoss(0.3, similarity="euclidean")(features, labels).item() == pytest.approx(entropy, rel=1e-10)
