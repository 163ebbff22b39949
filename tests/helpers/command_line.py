"""Run commands in this process: JSON, words without line breaks, one line on stderr."""

from __future__ import annotations

import json
from typing import Any

import pytest
from optgeom_cli.main import app
from typer.testing import CliRunner

SOLVE_KEYS = {
    "num_classes",
    "names",
    "proportions",
    "loss",
    "risk",
    "rank",
    "regime",
    "gram",
    "certificate",
    "coincident_classes",
    "near_coincident_pairs",
    "min_angle_deg",
    "solver",
}


def run(command: str, *arguments: Any) -> Any:
    """What came of a command, whatever its end."""
    return CliRunner().invoke(app, [command, *map(str, arguments)])


def shown(command: str, *arguments: Any) -> str:
    """Its stdout, as it stands."""
    done = run(command, *arguments)
    assert done.exit_code == 0, done.output
    return str(done.stdout)


def plain(text: str) -> str:
    """The text without its line breaks and paddings."""
    return " ".join(text.split())


def words(command: str, *arguments: Any) -> str:
    """Its stdout, without line breaks and paddings."""
    return plain(shown(command, *arguments))


def parsed(done: Any) -> dict[str, Any]:
    """The one JSON object of a run with `--json`, without NaN or infinity."""
    assert done.exit_code == 0, done.output
    assert done.stdout.count("\n") == 1
    return dict(json.loads(done.stdout, parse_constant=lambda name: pytest.fail(f"{name} in JSON")))


def answer(command: str, *arguments: Any) -> dict[str, Any]:
    """The JSON object of a command."""
    return parsed(run(command, *arguments, "--json"))


def refused(command: str, code: int, *arguments: Any) -> str:
    """The one line on stderr with which it ends."""
    done = run(command, *arguments)
    assert done.exit_code == code, done.output
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    return str(done.stderr.strip())
