"""Cases from practice, draws of negatives, and what the torch losses refuse."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from optgeom.errors import InvalidInputError  # noqa: E402
from optgeom.training.losses import (  # noqa: E402
    ContrastiveLoss,
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
from optgeom.training.losses.generalized import draw_others  # noqa: E402
from optgeom.training.losses.rows import class_codes  # noqa: E402


def alike(*shape):
    return torch.ones(*shape)


@pytest.mark.parametrize(
    ("features", "labels", "options", "value"),
    [
        (alike(8, 3), [0, 0, 0, 0, 1, 1, 1, 1], {}, 1.945910),  # case 1
        (alike(16, 3), [1] * 16, {}, 2.708050),  # case 2
        (alike(16, 3), [0] * 8 + [1] * 8, {}, 2.708050),
        (alike(64, 2, 3), None, {"temperature": 0.1, "base_temperature": 0.07}, 6.920267),  # case 3
        (alike(128, 2, 3), None, {"temperature": 0.1}, 5.541264),  # case 4
        (alike(4, 3), [0, 1, 1, 3], {"singletons": "skip"}, 1.098612),  # case 6
        (alike(4, 3), [0, 1, 1, 3], {"singletons": "zero"}, 0.549306),
    ],
)
def test_values_of_collapsed_features(features, labels, options, value):
    labels = None if labels is None else torch.tensor(labels)
    assert SupConLoss(**options)(features.double(), labels).item() == pytest.approx(value, abs=1e-6)


def simplex(size):
    return torch.nn.functional.normalize(torch.eye(size, dtype=torch.float64) - 1 / size, dim=1)


def test_floors():
    pairs = simplex(128)[:, None].expand(-1, 2, -1)
    assert SupConLoss(0.1)(pairs).item() == pytest.approx(0.010602, abs=1e-6)  # case 4
    labels = torch.arange(6).repeat_interleave(20)
    assert SupConLoss(0.1)(simplex(6)[labels], labels).item() == pytest.approx(2.944471, abs=1e-6)  # case 5


@pytest.mark.parametrize(("singletons", "anchors"), [("skip", 0), ("zero", 4)])
def test_a_batch_without_any_positive_is_zero_with_a_graph(singletons, anchors):
    # Case 7: no error, which would end a training run; the count says that there was nothing.
    features = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    for loss, extra in [
        (SupConLoss(singletons=singletons), torch.arange(4)),
        (WeightedInfoNCELoss(singletons=singletons), torch.eye(4)),
    ]:
        total, count = loss.sum_and_count(features, extra)
        assert (total.item(), count.item()) == (0.0, anchors)
        features.grad = None
        loss(features, extra).backward()
        assert torch.equal(features.grad, torch.zeros(4, 3))


@pytest.mark.parametrize("singletons", ["skip", "zero"])
def test_one_row_alone(singletons):
    one = torch.randn(1, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    losses = [
        (SupConLoss(0.1, singletons=singletons), torch.tensor([0])),
        (SoftSupConLoss(), torch.tensor([0])),
        (YAwareLoss(), alike(1)),
    ]
    for loss, extra in [*losses, (XCLRLoss(), alike(1, 2)), (WeightedInfoNCELoss(singletons=singletons), alike(1, 1))]:
        one.grad = None
        value = loss(one, extra)
        value.backward()
        assert value.item() == 0 and torch.equal(one.grad, torch.zeros(1, 3))


@pytest.mark.parametrize("singletons", ["skip", "zero"])
def test_no_negative_anywhere(singletons):
    features = torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    labels = torch.zeros(3, dtype=torch.long)
    hard, drawn = (
        HardContrastiveLoss(singletons=singletons),
        GeneralizedContrastiveLoss(sampling="scl", singletons=singletons),
    )
    for loss, extra in [
        (hard, labels),
        (drawn, labels),
        (SupportCorrectedLoss(singletons=singletons), torch.arange(3)),
    ]:
        total, count = loss.sum_and_count(features, extra)
        assert total.item() == 0 and count.item() == (0 if singletons == "skip" else 6)
        features.grad = None
        total.backward()
        assert torch.equal(features.grad, torch.zeros_like(features))


def test_zero_rows_and_zero_label_vectors_are_finite():
    features = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    features[2] = 0
    features.requires_grad_()
    XCLRLoss(0.1)(features, features.detach()).backward()
    assert torch.isfinite(features.grad).all()


def test_no_anchor_asked_for():
    features = torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(0))
    for loss, extra in [(SupConLoss(), ()), (SupportCorrectedLoss(), (torch.zeros(3),)), (HardContrastiveLoss(), ())]:
        total, count = loss.sum_and_count(features, *extra, anchors=slice(1, 1))
        assert (total.item(), count.item()) == (0.0, 0.0)


def test_features_of_any_length_count_only_by_direction():
    features = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1, 0, 1, 2, 2])
    longer = features * torch.arange(1, 7)[:, None]
    assert SupConLoss()(longer, labels).item() == pytest.approx(SupConLoss()(features, labels).item(), rel=1e-6)
    assert SupConLoss(normalize=False)(longer, labels).item() != pytest.approx(
        SupConLoss()(features, labels).item(), rel=1e-2
    )


def test_codes_of_any_labels():
    labels = torch.tensor([7, -1, 10**12, 7, -1, 3])
    codes = class_codes(labels)
    assert torch.equal(codes[:, None] == codes[None, :], labels[:, None] == labels[None, :])
    assert set(codes.tolist()) <= set(range(6))


def test_drawn_images_are_distinct_others_and_equally_frequent():
    generator = torch.Generator().manual_seed(0)
    tally = torch.zeros(6, 6)
    for _ in range(3000):
        chosen, available = draw_others(6, 3, None, generator)
        assert torch.equal(available, torch.full((6,), 5))
        assert all(len(set(row)) == 3 and i not in row for i, row in enumerate(chosen.tolist()))
        tally.scatter_add_(1, chosen, torch.ones(6, 3))
    # Each of five others comes in 3/5 of the draws: five standard deviations of a share are .045.
    assert torch.allclose(tally / 3000, 0.6 * (1 - torch.eye(6)), atol=0.045)


def test_drawn_images_are_of_other_classes_and_repeat_where_they_are_too_few():
    codes = torch.tensor([0, 0, 0, 0, 1, 2])
    chosen, available = draw_others(6, 3, codes, torch.Generator().manual_seed(0))
    assert available.tolist() == [2, 2, 2, 2, 5, 5]
    for i, row in enumerate(chosen.tolist()):
        assert all(codes[j] != codes[i] for j in row) and len(set(row)) == min(3, available[i])


def test_hard_negatives_round_as_written():
    assert HardContrastiveLoss(share=0.07)._kept(100) == 7
    assert HardContrastiveLoss(share=0.071)._kept(100) == 8


def test_masses_of_every_mixing_ratio_sum_to_the_number_of_negatives():
    # At collapsed features the loss is the log of the masses.
    for rho in (0.0, 0.3, 1.0):
        loss = SupportCorrectedLoss(0.1, rho)
        assert loss(alike(6, 2, 3), torch.tensor([0, 0, 1, 1, 1, 0])).item() == pytest.approx(math.log(10), abs=1e-6)


def test_losses_say_what_they_are():
    text = repr(
        torch.nn.ModuleList(
            [SupConLoss(), SoftSupConLoss(), YAwareLoss(), XCLRLoss(), HardContrastiveLoss(), InfoNCEPsi()]
        )
    )
    assert "SupConLoss(temperature=0.1, singletons='zero', normalize=True)" in text and "InfoNCEPsi(alpha=1.0" in text
    assert "bandwidth=1.0" in text and "label_temperature=0.1" in text and "share=0.1" in text and "epsilon=0.1" in text


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SupConLoss(0.0), r"`temperature` must be > 0; got 0.0"),
        (lambda: SupConLoss(base_temperature=-1), r"`base_temperature` must be > 0; got -1"),
        (lambda: SupConLoss(singletons="drop"), r"`singletons` must be one of zero, skip; got 'drop'"),
        (lambda: SoftSupConLoss(epsilon=0), r"`epsilon` must be > 0; got 0 .*SupConLoss"),
        (lambda: SoftSupConLoss(epsilon=2), r"`epsilon` must be in \(0, 1\]; got 2"),
        (lambda: WeightedInfoNCELoss(similarity="dot"), r"`similarity` must be one of cosine, euclidean; got 'dot'"),
        (lambda: YAwareLoss(bandwidth=0), r"`bandwidth` must be > 0; got 0"),
        (lambda: XCLRLoss(label_temperature=0), r"`label_temperature` must be > 0; got 0"),
        (lambda: HardContrastiveLoss(share=1.5), r"`share` must be in \(0, 1\]; got 1.5"),
        (lambda: SupportCorrectedLoss(rho=1.5), r"`rho` must be in \[0, 1\]; got 1.5"),
        (lambda: SupportCorrectedLoss(alpha=-1), r"`alpha` must be >= 0; got -1"),
        (lambda: GeneralizedContrastiveLoss(negatives=0), r"`negatives` must be a whole number >= 1; got 0"),
        (lambda: GeneralizedContrastiveLoss(sampling="hard"), r"`sampling` must be one of ucl, scl; got 'hard'"),
        (lambda: InfoNCEPsi(negatives_reduction="max"), r"`negatives_reduction` must be one of sum, mean"),
        (
            lambda: SupConLoss()([[1.0]], torch.tensor([0])),
            r"`features` must be a floating tensor of shape \(N, V, d\) or \(B, d\); got list",
        ),
        (
            lambda: SupConLoss()(torch.ones(3, 2, dtype=torch.long), torch.arange(3)),
            r"`features` must be a floating tensor .*torch.int64",
        ),
        (
            lambda: SupConLoss()(alike(3), torch.arange(3)),
            r"`features` must have shape \(N, V, d\) or \(B, d\); got \(3,\)",
        ),
        (lambda: SupConLoss()(alike(3, 2)), r"`labels` must be given for features of one view"),
        (
            lambda: SupConLoss()(alike(3, 2), [0, 1, 1]),
            r"`labels` must be a tensor of shape \(3,\); got list \(use torch.as_tensor\)",
        ),
        (
            lambda: SupConLoss()(alike(2, 3), torch.tensor([[1, 0, 1], [0, 1, 1]])),
            r"`labels` must have shape \(2,\).*\(2, 3\).*argmax",
        ),
        (
            lambda: SupConLoss()(alike(3, 2), torch.arange(3), anchors=slice(0, 3, 2)),
            r"`anchors` must be a slice of consecutive samples",
        ),
        (
            lambda: WeightedInfoNCELoss()(alike(3, 2), alike(2, 2)),
            r"`weights` must be a tensor of shape \(3, 3\).*\(2, 2\)",
        ),
        (
            lambda: YAwareLoss()(alike(3, 2), alike(2)),
            r"`labels` must be a tensor of shape \(3,\) or \(3, p\).*got \(2,\)",
        ),
        (
            lambda: HardContrastiveLoss()(alike(3, 2)),
            r"`features` must have shape \(N, V, d\) with V >= 2 views; got \(3, 2\) \(stack",
        ),
        (
            lambda: SupportCorrectedLoss()(alike(3, 2, 4), alike(3, 3)),
            r"`supports` must be labels \(3,\) or a boolean mask \(3, 3\); got",
        ),
        (
            lambda: GeneralizedContrastiveLoss(negatives=3)(alike(3, 2, 4)),
            r"`negatives` must be at most N - 1 = 2 for 3 images",
        ),
        (
            lambda: GeneralizedContrastiveLoss(sampling="scl")(alike(3, 2, 4)),
            r"`labels` must be given to draw negatives from other classes",
        ),
        (
            lambda: GeneralizedContrastiveLoss()(alike(3, 2, 4), negatives=alike(3, 4)),
            r"`negatives` must have shape \(3, k, 4\)",
        ),
    ],
)
def test_refused(make, message):
    with pytest.raises(InvalidInputError, match=message):
        make()


def test_a_loss_of_ones_own():
    class Pull(ContrastiveLoss):
        def __init__(self):
            super().__init__(0.1, "zero", True)

        def sum_and_count(self, features):
            terms = self._rows(features).sum(dim=1)
            return self._total(terms, torch.ones_like(terms) > 0)

    assert Pull()(alike(4, 1)).item() == 1.0
    with pytest.raises(NotImplementedError):
        ContrastiveLoss(0.1, "zero", True)(alike(4, 1))
