"""Geometry on disk and as JSON: versioned, never pickled, written under a temporary name and renamed."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from optgeom._numerics import Array
from optgeom.certificates.certificate import Certificate
from optgeom.errors import InvalidInputError, MissingDependencyError
from optgeom.formatting import to_json
from optgeom.geometry import Geometry, SolverRun
from optgeom.inputs import files
from optgeom.inputs.classes import ClassDistribution, ClassGroups

FORMAT = "optgeom-geometry"
VERSION = 1
GRAM_CLASSES = 64
LISTED_CLASSES = 1000


def as_dict(geometry: Geometry, full: bool | None = None) -> dict[str, Any]:
    """The JSON object of `optgeom solve`."""
    listed = geometry.num_classes <= LISTED_CLASSES or bool(full)
    found: dict[str, Any] = {
        "num_classes": geometry.num_classes,
        "names": list(geometry.names) if listed else None,
        "loss": geometry.loss,
        "risk": geometry.risk,
        "rank": geometry.rank,
        "regime": geometry.regime,
        "min_angle_deg": geometry.min_angle_deg,
        "coincident_classes": [list(classes) for classes in geometry.coincident_classes],
        "num_near_coincident_pairs": geometry.num_near_coincident_pairs,
        "near_coincident_pairs": [list(pair) for pair in geometry.near_coincident_pairs],
        "certificate": geometry.certificate.as_dict(),
        "solver": {
            "name": geometry.solver.name,
            "iterations": geometry.solver.iterations,
            "seconds": geometry.solver.seconds,
        },
        "notes": [*geometry.classes.notes, *geometry.notes],
    }
    if listed:
        found["proportions"] = geometry.proportions.tolist()
    else:
        found["groups"] = [
            {
                "size": int(size),
                "proportion": float(geometry.proportions[np.argmax(geometry.index == group)]),
                "within_cosine": float(geometry.group_cosines[group, group]) if size > 1 else None,
            }
            for group, size in enumerate(geometry.group_sizes)
        ]
    if full or (full is None and geometry.num_classes <= GRAM_CLASSES):
        found["gram"] = geometry.gram.tolist()
    if geometry.dim is not None:
        found["dim"] = geometry.dim
    if geometry.bracket is not None:
        found["bracket"] = to_json(geometry.bracket)
        found["required_rank"] = geometry.required_rank
    return found


def _document(geometry: Geometry) -> dict[str, Any]:
    """Everything but the arrays."""
    given = geometry.classes._names
    return {
        "format": FORMAT,
        "version": VERSION,
        "names": None if given is None else list(given),
        "dropped": list(geometry.classes.dropped),
        "class_notes": list(geometry.classes.notes),
        "sampler_power": geometry.classes.sampler_power,
        "risk": geometry.risk,
        "rank": geometry.rank,
        "certificate": {
            key: repr(value) if isinstance(value, float) else value
            for key, value in dataclasses.asdict(geometry.certificate).items()
        },
        "loss": geometry.loss,
        "solver": {
            "name": geometry.solver.name,
            "iterations": geometry.solver.iterations,
            "seconds": geometry.solver.seconds,
        },
        "dim": geometry.dim,
        "bracket": geometry.bracket,
        "required_rank": geometry.required_rank,
        "notes": list(geometry.notes),
    }


def _arrays(geometry: Geometry) -> dict[str, np.ndarray[Any, Any]]:
    groups = geometry.classes.groups
    arrays: dict[str, np.ndarray[Any, Any]] = {
        "index": geometry.index,
        "group_sizes": geometry.group_sizes,
        "group_cosines": geometry.group_cosines,
        "class_index": groups.index,
        "class_sizes": groups.sizes,
        "class_proportions": groups.proportions,
        "kept": geometry.classes.kept,
    }
    if groups.counts is not None:
        arrays["class_counts"] = groups.counts
    return arrays


def save(geometry: Geometry, path: str | os.PathLike[str]) -> None:
    """See `Geometry.save`."""
    suffix = Path(path).suffix.lower()
    document, arrays = _document(geometry), _arrays(geometry)
    if suffix == ".json":
        document["arrays"] = {name: array.tolist() for name, array in arrays.items()}
        if geometry.num_classes <= GRAM_CLASSES:
            document["gram"] = geometry.gram.tolist()
        files.write_text(path, json.dumps(document))
    elif suffix == ".npz":
        buffer = io.BytesIO()
        np.savez_compressed(buffer, document=np.array(json.dumps(document)), **arrays)  # type: ignore[arg-type]
        files.write_bytes(path, buffer.getvalue())
    else:
        raise InvalidInputError(
            f"a geometry is saved as .npz or .json; got {str(path)!r} (prototypes alone: save_prototypes)"
        )


def load(path: str | os.PathLike[str]) -> Geometry:
    """See `Geometry.load`."""
    suffix = Path(path).suffix.lower()
    try:
        if suffix == ".json":
            document = json.loads(Path(path).read_text(encoding="utf-8"))
            raw = {name: np.array(values) for name, values in document["arrays"].items()}
        elif suffix == ".npz":
            with open(path, "rb") as stream, files.opened(stream) as stored:
                if isinstance(stored, np.ndarray):
                    raise InvalidInputError(f"{path} is not a geometry written by optgeom (a single array)")
                document = json.loads(str(stored["document"]))
                raw = {name: stored[name] for name in stored if name != "document"}
        else:
            raise InvalidInputError(f"a geometry is read from .npz or .json; got {str(path)!r}")
        if document.get("format") != FORMAT:
            raise InvalidInputError(f"{path} is not a geometry written by optgeom")
        if document.get("version") != VERSION:
            found = document.get("version")
            raise InvalidInputError(
                f"{path} has format version {found}; this optgeom reads version {VERSION} (upgrade optgeom)"
            )
        return _rebuild(document, raw)
    except FileNotFoundError:
        raise InvalidInputError(f"{path} does not exist") from None
    except InvalidInputError:
        raise
    except (OSError, AttributeError, TypeError, *files.DAMAGE) as error:
        why = files.reason(error)
        raise InvalidInputError(
            f"{path} is not a geometry written by optgeom ({type(error).__name__}: {why})"
        ) from error


def _rebuild(document: dict[str, Any], raw: dict[str, Any]) -> Geometry:
    counts = raw.get("class_counts")
    _check_sound(document, raw)
    groups = ClassGroups(
        raw["class_index"].astype(np.intp),
        raw["class_sizes"].astype(np.int64),
        raw["class_proportions"].astype(np.float64),
        None if counts is None else counts.astype(np.int64),
    )
    names = document["names"]
    classes = ClassDistribution(
        groups,
        tuple(document["dropped"]),
        tuple(document["class_notes"]),
        float(document["sampler_power"]),
        None if names is None else tuple(names),
        raw["kept"].astype(np.intp),
    )
    held = document["certificate"]
    certificate = Certificate(
        certified=bool(held["certified"]),
        gap=float(held["gap"]),
        lower_bound=float(held["lower_bound"]),
        primal_shift=float(held["primal_shift"]),
        backward_error=float(held["backward_error"]),
        tolerance=float(held["tolerance"]),
        scale=1 + abs(float(document["risk"])),
        unique=bool(held["unique"]),
        rank=int(document["rank"]),
        reason=str(held.get("reason", "")),
    )
    bracket = document["bracket"]
    return Geometry(
        classes,
        raw["index"].astype(np.intp),
        raw["group_sizes"].astype(np.int64),
        raw["group_cosines"].astype(np.float64),
        float(document["risk"]),
        int(document["rank"]),
        certificate,
        document["loss"],
        SolverRun(**document["solver"]),
        document["dim"],
        None if bracket is None else (float(bracket[0]), float(bracket[1])),
        tuple(document["notes"]),
        document["required_rank"],
    )


def _check_sound(document: dict[str, Any], raw: dict[str, Any]) -> None:
    """ValueError where the parts of a file do not fit together: it was damaged, or written by hand."""
    number = raw["class_index"].size
    for index, sizes in ((raw["class_index"], raw["class_sizes"]), (raw["index"], raw["group_sizes"])):
        whole = index.dtype.kind in "iu" and sizes.dtype.kind in "iu" and index.shape == (number,) and sizes.ndim == 1
        within = whole and number > 1 and index.min() >= 0 and index.max() < sizes.size
        if not within or not np.array_equal(np.bincount(index, minlength=sizes.size), sizes):
            raise ValueError("its groups of classes and their sizes differ")
    groups, cosines = raw["group_sizes"].size, raw["group_cosines"]
    if (
        cosines.shape != (groups, groups)
        or not np.all(np.abs(cosines) <= 1 + 1e-9)
        or not np.array_equal(cosines, cosines.T)
    ):
        raise ValueError("its cosines are no symmetric matrix of numbers from -1 to 1")
    shares = raw["class_proportions"]
    if (
        shares.shape != raw["class_sizes"].shape
        or not np.all(shares > 0)
        or not abs(shares @ raw["class_sizes"] - 1) <= 1e-9
    ):
        raise ValueError("its proportions are not positive with sum 1")
    counts, names = raw.get("class_counts", shares), document["names"]
    if counts.shape != shares.shape or raw["kept"].shape != (number,) or len(names or range(number)) != number:
        raise ValueError("its counts and names are not one for each class")
    if not (isinstance(document["loss"], dict) and isinstance(document["loss"]["name"], str)) or not all(
        map(_is_text, names or ())
    ):
        raise ValueError("its loss and its classes have no names")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def save_prototypes(geometry: Geometry, path: str | os.PathLike[str], dim: int | None = None) -> None:
    """See `Geometry.save_prototypes`."""
    suffix = Path(path).suffix.lower()
    writers = {".npy": _npy, ".npz": _npz, ".csv": _csv, ".pt": _torch, ".safetensors": _safetensors}
    if suffix not in writers:
        raise InvalidInputError(f"prototypes are saved as {', '.join(writers)}; got {str(path)!r}")
    files.write_bytes(path, writers[suffix](geometry.prototypes(dim), geometry.names))


def _npy(table: Array, names: tuple[str, ...]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, table, allow_pickle=False)
    return buffer.getvalue()


def _npz(table: Array, names: tuple[str, ...]) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, prototypes=table, names=np.array(names))
    return buffer.getvalue()


def _csv(table: Array, names: tuple[str, ...]) -> bytes:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["class", *(f"x{column}" for column in range(table.shape[1]))])
    writer.writerows([name, *map(repr, row)] for name, row in zip(names, table.tolist(), strict=True))
    return buffer.getvalue().encode("utf-8")


def _torch(table: Array, names: tuple[str, ...]) -> bytes:
    try:
        import torch
    except ImportError as error:
        raise MissingDependencyError("saving .pt needs PyTorch: pip install 'optgeom[torch]'") from error
    buffer = io.BytesIO()
    torch.save({"prototypes": torch.from_numpy(table), "names": list(names)}, buffer)
    return buffer.getvalue()


def _safetensors(table: Array, names: tuple[str, ...]) -> bytes:
    try:
        from safetensors.numpy import save as dump
    except ImportError as error:
        raise MissingDependencyError("saving .safetensors needs safetensors: pip install 'optgeom[io]'") from error
    return bytes(dump({"prototypes": np.ascontiguousarray(table)}, metadata={"names": json.dumps(list(names))}))
