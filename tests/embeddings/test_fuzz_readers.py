"""Every reader of files on damaged bytes: a consistent answer or an error of optgeom, nothing else, no unpickling."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
from helpers.fuzz import readers_harness
from helpers.fuzz.mutations import mutate
from helpers.watchdog import watched
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

TARGETS = readers_harness.targets()
ONCE_FAILED = sorted(
    (Path(__file__).parents[1] / "data" / "fuzz").iterdir()
)  # inputs on which a reader once failed: target, then a number

NUMBERS = st.integers(0, 2**16 - 1)
STEPS = st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=4)
EVERY_SEED = sorted({seed for target in TARGETS.values() for seed in target.seeds})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@pytest.mark.parametrize("name", TARGETS)
def test_the_seeds_are_read(name: str, folder: Path) -> None:
    refused = [readers_harness.attack(TARGETS[name], seed, folder) for seed in TARGETS[name].seeds]
    assert refused == [None] * len(refused)


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(seed=NUMBERS, other=NUMBERS, steps=STEPS)
def test_damaged_files(name: str, folder: Path, seed: int, other: int, steps: list[tuple[int, int, int, int]]) -> None:
    target = TARGETS[name]
    content = mutate(target.seeds[seed % len(target.seeds)], EVERY_SEED[other % len(EVERY_SEED)], steps)
    with watched(f"{name} reading {content[:200]!r}"):
        readers_harness.attack(target, content, folder)


@pytest.mark.parametrize("path", ONCE_FAILED, ids=lambda path: path.name)
def test_once_they_failed(path: Path, folder: Path) -> None:
    name = path.name.rpartition("-")[0].replace("_", " ")
    with watched(path.name):
        readers_harness.attack(TARGETS[name], path.read_bytes(), folder)


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize(
    "content", [b"", b"\0" * 100, b"\n" * 100, b"PK\x03\x04", b"\x93NUMPY\x01\x00", b"PAR1"], ids=repr
)
def test_files_that_hold_nothing(name: str, content: bytes, folder: Path) -> None:
    assert readers_harness.attack(TARGETS[name], content, folder) is not None


class Bomb:
    """Unpickling it would be seen."""

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return exec, ("raise SystemExit('unpickled')",)


@pytest.mark.parametrize("name", TARGETS)
def test_a_pickle_under_any_name(name: str, folder: Path) -> None:
    assert readers_harness.attack(TARGETS[name], pickle.dumps(Bomb()), folder) is not None
    boxed = np.empty(3, dtype=object)
    boxed[:] = [Bomb()] * 3
    for save in (np.save, np.savez):
        with (folder / "boxed").open("wb") as file:
            save(file, boxed, allow_pickle=True)
        assert readers_harness.attack(TARGETS[name], (folder / "boxed").read_bytes(), folder) is not None


def test_the_harness_notices_an_unpickling() -> None:
    with readers_harness.never_unpickling(), pytest.raises(AssertionError, match="unpickled"):
        pickle.loads(pickle.dumps(Bomb()))


def test_the_harness_notices_errors_and_warnings(folder: Path) -> None:
    def fails(path: Path) -> None:
        raise KeyError(path)

    def warns(path: Path) -> None:
        warnings.warn("odd", stacklevel=2)

    for read, error in ((fails, KeyError), (warns, UserWarning)):
        with pytest.raises(error):
            readers_harness.attack(readers_harness.Target("a", (), read), b"", folder)
