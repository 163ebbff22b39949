"""Coverage-guided search for bytes on which a reader fails. By hand, since it needs atheris:

    pip install atheris
    python tests/helpers/fuzz/fuzz_readers.py corpus -max_total_time=300

`corpus` is a folder of inputs, made with the seeds; options are those of libFuzzer.

The first byte of an input chooses the reader. An input that fails is written to ``crash-...`` in the current folder:
give its bytes without the first to ``tests/data/fuzz/<reader>-<number>`` and mend the reader.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["optgeom", "optgeom_cli"]):
    import readers_harness

TARGETS = readers_harness.targets()
NAMES = sorted(TARGETS)
FOLDER = Path(tempfile.mkdtemp())


def one_input(data: bytes) -> None:
    if data:
        readers_harness.attack(TARGETS[NAMES[data[0] % len(NAMES)]], data[1:], FOLDER)


def plant(corpus: Path) -> None:
    corpus.mkdir(exist_ok=True)
    for number, name in enumerate(NAMES):
        for index, seed in enumerate(TARGETS[name].seeds):
            (corpus / f"seed-{number}-{index}").write_bytes(bytes([number]) + seed)


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        plant(Path(sys.argv[1]))
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
