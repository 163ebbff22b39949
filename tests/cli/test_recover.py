"""`optgeom recover`: JSON, summary, pictures, exit codes, and odd input that must end in an answer or one line."""

from __future__ import annotations

import json

import numpy as np
import pytest
from optgeom_cli.main import app
from typer.testing import CliRunner

import optgeom as og
from optgeom.sampling.caps import Cap
from optgeom.sampling.conditionals import Slice

KEYS = {
    "diversity",
    "fixed_dimensions",
    "effective_dimension",
    "loss_identity",
    "loss_optimum_any_dimension",
    "loss_best_in_dimension",
    "corrected_gap",
    "unique",
}
SMALL = {"slices": 10, "per_slice": 6}


def pairs(law, n=500, seed=0):
    return og.Pairs.of(*law.sample_pairs(np.random.default_rng(seed), n))


def timeless(content):
    """As JSON has it, without the time that the solver took."""
    solver = {**content["solver"], "seconds": None}
    return json.loads(json.dumps({**content, "solver": solver}))


def run(*arguments):
    return CliRunner().invoke(
        app, ["recover", "--temperature", "0.3", "--slices", "10", "--per-slice", "6", *map(str, arguments)]
    )


def test_json_is_what_python_returns():
    options = (
        "--dimension",
        3,
        "--kappa",
        3,
        "--temperature",
        0.3,
        "--fixed",
        1,
        "--convention",
        "reported",
        "--rho",
        0.5,
    )
    done = run(*options, "--json")
    assert done.exit_code == 0, done.output
    assert done.stdout.count("\n") == 1
    content = json.loads(done.stdout, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
    assert set(content) >= KEYS
    expected = og.recover(latent_dim=3, kappa=3, temperature=0.3, fixed=1, convention="reported", rho=0.5, **SMALL)
    assert timeless(content) == timeless(expected.as_dict())
    assert content["diversity"] is False and content["fixed_dimensions"] == 1 and content["corrected"]["rho"] == 0.5
    assert content["loss_optimum_any_dimension"] < content["loss_best_in_dimension"] < content["loss_identity"]
    assert content["certificate"]["certified"] is True


def test_json_of_pairs(tmp_path):
    held = pairs(Slice(3, 4.0, (2,)))
    np.savez(tmp_path / "pairs.npz", z=held.z, z_plus=held.z_plus)
    done = run("--pairs", tmp_path / "pairs.npz", "--json")
    assert done.exit_code == 0, done.output
    content = json.loads(done.stdout)
    assert content["fixed_dimensions"] == 1 and content["diversity_details"]["pairs"] == 500
    low, high = content["kappa_interval"]
    assert 2 < low < content["kappa"] < high < 7
    words = " ".join(run("--pairs", tmp_path / "pairs.npz").stdout.split())
    assert f"(fitted; 95 % interval {low:.4g} to {high:.4g})" in words


def test_summary():
    words = " ".join(run("--fixed", 1).stdout.split())
    assert "violated: 1 of 3 latent directions never varies" in words
    assert "orthogonal maps beaten, by" in words and "the true latents are beaten by" in words
    assert "does not recover the latents" in words
    words = " ".join(run().stdout.split())
    assert "no map beats the true latents" in words and "the loss recovers the latents" in words
    words = " ".join(run("--kappa", 2.7, "--slices", 40, "--per-slice", 10).stdout.split())
    assert (
        "no map found beats the true latents" in words
        and "kappa times temperature is 0.81, and should be 1 (as at temperature 0.37037)" in words
    )
    assert "Dimension 2" in run("--dim", 2).stdout


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--fixed", 3), 3, "`fixed` must be below `latent_dim` 3; got 3"),
        (("--pairs", "no.npz"), 3, "`pairs` must be an .npz file with z and z_plus; cannot read no.npz"),
        (("--pairs", "no.npz", "--kappa", 2, "--fixed", 1), 2, "--kappa, --fixed and --pairs exclude each other"),
        (("--convention", "paper"), 2, "paper"),
        (("--fixed", 1, "--tolerance", 1e-15), 4, "is not certified"),
    ],
)
def test_exit_codes(options, code, message):
    done = run(*options)
    assert done.exit_code == code, done.output
    assert message in done.stderr and done.stderr.count("\n") == 1 and (done.stdout == "") == (code != 4)


