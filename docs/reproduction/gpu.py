"""The experiments with encoders at the scale of ResNet-18, where there is a CUDA device."""

from __future__ import annotations

import digits
import temperature
import torch
from experiment import Results

import optgeom as og
from optgeom.errors import OptGeomError
from optgeom.training.data import load_data, make_long_tailed

SETTINGS = {
    "device": "cuda",
    "root": "data",
    "profile": "cifar10-lt:100",
    "digits": {
        "arch": "resnet18",
        "data": "cifar10",
        "temperatures": [0.5, 1.0, 0.1],
        "batch": 256,
        "steps": 10000,
        "seeds": [0],
    },
    "temperature": {
        "arch": "resnet18",
        "data": "cifar10",
        "dim": 128,
        "batch": 256,
        "steps": 5000,
        "seeds": [0],
        "measured": 4096,
    },
}
# For a machine without CUDA: the same path through ResNet-18, some steps of it.
QUICK = {
    "device": "cpu",
    "digits": {"arch": "resnet18", "counts": [12, 6, 3], "temperatures": [0.5], "batch": 4, "steps": 1, "seeds": [0]},
    "temperature": {"arch": "resnet18", "temperatures": [0.1], "batch": 4, "steps": 1, "seeds": [0], "measured": 40},
}


def run(settings: Results) -> Results:
    if settings["device"] == "cuda" and not torch.cuda.is_available():
        return {"device": None}
    shared = {"device": settings["device"], "root": settings["root"]}
    shapes = {**digits.SETTINGS, **settings["digits"], **shared}
    curves = {**temperature.SETTINGS, **settings["temperature"], **shared}
    note = ""
    try:
        source = load_data(shapes["data"], root=settings["root"])
    except OptGeomError as reason:
        note = f"{shapes['data']} is not there ({reason}); the digits took its place."
        shapes["data"] = curves["data"] = "digits"
        curves["measured"] = temperature.SETTINGS["measured"]
    else:
        if shapes["data"] != "digits":
            counts = og.ClassDistribution.from_profile(settings["profile"])
            shapes["counts"] = make_long_tailed(source, counts).counts.tolist()
    name = torch.cuda.get_device_name() if settings["device"] == "cuda" else "CPU"
    return {
        "device": name,
        "note": note,
        "digits": {"settings": shapes, **digits.run(shapes)},
        "temperature": {"settings": curves, **temperature.run(curves)},
    }


def markdown(results: Results) -> str:
    if results["device"] is None:
        return "**Not run: no CUDA device** on the machine that made this page. Nothing is claimed at this scale."
    parts = [f"On {results['device']}. {results['note']}".strip()]
    parts += [digits.markdown(results["digits"]), temperature.markdown(results["temperature"])]
    return "\n\n".join(parts)
