"""Gradients of the torch losses, float32 and autocast, and that blocks and parts of a batch change nothing."""

from __future__ import annotations

import copy
import math

import pytest

torch = pytest.importorskip("torch")

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
    rows,
)

LABELS = torch.tensor([0, 0, 2, 1, 2, 0, 7])  # class 1 and class 7 are singletons


def numbers(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)


def weights(size=7):
    matrix = numbers(size, size, seed=9).abs()
    matrix[3] = 0.0  # a row without a positive
    return matrix


# Every loss: how it is made at a temperature, its other arguments, and whether features have views.
LOSSES = {
    "supcon": (lambda t: SupConLoss(t), (LABELS,), 1),
    "supcon-skip": (lambda t: SupConLoss(t, base_temperature=0.07, singletons="skip"), (LABELS,), 1),
    "supcon-views": (lambda t: SupConLoss(t), (LABELS,), 2),
    "simclr": (lambda t: SupConLoss(t), (), 2),
    "soft": (lambda t: SoftSupConLoss(t, 0.1), (LABELS,), 1),
    "weighted": (lambda t: WeightedInfoNCELoss(t), (weights(),), 1),
    "weighted-skip": (lambda t: WeightedInfoNCELoss(t, singletons="skip"), (weights(),), 1),
    "weighted-euclidean": (lambda t: WeightedInfoNCELoss(t, similarity="euclidean"), (weights(),), 1),
    "y-aware": (lambda t: YAwareLoss(t, 0.7), (numbers(7, seed=3),), 1),
    "y-aware-euclidean": (lambda t: YAwareLoss(t, 0.7, similarity="euclidean"), (numbers(7, 2, seed=3),), 1),
    "x-clr": (lambda t: XCLRLoss(t, 0.3), (numbers(7, 4, seed=3),), 1),
    "infonce": (lambda t: GeneralizedContrastiveLoss(t, 3), (), 2),
    "infonce-scl": (
        lambda t: GeneralizedContrastiveLoss(
            t, 3, psi=InfoNCEPsi(0.0, negatives_reduction="mean"), sampling="scl", seed=4
        ),
        (LABELS,),
        3,
    ),
    "hard": (lambda t: HardContrastiveLoss(t, 0.3), (), 2),
    "hard-labels": (lambda t: HardContrastiveLoss(t, 0.5), (LABELS,), 3),
    "support": (lambda t: SupportCorrectedLoss(t, 1.0), (LABELS,), 2),
    "support-mixed": (lambda t: SupportCorrectedLoss(t, 0.4, alpha=1.0, singletons="skip"), (LABELS,), 3),
}
SMOOTH = [name for name in LOSSES if not name.startswith("hard")]


def features_of(name, dim=3, seed=0, dtype=torch.float64):
    views = LOSSES[name][2]
    return numbers(7, dim, seed=seed, dtype=dtype) if views == 1 else numbers(7, views, dim, seed=seed, dtype=dtype)


def make(name, temperature=0.5):
    maker, extra, _ = LOSSES[name]
    return maker(temperature), extra


def called(name, features, temperature=0.5, **options):
    loss, extra = make(name, temperature)  # made anew, so that draws repeat
    return loss(features, *extra, **options)


@pytest.mark.parametrize("name", LOSSES)
def test_gradients(name):
    assert torch.autograd.gradcheck(lambda z: called(name, z), features_of(name).requires_grad_(), atol=1e-7)


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_of_sums_of_a_part_of_the_anchors(name):
    def total(z):
        loss, extra = make(name)
        return loss.sum_and_count(z, *extra, anchors=slice(2, 5))[0]

    assert torch.autograd.gradcheck(total, features_of(name).requires_grad_(), atol=1e-7)


@pytest.mark.parametrize("name", SMOOTH)
def test_gradients_at_identical_rows_and_ties(name):
    together = features_of(name)
    together[:4] = together[0].clone()
    assert torch.autograd.gradcheck(lambda z: called(name, z), together.requires_grad_(), atol=1e-7)
    alike = torch.ones_like(together).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: called(name, z), alike, atol=1e-7)


