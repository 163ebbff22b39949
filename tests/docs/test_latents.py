"""Generators, their inverses and matched encoders; pairs, groups of a slice and the loss on them."""

from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from helpers.maps import Twist  # noqa: E402
from helpers.scripts import DOCS, importable  # noqa: E402

from optgeom.errors import IncompatibleError, InvalidInputError  # noqa: E402
from optgeom.sampling.asymptotic import asymptotic_loss  # noqa: E402
from optgeom.sampling.conditionals import Slice, VonMisesFisher  # noqa: E402
from optgeom.sampling.points import point_set  # noqa: E402
from optgeom.training.loop import Loop  # noqa: E402
from optgeom.training.losses import SupportCorrectedLoss  # noqa: E402
from optgeom.training.settings import Settings  # noqa: E402

with importable(DOCS / "reproduction"):
    from latents import generators
    from latents.encoders import ENCODERS, make_latent_encoder
    from latents.generators import GENERATORS, make_generator
    from latents.task import LatentPairTask, train_latents

TAU = 0.3
SLICE = Slice(3, 1 / TAU, (0,), "reported")
FULL = VonMisesFisher(3, 1 / TAU)


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def sphere(n, d, seed=0):
    rows = torch.randn(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(rows, dim=1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("d", [3, 4, 7])
@pytest.mark.parametrize("name", GENERATORS)
def test_inverses_are_exact(name, d, dtype):
    g = make_generator(name, d, seed=1)
    z = sphere(500, d).to(dtype)
    x = g(z)
    assert x.shape == (500, *g.shape) and x.dtype == dtype
    assert (g.inverse(x) - z).abs().max() <= (1e-12 if dtype == torch.float64 else 1e-5)
    assert not list(g.parameters())


@pytest.mark.parametrize("name", GENERATORS)
def test_generators_are_seeded(name):
    z = sphere(20, 3)
    assert torch.equal(make_generator(name, 3, seed=4)(z), make_generator(name, 3, seed=4)(z))
    differ = not torch.equal(make_generator(name, 3, seed=4)(z), make_generator(name, 3, seed=5)(z))
    assert differ == (name in ("linear", "invertible-mlp"))


@pytest.mark.parametrize("name", ["identity", "linear", "invertible-mlp", "spiral", "blobs"])
def test_smooth_generators_have_derivatives_of_full_rank(name):
    # An injective map may still have a singular derivative (z^3); these do not.
    g = make_generator(name, 3)
    for z in sphere(20, 3):
        derivative = torch.autograd.functional.jacobian(lambda one: g(one[None])[0].flatten(), z)
        assert torch.linalg.svdvals(derivative)[-1] > 1e-2


def test_the_condition_number_is_that_asked_for():
    g = generators.LinearGenerator(4, outputs=9, condition=5.0)
    assert torch.linalg.cond(g.matrix).item() == pytest.approx(5.0)


def test_the_spiral_is_the_twist_and_leaves_the_sphere_in_place():
    z = sphere(100, 3)
    expected = Twist(2, 2 * math.pi)(z.numpy())
    np.testing.assert_allclose(generators.Spiral(3)(z).numpy(), expected, atol=1e-12)


def test_patches_by_hand():
    # (sin a, 0, cos a) at cos a = .3 is in band 1 of 4: turned by pi/3, moved on, and again with the new last
    # coordinate.
    z = torch.tensor([[math.sqrt(0.91), 0.0, 0.3]], dtype=torch.float64)
    r = math.sqrt(0.91)
    first = [0.3, r * math.cos(math.pi / 3), r * math.sin(math.pi / 3)]  # last .826: band 3, turned by pi
    expected = [first[2], -first[0], -first[1]]
    np.testing.assert_allclose(generators.Patches(3)(z).numpy()[0], expected, atol=1e-12)


def test_blobs_by_brute_force():
    g = generators.Blobs(3, side=5, width=0.4)
    image = g(torch.tensor([[0.6, 0.0, -0.8]], dtype=torch.float64))[0, 0]
    for row in range(5):
        for column in range(10):
            u = -1 + row / 2, -1 + (column % 5) / 2
            place = (0.6, 0.0) if column < 5 else (-0.8, 0.0)
            expected = math.exp(-((u[0] - place[0]) ** 2 + (u[1] - place[1]) ** 2) / (2 * 0.16))
            assert image[row, column].item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("kind", ENCODERS)
@pytest.mark.parametrize("name", GENERATORS)
def test_encoders_take_what_generators_give(name, kind):
    g = make_generator(name, 3)
    encoder = make_latent_encoder(kind, g, seed=2)
    again = make_latent_encoder(kind, g, seed=2).state_dict()
    assert all(torch.equal(value, again[key]) for key, value in encoder.state_dict().items())
    assert encoder(g(sphere(8, 3).float())).shape == (8, 3)
    normed = any(isinstance(layer, torch.nn.BatchNorm1d) for layer in encoder.modules())
    assert normed == (kind == "batchnorm-mlp")


def test_matched_encoders_contain_the_inverse():
    z = sphere(200, 3)
    mlp = generators.InvertibleMLP(3, seed=3)
    inverse = make_latent_encoder("matched", mlp).double()
    for layer, weight in zip(inverse.layers, mlp.weights.flip(0), strict=True):
        layer.weight.data = weight.T.contiguous()
    patches = generators.Patches(3)
    back = make_latent_encoder("matched", patches).double()
    back.angles.data = -patches.angles.repeat(2, 1)
    back.out.weight.data = torch.eye(3, dtype=torch.float64)
    for g, encoder in ((mlp, inverse), (patches, back)):
        assert (encoder(g(z)) - z).abs().max() < 1e-12
    blobs = generators.Blobs(3)
    logs = blobs(z).flatten(1).log()
    fitted = torch.linalg.lstsq(
        torch.cat([logs, torch.ones(200, 1, dtype=torch.float64)], dim=1), z, driver="gelsd"
    ).solution
    assert (torch.cat([logs, torch.ones(200, 1, dtype=torch.float64)], dim=1) @ fitted - z).abs().max() < 1e-9


def test_matched_needs_the_dimension_of_the_latents_and_a_known_generator():
    with pytest.raises(IncompatibleError, match="`dim` must be that of the latents, 3"):
        make_latent_encoder("matched", make_generator("linear", 3), dim=2)
    with pytest.raises(IncompatibleError, match="got Generator"):
        make_latent_encoder("matched", generators.Generator(3))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: generators.InvertibleMLP(3, slope=0.0), "`slope` must be > 0"),
        (lambda: generators.InvertibleMLP(3, slope=1.5), "`slope` must be in"),
        (lambda: generators.LinearGenerator(3, outputs=2), "`outputs` must be"),
        (lambda: generators.LinearGenerator(3, condition=0.5), "`condition` must be"),
        (lambda: generators.Spiral(2), "`dimension` must be"),
        (lambda: make_generator("cubes", 3), "`generator` must be"),
        (lambda: task(generator=make_generator("identity", 4)), "got 4 and 3"),
        (lambda: task(rho=0.5, per_slice=5), "`per_slice` must divide `batch` = 32"),
        (lambda: task(rho=0.01, per_slice=8), "`rho` must be 0 or at least 0.2258"),
        (lambda: task(rho=1.5), "`rho` must be in"),
    ],
)
def test_parameters_that_are_refused(call, words):
    with pytest.raises(InvalidInputError, match=words):
        call()


