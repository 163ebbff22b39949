"""Words between which arguments and options choose, each set once for Python and the command line.

This module imports nothing heavy, so that the help of the command line can be built from it.
"""

from __future__ import annotations

from typing import Literal

Solver = Literal["auto", "newton", "low-rank", "cutting-planes", "conic"]

Scheme = Literal["supcon", "soft-supcon", "y-aware", "x-clr"]
Similarity = Literal["cosine", "euclidean"]
# Added to Euclidean dissimilarities until they are distances: to their squares, or to themselves.
AdditiveConstant = Literal["lingoes", "cailliez"]

# Which dimensions of the latents kappa is about, where positives share some of them.
Convention = Literal["theory", "reported"]

# How classes of embeddings find those of a geometry.
Match = Literal["names", "hungarian"]

Architecture = Literal["mlp", "cnn", "resnet18"]
Optimizer = Literal["adam", "sgd"]
Precision = Literal["off", "bf16", "fp16"]

# How class sizes fall in a scan, and what the colours of its phase diagram mean.
Shape = Literal["majority", "exp", "step", "zipf"]
Colour = Literal["regime", "rank"]

# What stands in the denominator of a loss on pairs.
PairForm = Literal["simclr", "clip", "mnrl"]

# What a prescription changes so that a wanted geometry becomes the optimum.
Prescribed = Literal["both", "negative-weights", "margins", "temperatures", "anchor-weights"]
