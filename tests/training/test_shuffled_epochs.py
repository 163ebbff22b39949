"""The docs on shuffled epochs: their formula against a count of all batches, their table against a new run."""

from __future__ import annotations

import itertools
import math

import pytest
from helpers import scripts

torch = pytest.importorskip("torch")

from helpers.compositions import class_means  # noqa: E402

from optgeom.training.losses import SupConLoss  # noqa: E402


@pytest.fixture(scope="module")
def script():
    return scripts.script("shuffled_epochs")


@pytest.mark.parametrize("temperature", [0.5, 0.1])
@pytest.mark.parametrize(("counts", "size"), [((5, 3, 2), 4), ((7, 4, 1), 6), ((3, 3, 3), 2)])
def test_every_batch_counted_out(script, counts, size, temperature):
    means = class_means(0)
    loss = SupConLoss(temperature)
    total = 0.0
    for drawn in itertools.product(*(range(number + 1) for number in counts)):
        if sum(drawn) == size:
            ways = math.prod(math.comb(number, taken) for number, taken in zip(counts, drawn, strict=True))
            labels = torch.arange(3).repeat_interleave(torch.tensor(drawn))
            total += ways * loss(means[labels][:, None].expand(-1, 2, -1), labels).item()
    gram = (means @ means.T).fill_diagonal_(1.0)
    value = script.shuffled_risk(gram, counts, size, temperature).item()
    assert value == pytest.approx(total / math.comb(sum(counts), size), rel=1e-11)


def test_the_page_holds_the_figures(script):
    page = (scripts.DOCS / "losses-in-torch.md").read_text(encoding="utf-8")
    header, rule, *rows = script.lines(["digits"])
    assert f"{header}\n{rule}\n" in page
    for row in rows:
        assert row in page
