"""Which arrays are embeddings, labels and group ids, and what they are turned into."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import numpy.typing as npt

from optgeom.errors import InvalidInputError
from optgeom.inputs.tables import listed

SHAPES = "(rows, dimensions) or (images, views, dimensions)"


def check_embeddings(what: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Refuse arrays that cannot be embeddings, from their header alone.

    Parameters
    ----------
    what : str
        Subject of the message, such as "`embeddings`" or "features.npy: the embeddings".
    shape : tuple of int
        Whole shape, all rows.
    dtype : numpy.dtype
        Type as stored.
    """
    if dtype.hasobject:
        raise InvalidInputError(
            f"{what} must be numbers; got Python objects, which need pickle and are never unpickled "
            "(save X.astype('float32') instead)"
        )
    if dtype.kind == "c":
        raise InvalidInputError(
            f"{what} must be real numbers; got {dtype} (give the real and imaginary parts as separate dimensions)"
        )
    if dtype.kind not in "fiub":
        raise InvalidInputError(
            f"{what} must be numbers; got values of type {dtype} (save X.astype('float32') instead)"
        )
    if len(shape) not in (2, 3):
        remedy = "one row per sample: X.reshape(-1, d)" if len(shape) < 2 else "flatten each row: X.reshape(len(X), -1)"
        raise InvalidInputError(f"{what} must have shape {SHAPES}; got shape {shape} ({remedy})")
    if 0 in shape:
        lacking = ("row", "dimension")[shape[0] > 0] if len(shape) == 2 or shape[0] == 0 else "view and dimension"
        raise InvalidInputError(
            f"{what} must have at least one {lacking}; got shape {shape} (check that the right file was saved)"
        )


def as_rows(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Rows as float16, float32 or float64 in native byte order; other numbers in the smallest that holds them."""
    if array.dtype.kind == "f" and array.dtype.itemsize <= 8:
        return array.astype(array.dtype.newbyteorder("="), copy=False)
    return array.astype(np.float32 if array.dtype.kind != "f" and array.dtype.itemsize <= 2 else np.float64)


def from_tensor(tensor: Any) -> npt.NDArray[Any]:
    """A torch tensor as an array; bfloat16, which numpy lacks, as float32, where each of its values is exact."""
    tensor = tensor.detach().cpu()
    if str(tensor.dtype) == "torch.bfloat16":
        tensor = tensor.float()
    return np.asarray(tensor.numpy())


def is_tensor(value: Any) -> bool:
    """Whether `value` is like a torch tensor, without an import of torch."""
    return hasattr(value, "detach") and hasattr(value, "cpu")


def from_bfloat16(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """The float32 values whose upper 16 bits are `bits`."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def column(what: str, values: Any) -> npt.NDArray[Any]:
    """Group ids as one array (n,), kinds not mixed by numpy; `what` is the subject of the message."""
    array = _plain(values)
    if array.ndim != 1:
        raise InvalidInputError(
            f"{what} must be one value per row; got shape {array.shape} (pass a one-dimensional array)"
        )
    return array


def label_column(what: str, values: Any) -> npt.NDArray[Any]:
    """Labels as one array (n,), or as a table (n, C), whose rows `ClassNames` converts (one-hot) or refuses."""
    array = _plain(values)
    if (
        array.dtype.kind == "O"
        and array.ndim == 1
        and all(isinstance(value, (list, tuple, np.ndarray)) for value in array)
    ):
        with contextlib.suppress(ValueError):  # rows of different lengths stay as they are, and are refused by row
            array = np.array(array.tolist())
    if array.ndim not in (1, 2) or (array.ndim == 2 and array.shape[1] == 0):
        raise InvalidInputError(
            f"{what} must be one value per row; got shape {array.shape} (pass a one-dimensional array)"
        )
    return array


def _plain(values: Any) -> npt.NDArray[Any]:
    """As an array; a column (n, 1) is flattened."""
    if is_tensor(values):
        values = from_tensor(values)
    if isinstance(values, (list, tuple)):
        # numpy turns ["a", nan] into text, which would make "nan" a class.
        array = listed([value.tolist() if is_tensor(value) else value for value in values])
    else:
        array = np.asarray(values)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.dtype.kind == "O" and all(isinstance(value, str) for value in array.tolist()):
        array = array.astype(str)
    return array


def no_rows(path: str) -> InvalidInputError:
    """Error for a file without rows."""
    return InvalidInputError(
        f"{path}: the embeddings must have at least one row; got none (check that the right file was saved)"
    )


def unreadable(path: str, error: OSError) -> InvalidInputError:
    """Error for a file that cannot be opened."""
    reason = error.strerror or " ".join(str(error).split())
    return InvalidInputError(f"cannot read the embeddings file {path}: {reason} (check the path)")


def check_counts(prefix: str, labels: Any, groups: Any, rows: int) -> None:
    """Refuse labels and group ids given apart from the embeddings that are not as many as their `rows` rows."""
    for what, given in (("`labels`", labels), ("`group_ids`", groups)):
        if given is not None and len(given) != rows:
            raise counts_differ(f"{prefix}{what}", len(given), rows)


def counts_differ(what: str, have: int, rows: int) -> InvalidInputError:
    """Error for `have` labels (or group ids) beside `rows` embeddings."""
    value = "group" if "group" in what else "label"
    if have < rows:
        first = f"row {have} has no {value} (write one {value} per row, in the order of the embeddings)"
    else:
        first = f"{value} {rows} has no row (is a header line or another split among them?)"
    return InvalidInputError(f"{what} has {have} rows but the embeddings have {rows}: {first}")
