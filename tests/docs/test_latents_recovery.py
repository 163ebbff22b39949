"""Encoders trained on pairs of latents: recovered where diversity holds, and not where a coordinate never changes."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from helpers.scripts import DOCS, importable  # noqa: E402

from optgeom.sampling.asymptotic import asymptotic_loss, infimum, orthogonal_loss  # noqa: E402
from optgeom.sampling.conditionals import Slice, VonMisesFisher  # noqa: E402
from optgeom.training.settings import Settings  # noqa: E402

with importable(DOCS / "reproduction"):
    from latents.encoders import make_latent_encoder
    from latents.generators import make_generator
    from latents.task import LatentPairTask, train_latents

TAU = 0.3
LAWS = {
    "holds": VonMisesFisher(3, 1 / TAU),
    "theory": Slice(3, 1 / TAU, (0,), "theory"),
    "reported": Slice(3, 1 / TAU, (0,), "reported"),
}
# Linear R2 of the linear map of least asymptotic loss, by an independent quadrature (20 x 40 nodes, one parameter).
BEST_LINEAR = {"holds": 1.0, "theory": 0.9822, "reported": 0.9945}


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def train(law, kind, seed=0, rate=0.01, steps=300, batch=512, generator="identity", rho=0.0):
    g = make_generator(generator, 3)
    encoder = make_latent_encoder(kind, g, seed=seed)
    task = LatentPairTask(encoder, g, LAWS[law], temperature=TAU, rho=rho, batch=batch, seed=seed)
    how = Settings(steps=steps, learning_rate=rate, device="cpu", seed=seed, average_from=1.0, log_every=steps)
    return train_latents(task, how)


def loss_of(run, law):
    return asymptotic_loss(LAWS[law], TAU, run.task.embed, method="monte-carlo", samples=8000, references=4000)


@pytest.mark.parametrize("law", LAWS)
def test_a_linear_encoder_ends_at_the_best_linear_map(law):
    run = train(law, "matched", rate=0.1, steps=200, batch=256)
    assert run.recovery.linear_r2 == pytest.approx(BEST_LINEAR[law], abs=0.004)
    least = {"holds": 0.99, "theory": 0.97, "reported": 0.99}[law]
    assert run.recovery.linear_r2 >= least
    # In the theory and the reported convention the best linear map is no orthogonal one.
    assert (run.recovery.mean_angle_error_deg < 2) == (law == "holds")


def test_support_corrected_negatives_lose_the_fixed_axis():
    # Linear R2 of the best linear map at rho = .8, by quadrature; .9945 for InfoNCE.
    run = train("reported", "matched", rate=0.1, steps=200, batch=256, rho=0.8)
    assert run.recovery.linear_r2 == pytest.approx(0.958, abs=0.012)


def test_a_linear_encoder_inverts_a_linear_generator():
    assert train("holds", "matched", rate=0.03, steps=200, batch=128, generator="linear").recovery.linear_r2 >= 0.99


def test_batch_normalisation_recovers_or_not_with_diversity():
    # A sixth of the steps of the slow test. Which map it ends at where diversity is violated is chance (linear R2 up to
    # a third, where the fixed coordinate stays and the others are lost); that it leaves the orthogonal maps is not.
    recovered = train("holds", "batchnorm-mlp", steps=150, batch=256)
    assert recovered.recovery.linear_r2 >= 0.98
    lost = train("theory", "batchnorm-mlp", steps=150, batch=256)
    assert lost.recovery.linear_r2 <= 0.5
    value = loss_of(lost, "theory")
    assert value.value < orthogonal_loss(LAWS["theory"], TAU) - 0.25
    assert value.value > infimum(LAWS["theory"], TAU) - 4 * value.standard_error


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("law", LAWS)
def test_batch_normalisation_recovers_exactly_where_diversity_holds(law, seed):
    # The length matters where diversity is violated: of 512 pairs and 300 steps one seed in three still ended at an R2
    # of .26.
    run = train(law, "batchnorm-mlp", seed, steps=1000, batch=1024)
    value = loss_of(run, law)
    if law == "holds":
        assert run.recovery.linear_r2 >= 0.99
        assert run.recovery.mean_angle_error_deg < 5
        assert value.value == pytest.approx(orthogonal_loss(LAWS[law], TAU), abs=0.03 + 3 * value.standard_error)
    else:
        assert run.recovery.linear_r2 <= 0.1
        assert infimum(LAWS[law], TAU) - 4 * value.standard_error < value.value < infimum(LAWS[law], TAU) + 0.1


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("law", "least"), [("theory", 0.97), ("reported", 0.99)])
def test_a_matched_encoder_keeps_the_latents_for_every_seed(law, least, seed):
    assert train(law, "matched", seed, rate=0.1).recovery.linear_r2 >= least
