"""Settings shared by all tests."""

from __future__ import annotations

import pytest
from helpers import shapes
from helpers.rooms import RoomTimes
from hypothesis import settings

shapes.install()

# The same examples on every run and machine: a red test must be red again when it is looked into.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.load_profile("ci")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rooms", action="store_true", help="print what the tests of each room took, beside its budget")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--rooms"):
        config.pluginmanager.register(RoomTimes(), "rooms")