def task(conditional=SLICE, rho=0.0, generator=None, kind="matched", batch=32, **given):
    g = make_generator("identity", 3) if generator is None else generator
    return LatentPairTask(
        make_latent_encoder(kind, g, seed=1), g, conditional, temperature=TAU, rho=rho, batch=batch, **given
    )


def test_pairs_are_those_of_the_law():
    drawn = task(batch=40_000, seed=3)
    z, z_plus = drawn.draw()
    assert np.array_equal(z[:, 0], z_plus[:, 0])
    np.testing.assert_allclose(((z - z_plus) ** 2).mean(axis=0), SLICE.mean_square_change(), atol=0.01)
    np.testing.assert_allclose((z**2).mean(axis=0), 1 / 3, atol=0.01)


def test_groups_share_a_slice_and_no_other():
    z, z_plus = task(rho=0.5, per_slice=8).draw()
    heights = z[:, 0].reshape(4, 8)
    np.testing.assert_allclose(heights, heights[:, :1].repeat(8, axis=1), atol=1e-12)
    assert len(np.unique(heights[:, 0].round(9))) == 4
    np.testing.assert_allclose(z_plus[:, 0], z[:, 0], atol=1e-12)
    alone, _ = task(rho=0.0).draw()
    assert len(np.unique(alone[:, 0])) == 32


