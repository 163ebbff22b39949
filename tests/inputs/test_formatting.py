"""How user input and numbers are shown: in messages, on a terminal and in JSON."""

from __future__ import annotations

import json
import math
import sys

import numpy as np
import pytest
from helpers import command_line
from optgeom_cli import output

from optgeom.formatting import coded, excerpt, finite, first_of, to_json, visible

RED = "\x1b[31mred"
REVERSED = "gpj.\u202etxt"


def test_long_lists_and_texts_are_shortened():
    assert first_of("abc") == "a, b, c"
    assert first_of(map(str, range(9)), 3) == "0, 1, 2 and 6 more"
    assert excerpt("a" * 60) == repr("a" * 60)
    assert excerpt("a" * 61) == repr("a" * 57 + "...")


def test_numbers_in_json():
    assert [finite(x) for x in (None, np.float32(0.5), math.nan, -math.inf)] == [None, 0.5, None, None]
    content = {"a": np.array([[1, 2]]), 3: (math.inf, np.int8(4), np.bool_(False)), "b": [np.float64("nan")]}
    assert to_json(content) == {"a": [[1, 2]], "3": [None, 4, False], "b": [None]}
    json.dumps(to_json(content), allow_nan=False)


@pytest.mark.parametrize("text", ["plain", "Ærø 猫 \U0001f408", "two\nlines\tand a tab", "זברה", "\u200d"])
def test_texts_that_steer_nothing_stay(text):
    assert visible(text) == text


@pytest.mark.parametrize("text", [RED, "a\rb", "\x9b1m", REVERSED, "\u2066a\u2069", "bell\a", "\ud800"])
def test_characters_that_steer_are_replaced(text):
    assert not any(character in visible(text) for character in "\x1b\r\x9b\u202e\u2066\u2069\a\ud800")
    assert len(visible(text)) == len(text)


def test_a_byte_that_is_not_text_is_shown_by_its_code():
    """The user must see which byte of a file name it is."""
    assert coded("n\udcff.json") == r"n\udcff.json"
    assert coded("Ærø 猫\n") == "Ærø 猫\n"


def test_class_names_cannot_steer_the_terminal(tmp_path):
    counts = tmp_path / "counts.json"
    counts.write_text(json.dumps({RED: 30, REVERSED: 20, "plain": 10}))
    printed = command_line.run("solve", "--counts-file", counts)
    assert printed.exit_code == 0
    assert "\x1b" not in printed.stdout and "\u202e" not in printed.stdout
    assert "\ufffd[31mred" in printed.stdout and "plain" in printed.stdout
    # JSON is for programs: the names are as they were given, the escape code in ASCII.
    named = command_line.run("solve", "--counts-file", counts, "--json").stdout
    assert json.loads(named)["names"] == [RED, REVERSED, "plain"] and "\x1b" not in named


def test_messages_cannot_steer_the_terminal(capsys):
    output.notice(f"`labels` must not be missing; got {RED}")
    assert capsys.readouterr().err == "`labels` must not be missing; got \ufffd[31mred\n"


def test_formatting_needs_no_numpy():
    import subprocess

    code = "import sys, optgeom.formatting, optgeom.progress; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
