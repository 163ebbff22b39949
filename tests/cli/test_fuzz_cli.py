"""Random options for every command, and options that once failed.

Each ends in a known exit code, one JSON object or a table, or one line of error.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.command_line import refused, words
from helpers.fuzz import cli_harness
from helpers.watchdog import watched
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import optgeom as og


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("cli")
    cli_harness.furnish(made)
    return made


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(numbers=st.lists(st.integers(0, 2**16 - 1), min_size=13, max_size=13))
def test_any_options(folder: Path, numbers: list[int]) -> None:
    left = iter(numbers)
    arguments = cli_harness.compose(lambda size: next(left) % size, cli_harness.COMMANDS)
    with watched(" ".join(arguments)):
        cli_harness.attack(arguments, folder)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(numbers=st.lists(st.integers(0, 2**16 - 1), min_size=13, max_size=13))
def test_any_options_of_searches_and_trainings(folder: Path, numbers: list[int]) -> None:
    pytest.importorskip("torch")
    left = iter(numbers)
    arguments = cli_harness.compose(lambda size: next(left) % size, cli_harness.RUNS)
    with watched(" ".join(arguments)):
        cli_harness.attack(arguments, folder)


@pytest.mark.parametrize("command", [*cli_harness.COMMANDS, *cli_harness.RUNS])
def test_options_are_found(command: str) -> None:
    names = [option.name for option in cli_harness.OPTIONS[command]]
    assert "--json" in names and len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("code", "command", "options", "message"),
    [
        (3, "threshold", ["--split", "1,1e-320"], "`split` must have no share below 1e-150 of the largest"),
        (2, "scan", ["--majority", "0:1:1000000000"], "number: 1 to 1000000"),
        (
            3,
            "scan",
            ["--majority", "0.1:.9:100000", "--temperature", "1:2:1000"],
            "at most 10000000 cells; got 100000000",
        ),
        (
            3,
            "scan",
            ["--imbalance", "0.5"],
            "`imbalance` must be >= 1; got 0.5 (most over least frequent class; 1 is balanced)",
        ),
        (
            3,
            "solve",
            ["--profile", "exp:100000000000:10"],
            "C must be a whole number >= 2; got '100000000000' (at most 10000000)",
        ),
        (
            3,
            "solve",
            ["--counts", "9,5,1", "--loss", "supcon", "--views", "9" * 400],
            "`views` must be a whole number >= 1; got a whole",
        ),
        (
            3,
            "threshold",
            ["--minorities", "9" * 400],
            "`minorities` must be a whole number >= 2; got a whole number of more than",
        ),
        (3, "threshold", ["--minorities", "9" * 100, "--batch-size", "16"], "`minorities` must be at most 2^53"),
        (3, "solve", ["--proportions", "1e308,1e308"], "`proportions` must sum to 1; got a sum of inf"),
        (
            3,
            "scan",
            ["--majority", ".5,.9", "--dask", "x"],
            "`dask` must be the address of a scheduler, as tcp://host:8786; got 'x'",
        ),
        (3, "recover", ["--max-angle", "60", "--kappa", "1e300"], "`kappa` must be at most 1e+06; got 1e+300"),
        (3, "recover", ["--dimension", "9" * 20], "`latent_dim` must be at most 10000; got 99999999999999999999"),
        (3, "recover", ["--dimension", "9" * 20, "--fixed", "9" * 19], "`latent_dim` must be at most 10000"),
        (3, "realize", ["--labels", "y.npy", "--plot", "no/o.png"], "the folder no does not exist (make it first)"),
    ],
)
def test_once_they_failed(
    code: int, command: str, options: list[str], message: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    assert message in refused(command, code, *options)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (r'{"a\ud800": 5, "b": 3}', r"got half of one, '\ud800'"),
        ("[" + "9" * 5000 + ", 1]", "the JSON cannot be read: Exceeds the limit"),
    ],
)
def test_json_that_cannot_be_used(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "n.json").write_text(text)
    assert message in refused("solve", 3, "--counts-file", tmp_path / "n.json")


def test_a_name_of_a_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "n\udcff.json"  # as Python shows a byte that is not UTF-8
    try:
        path.write_text('{"a": 5, "b": 3}')
    except (OSError, UnicodeError):
        pytest.skip("the file system has names of text only")
    assert r"n\udcff." in words("solve", "--counts-file", path).replace(" ", "")  # a line may end within the name


def test_a_seed_of_any_size(folder: Path) -> None:
    assert cli_harness.attack(["validate", "--embeddings", "x.npz", "--seed", "9" * 30, "--json"], folder) == 0


def test_a_split_whose_sum_overflows_or_vanishes() -> None:
    loss = og.SupCon(0.5, 16)
    even = og.collapse_threshold(loss, minorities=2).log_odds
    assert og.collapse_threshold(loss, split=[1e308, 1e308]).log_odds == pytest.approx(even, abs=1e-12)
    # One negative, and the positive left out: A lam = 0 has a solution until the majority outweighs all others
    # together.
    assert og.collapse_threshold(og.InfoNCE(1, 1, 0.0), split=[1, 1e-100]).log_odds == pytest.approx(0, abs=1e-8)


def test_no_proof_of_a_recovery_and_its_result(folder: Path) -> None:
    options = ["recover", "--slices", "6", "--per-slice", "3", "--max-angle", "60", "--tolerance", "1e-300"]
    assert cli_harness.attack([*options, "--json"], folder) == 4
    assert cli_harness.attack([*options, "--plot", "o.svg"], folder) == 4 and not (folder / "o.svg").exists()


def test_a_temperature_whose_square_overflows(folder: Path) -> None:
    assert cli_harness.attack(["solve", "--proportions", ".5,.3,.2", "--temperature", "1e300", "--json"], folder) in (
        0,
        4,
    )
