"""Observed positive pairs: latents (or features) of anchors and of their positives, one pair per row."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from optgeom._numerics import Array, read_only
from optgeom.errors import InvalidInputError
from optgeom.inputs import files
from optgeom.sampling import latents

LEAST_PAIRS = 20
FLAT = 1e-6  # smallest singular value of anchors, relative to the largest, that lie in a subspace


@dataclass(frozen=True, eq=False)
class Pairs:
    """Positive pairs on the sphere.

    Attributes
    ----------
    z, z_plus : (n, d)
        Unit rows.
    """

    z: Array
    z_plus: Array

    @staticmethod
    def of(z: npt.ArrayLike, z_plus: npt.ArrayLike) -> Pairs:
        """Check and keep copies.

        Raises
        ------
        InvalidInputError
            Rows that are not unit vectors, shapes that differ, fewer than 20 pairs, or anchors that all lie in a
            subspace.
        """
        first = latents.unit_rows("z", z)
        second = latents.unit_rows("z_plus", z_plus, first.shape[1])
        if first.shape != second.shape:
            raise InvalidInputError(
                f"`z_plus` must have the shape of z, {first.shape}; got {second.shape} (one positive per row)"
            )
        if first.shape[0] < LEAST_PAIRS:
            raise InvalidInputError(
                f"`z` must hold at least {LEAST_PAIRS} pairs; got {first.shape[0]} (fewer do not determine the law)"
            )
        _check_spread(first)
        return Pairs(read_only(first), read_only(second))

    @staticmethod
    def read(path: Path | str) -> Pairs:
        """From an .npz file with arrays `z` and `z_plus`."""
        try:
            with files.open_regular(path) as file:
                if not zipfile.is_zipfile(file):
                    raise ValueError("it is not a whole .npz file")
                file.seek(0)
                with files.opened(file) as archive:
                    if isinstance(archive, np.ndarray):  # a zip file with other bytes before it
                        raise ValueError("it holds a single array")
                    missing = {"z", "z_plus"} - set(archive)
                    if missing:
                        arrays = sorted(archive)
                        raise InvalidInputError(
                            f"`pairs` must be an .npz file with z and z_plus; got {arrays} (np.savez writes it)"
                        )
                    return Pairs.of(archive["z"], archive["z_plus"])
        except InvalidInputError:
            raise
        except (OSError, AttributeError, TypeError, *files.DAMAGE) as error:
            why = files.reason(error)
            raise InvalidInputError(
                f"`pairs` must be an .npz file with z and z_plus; cannot read {path} ({why})"
            ) from error

    @property
    def dimension(self) -> int:
        return int(self.z.shape[1])

    def __len__(self) -> int:
        return int(self.z.shape[0])


def _check_spread(anchors: Array) -> None:
    """Reject anchors in a subspace: latents are uniform on the sphere, so these are repeated or padded rows."""
    n, d = anchors.shape
    if n < 2 * d:
        return
    singular = np.linalg.svd(anchors, compute_uv=False)
    rank = int((singular > FLAT * singular[0]).sum())
    if rank < d:
        raise InvalidInputError(
            f"`z` must spread over the sphere in R^{d}; got anchors that span {rank} "
            f"dimension{'' if rank == 1 else 's'} (leave repeated rows and empty columns out)"
        )