@pytest.mark.parametrize("name", [name for name in LOSSES if name.startswith("hard")])
def test_hard_negatives_at_ties_give_a_subgradient(name):
    # The loss has a kink there: directional derivatives lie on both sides of the gradient.
    alike = torch.ones_like(features_of(name)).requires_grad_()
    value = called(name, alike)
    (gradient,) = torch.autograd.grad(value, alike)
    assert torch.isfinite(gradient).all()
    step = 1e-6 * numbers(*alike.shape, seed=5)
    forwards, backwards = (called(name, (alike + sign * step).detach()) - value for sign in (1.0, -1.0))
    # Not convex in the features, so only up to second order.
    assert -backwards - 1e-9 <= (gradient * step).sum() <= forwards + 1e-9


@pytest.mark.parametrize("name", LOSSES)
def test_blocks_change_nothing(name, monkeypatch):
    at_once, in_blocks = (features_of(name).requires_grad_() for _ in range(2))
    first = called(name, at_once)
    first.backward()
    monkeypatch.setattr(rows, "ENTRIES", 2 * 7)
    second = called(name, in_blocks)
    second.backward()
    assert second.item() == pytest.approx(first.item(), rel=1e-13)
    torch.testing.assert_close(in_blocks.grad, at_once.grad, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", LOSSES)
def test_parts_of_the_anchors_add_up(name):
    # What two devices do: each has the gathered features and takes the terms of its own images.
    whole, halves = (features_of(name).requires_grad_() for _ in range(2))
    loss, extra = make(name)
    total, count = loss.sum_and_count(whole, *extra)
    (total / count).backward()
    parts = []
    for part in (slice(0, 3), slice(3, None)):
        loss, extra = make(name)
        parts.append(loss.sum_and_count(halves, *extra, anchors=part))
    assert sum(number for _, number in parts) == count
    (sum(value for value, _ in parts) / count).backward()
    assert sum(value.item() for value, _ in parts) == pytest.approx(total.item(), rel=1e-12)
    torch.testing.assert_close(halves.grad, whole.grad, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("temperature", [0.1, 0.01, 0.001])
def test_float32_is_finite_and_close_at_small_temperatures(name, temperature):
    # Case 8. A cosine has an error of about 1e-7, hence the loss one of about 1e-7 / T.
    exact, narrow = (
        features_of(name, dim=16).requires_grad_(),
        features_of(name, dim=16, dtype=torch.float32).requires_grad_(),
    )
    true, value = called(name, exact, temperature), called(name, narrow, temperature)
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(true.item(), rel=1e-6, abs=4e-7 / temperature)
    true.backward()
    value.backward()
    assert torch.isfinite(narrow.grad).all()
    # An error of s of 1e-7 / T is a relative one of the softmax weights, and the gradient is theirs over T.
    torch.testing.assert_close(narrow.grad.double(), exact.grad, rtol=1e-3, atol=4e-7 / temperature**2)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_half_precision_is_float32_of_the_rounded_features(name, half):
    rounded = features_of(name, dim=16).to(half)
    wide, narrow = rounded.float().requires_grad_(), rounded.clone().requires_grad_()
    true = called(name, wide, 0.05)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = called(name, narrow, 0.05)
    value.backward()
    true.backward()
    assert value.dtype == torch.float32 and value.item() == true.item()
    torch.testing.assert_close(narrow.grad, wide.grad.to(half), rtol=0, atol=0)


def test_autocast_of_a_network_before_the_loss():
    network = torch.nn.Linear(5, 16)
    images = numbers(7, 5, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        features = network(images)
        assert features.dtype == torch.bfloat16
        value = SupConLoss(0.1)(features, LABELS)
    assert value.item() == SupConLoss(0.1)(features.float(), LABELS).item()
    value.backward()
    assert torch.isfinite(network.weight.grad).all()


def test_equal_to_the_formula_of_the_paper():
    z = torch.nn.functional.normalize(numbers(7, 4, seed=2), dim=1)
    terms = []
    for i in range(7):
        others = [j for j in range(7) if j != i]
        positives = [j for j in others if LABELS[j] == LABELS[i]]
        if positives:
            total = math.log(sum(math.exp(z[i] @ z[j] / 0.3) for j in others))
            terms.append(sum(total - (z[i] @ z[p]).item() / 0.3 for p in positives) / len(positives))
    assert SupConLoss(0.3, singletons="skip")(z, LABELS).item() == pytest.approx(sum(terms) / len(terms), rel=1e-13)
    assert SupConLoss(0.3)(z, LABELS).item() == pytest.approx(sum(terms) / 7, rel=1e-13)


def test_equal_to_pytorch_metric_learning():
    peer = pytest.importorskip("pytorch_metric_learning.losses", reason="the `bench` extra has it").SupConLoss(
        temperature=0.1
    )
    first, second = (numbers(64, 8, seed=1).requires_grad_() for _ in range(2))
    labels = torch.randint(0, 20, (64,), generator=torch.Generator().manual_seed(0))
    ours, theirs = SupConLoss(0.1, singletons="skip")(first, labels), peer(second, labels)
    ours.backward()
    theirs.backward()
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-12)
    torch.testing.assert_close(first.grad, second.grad, rtol=1e-10, atol=1e-13)


def test_euclidean_distances_far_from_the_origin():
    near = numbers(7, 3, dtype=torch.float32)
    loss, labels = YAwareLoss(0.5, 0.7, similarity="euclidean"), numbers(7, seed=3)
    assert loss(near + 300.0, labels).item() == pytest.approx(loss(near, labels).item(), rel=1e-3)


def test_soft_targets_take_gradients_of_neither_weights_nor_labels():
    given = weights().requires_grad_()
    WeightedInfoNCELoss(0.5)(features_of("weighted").requires_grad_(), given).backward()
    assert given.grad is None


def test_draws_go_on_where_a_saved_run_stopped():
    features = features_of("infonce")
    loss = GeneralizedContrastiveLoss(0.5, 3, seed=11)
    loss(features)
    resumed, copied = GeneralizedContrastiveLoss(0.5, 3, seed=5), copy.deepcopy(loss)
    resumed.load_state_dict(loss.state_dict())
    following = [loss(features).item() for _ in range(3)]
    assert [resumed(features).item() for _ in range(3)] == following
    assert [copied(features).item() for _ in range(3)] == following
    assert len(set(following)) == 3


def test_memory_between_forward_and_backward_is_that_of_the_rows():
    sizes = []

    def pack(tensor):
        sizes.append(tensor.numel())
        return tensor

    features, labels = numbers(600, 4).requires_grad_(), torch.arange(600) % 9
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        for loss, extra in [
            (SupConLoss(0.5), labels),
            (YAwareLoss(0.5), labels.double()),
            (XCLRLoss(0.5), features.detach()),
        ]:
            loss(features, extra)
    assert max(sizes) <= 600 * 4


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", LOSSES)
def test_nothing_waits_for_the_device(name):
    loss, extra = make(name)
    features = features_of(name, dtype=torch.float32)
    on_cpu = features.clone().requires_grad_()
    on_device, extra_there = features.cuda().requires_grad_(), [part.cuda() for part in extra]
    loss(on_device, *extra_there).backward()  # allocations and kernels of the first call
    torch.cuda.set_sync_debug_mode("error")
    try:
        on_device.grad = None
        loss, _ = make(name)
        value = loss(on_device, *extra_there)
        value.backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    if not name.startswith("infonce"):  # other draws
        true = called(name, on_cpu)
        true.backward()
        assert value.item() == pytest.approx(true.item(), rel=1e-5)
        torch.testing.assert_close(on_device.grad.cpu(), on_cpu.grad, rtol=1e-4, atol=1e-5)