def test_pairs_file_without_the_arrays(tmp_path):
    np.savez(tmp_path / "pairs.npz", a=np.eye(3))
    done = run("--pairs", tmp_path / "pairs.npz")
    assert done.exit_code == 3 and "with z and z_plus; got ['a']" in done.stderr


def test_max_angle_is_the_cap_of_python():
    done = run("--max-angle", 60, "--json")
    assert done.exit_code == 0, done.output
    expected = og.recover(conditional=Cap(3, 60.0, 1 / 0.3), temperature=0.3, **SMALL).as_dict()
    assert timeless(json.loads(done.stdout)) == timeless(expected)
    words = " ".join(run("--max-angle", 60).stdout.split())
    assert "at most 60 degrees away" in words and "with support-corrected negatives (rho 1) it does" in words
    assert (
        json.loads(CliRunner().invoke(app, ["recover", "--max-angle", "60", "--json"]).stdout)["points"]["per_slice"]
        == 200
    )


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_picture(tmp_path, suffix):
    pytest.importorskip("matplotlib")
    path = tmp_path / f"picture{suffix}"
    done = run("--fixed", 1, "--plot", path)
    assert done.exit_code == 0, done.output
    start = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[suffix]
    assert path.read_bytes().startswith(start) and "Written" in done.stdout
    assert [file.name for file in tmp_path.iterdir()] == [path.name]  # nothing temporary is left
    content = run("--fixed", 1, "--plot", path, "--json").stdout
    assert content.count("\n") == 1 and json.loads(content)["fixed_dimensions"] == 1


def test_a_failed_command_leaves_the_picture_as_it_was(tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "picture.png"
    path.write_bytes(b"before")
    assert run("--fixed", 1, "--tolerance", 1e-15, "--plot", path).exit_code == 4
    assert path.read_bytes() == b"before"


def test_coarse_points_are_told():
    assert "Note" not in run("--fixed", 1).stdout
    words = " ".join(run("--dimension", 100, "--fixed", 1).stdout.split())
    # Under the law of one fixed coordinate of 100 a positive is nearly anywhere on its slice, on six points mostly the
    # anchor.
    assert "these points are coarse for this law" in words and "0.043 under the law" in words


# --- odd input
# ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "verdict"),
    [
        (("--dimension", 2), "the loss recovers"),
        (("--dimension", 10), "the loss recovers"),
        (("--dimension", 100, "--kappa", 0.001), "does not recover"),
        (("--temperature", 0.001), "the loss recovers"),
        (("--temperature", 1000), "the loss recovers"),
        (
            ("--temperature", 0.001, "--fixed", 1),
            "does not recover",
        ),  # on the points positives are their anchors: no proof of recovery
        (("--kappa", 1e6, "--fixed", 1), "does not recover"),
        (("--kappa", 0, "--fixed", 1), "does not recover"),
        (("--dimension", 5, "--fixed", 4), "does not recover"),
        (("--dimension", 2000, "--fixed", 1), "does not recover"),
        (("--fixed", 1, "--rho", 0), "does not recover"),
        (("--fixed", 1, "--dim", 1), "does not recover"),
        (("--dim", 50), "the loss recovers"),
        (("--max-angle", 180), "the loss recovers"),
        (("--max-angle", 5), "does not recover"),
        (("--max-angle", 60, "--kappa", 0), "does not recover"),
    ],
)
def test_odd_options_get_a_certified_answer(options, verdict):
    done = run(*options, "--json")
    assert done.exit_code == 0 and done.stderr == "", done.output
    content = json.loads(done.stdout)
    assert verdict in content["verdict"] and content["certificate"]["certified"] is True
    optimum, best = content["loss_optimum_any_dimension"], content["loss_best_in_dimension"]
    assert optimum <= best + 1e-9 and optimum <= content["loss_identity"] + 1e-9


