"""Coverage-guided search for options on which a command fails. By hand, since it needs atheris:

    pip install atheris
    python tests/helpers/fuzz/fuzz_cli.py -max_total_time=300        (options of libFuzzer)

What fails is printed with its options: give them to `test_fuzz_cli.py` and mend the command.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["optgeom", "optgeom_cli"]):
    import cli_harness

FOLDER = Path(tempfile.mkdtemp())
cli_harness.furnish(FOLDER)


def one_input(data: bytes) -> None:
    provider = atheris.FuzzedDataProvider(data)
    arguments = cli_harness.compose(lambda size: provider.ConsumeIntInRange(0, size - 1))
    try:
        cli_harness.attack(arguments, FOLDER)
    except BaseException:
        print("options:", *arguments)
        raise


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