def test_other_supports_cannot_be_corrected():
    from optgeom.sampling.caps import Cap

    cap = Cap(3, 0.5)
    task(conditional=cap)
    with pytest.raises(IncompatibleError, match="slices as supports for rho > 0"):
        task(conditional=cap, rho=0.5)


@pytest.mark.parametrize(
    ("law", "rho", "error"),
    [(FULL, 0.0, 0.02), (SLICE, 0.0, 0.02), (FULL, 0.7, 0.02), (SLICE, 0.4, 0.06), (SLICE, 1.0, 0.06)],
)
def test_the_loss_of_batches_is_the_asymptotic_one(law, rho, error):
    # Low by half the relative variance of exp(s/tau) over the number of negatives: at most 1.5/(2 * 30) where they are
    # all on a slice, of which there are 640 here (the term of a slice has a deviation of about .6).
    latent_task = task(conditional=law, rho=rho, batch=512, seed=5)
    latent_task.module.weight.data = torch.eye(3)
    terms = [latent_task.terms() for _ in range(20 if error > 0.02 else 6)]
    mean = np.mean([(one.total / one.count).item() for one in terms]) - math.log(2 * 511)
    assert mean == pytest.approx(asymptotic_loss(law, TAU, rho=rho).value, abs=error)


def test_groups_add_to_the_share_and_are_allowed_for():
    # Of 31 others 7 share the slice: a share r of corrected negatives makes r + (1 - r) 7/31 in all.
    for rho in (0.3, 0.6, 1.0):
        r = task(rho=rho, per_slice=8).loss.rho
        assert r + (1 - r) * 7 / 31 == pytest.approx(rho)
    assert task(rho=0.0, per_slice=8).loss.rho == 0.0


@pytest.mark.parametrize("rho", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("convention", ["theory", "reported"])
def test_rho_means_the_same_in_torch_and_in_the_solver(convention, rho):
    # The program contrasts a point with all points, itself included; the loss leaves the anchor's own image out. So the
    # anchor and its positive are one image, every point another one (as two equal views, hence the log 2), and only the
    # first image is an anchor. Both of its views are: the mean of their terms is that of the program, whose
    # probabilities are symmetric on slices.
    points = point_set(Slice(3, 1 / TAU, (0,), convention), 5, 4)
    program = points.program(TAU, rho)
    rows = np.random.default_rng(0).normal(size=(points.n, 4))
    h = torch.from_numpy(rows / np.linalg.norm(rows, axis=1, keepdims=True))
    loss = SupportCorrectedLoss(TAU, rho, alpha=0.0)
    np.testing.assert_allclose(points.rows, points.rows.T, atol=1e-15)
    component = torch.from_numpy(points.component)
    value = 0.0
    for i in range(points.n):
        # The masses sum to the number of rows of other images: 2 n, of which twice its component is in the support.
        for j in np.flatnonzero(points.rows[i]):
            images = torch.cat([h[[i, j]][None], h[:, None].expand(-1, 2, -1)])
            total, count = loss.sum_and_count(images, torch.cat([component[[i]], component]), anchors=slice(0, 1))
            value += points.rows[i, j] * ((total / count).item() - math.log(2)) / points.n
    gram = (h @ h.T).numpy()
    assert value == pytest.approx(program.risk(gram), abs=1e-10)


def test_resumed_runs_are_the_same_bit_for_bit(tmp_path):
    how = Settings(steps=12, learning_rate=0.01, device="cpu", log_every=4, checkpoint_every=5)

    class KilledError(Exception):
        pass

    def stop(step):
        if step == 7:
            raise KilledError

    def fresh():
        return task(rho=0.5, per_slice=8, kind="batchnorm-mlp")

    whole = train_latents(fresh(), how)
    with pytest.raises(KilledError):
        Loop(fresh(), how, folder=tmp_path, after_step=stop).run()
    resumed = train_latents(fresh(), how, folder=tmp_path, resume=True)
    assert resumed.recovery == whole.recovery
    assert resumed.loop.records == whole.loop.records
    with pytest.raises(InvalidInputError, match="rho"):
        train_latents(task(rho=1.0, per_slice=8, kind="batchnorm-mlp"), how, folder=tmp_path, resume=True)


def test_the_distance_is_zero_for_orthogonal_maps_only():
    latent_task = task()
    latent_task.module.weight.data = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(0)))[0]
    assert latent_task.distance().relative_frobenius < 1e-5
    assert latent_task.recovery(500).max_angle_error_deg < 1e-3
    latent_task.module.weight.data[0] *= 2
    assert latent_task.distance().relative_frobenius > 0.1