def test_three_points_do_not_decide():
    done = CliRunner().invoke(app, ["recover", "--slices", "1", "--per-slice", "3", "--json"])
    assert "so are other maps (more points may tell)" in json.loads(done.stdout)["verdict"]


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--kappa", "nan"), 3, "`kappa` must be >= 0; got nan"),
        (("--kappa", "1e300"), 3, "`kappa` must be at most 1e+06"),
        (("--temperature", "1e-6"), 3, "`temperature` must be from 0.001 to 1000"),
        (("--temperature", "1e300", "--fixed", 1), 3, "`temperature` must be from 0.001 to 1000"),
        (("--fixed", 1, "--slices", 1), 3, "`slices` must be a whole number >= 2"),
        (("--per-slice", 1), 3, "`per_slice` must be a whole number >= 2"),
        (("--slices", 1, "--per-slice", 2), 3, "`slices` times `per_slice` must be at least 3; got 2"),
        (("--rho", 2), 3, r"`rho` must be in [0, 1]"),
        (("--dim", 0), 3, "`dim` must be a whole number >= 1"),
        (("--max-angle", 0), 3, "`angle_deg` must be > 0"),
        (("--max-angle", 60, "--temperature", 0), 3, "`temperature` must be > 0"),
        (("--max-angle", 60, "--fixed", 1), 2, "--max-angle and --fixed exclude each other"),
        (("--max-angle", 60, "--slices", 150, "--per-slice", 10), 3, "must be at most 1000 without cyclic slices"),
        (("--fixed", 1, "--slices", 300, "--per-slice", 2), 3, "`slices` must be at most 160; got 300"),
        (("--resolution", 0.1), 2, "--resolution belongs to --pairs"),
        (("--dimension", 2.5), 2, "'--dimension'"),
        (("--plot", "x.gif"), 2, "--plot must end in .png, .svg, .pdf; got 'x.gif'"),
        (("--plot", "nowhere/x.png"), 3, "the folder"),
    ],
)
def test_odd_options_are_one_line(options, code, message):
    done = run(*options)
    assert done.exit_code == code, done.output
    assert message in done.stderr and done.stderr.count("\n") == 1 and done.stdout == ""


UNIT = np.random.default_rng(0).standard_normal((60, 3))
UNIT = UNIT / np.linalg.norm(UNIT, axis=1)[:, None]


@pytest.mark.parametrize(
    ("z", "z_plus", "message"),
    [
        (
            np.where(np.arange(180).reshape(60, 3) == 4, np.nan, UNIT),
            UNIT,
            "`z` must be finite; got NaN in row 1, column 1 (leave these pairs out)",
        ),
        (UNIT, 2 * UNIT, "`z_plus` must be unit vectors; got length 2 in row 0"),
        (UNIT, UNIT, "`pairs` must vary in some direction"),
        (UNIT, -UNIT, "`pairs` must be nearer than chance"),
        (UNIT[:1], UNIT[:1], "at least 20 pairs; got 1"),
        (
            np.tile(UNIT[:1], (50, 1)),
            np.tile(UNIT[1:2], (50, 1)),
            "`z` must spread over the sphere in R^3; got anchors that span 1 dimension",
        ),
        (UNIT + 0j, UNIT, "`z` must be real"),
        (UNIT, UNIT[:30], "`z_plus` must have the shape of z"),
        (UNIT[:, 0], UNIT[:, 0], "one per row; got shape (60,)"),
        (np.array([["a", "b"]] * 30), np.array([["a", "b"]] * 30), "could not convert string to float"),
        (np.array([[1, None]] * 30, dtype=object), UNIT, "cannot read"),
    ],
)
def test_broken_pairs_are_one_line(tmp_path, z, z_plus, message):
    np.savez(tmp_path / "pairs.npz", z=z, z_plus=z_plus)
    done = run("--pairs", tmp_path / "pairs.npz")
    assert done.exit_code == 3, done.output
    assert message in done.stderr and done.stderr.count("\n") == 1 and done.stdout == ""


@pytest.mark.parametrize("content", [b"hello", b"PK\x03\x04 cut", b""])
def test_what_is_no_npz_file_is_told(tmp_path, content):
    path = tmp_path / "pairs.npz"
    path.write_bytes(content)
    done = run("--pairs", path)
    assert done.exit_code == 3 and "it is not a whole .npz file" in done.stderr and done.stderr.count("\n") == 1
