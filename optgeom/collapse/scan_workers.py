"""Where the units of a scan run: in this process, in processes of this machine (joblib), or on a dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from optgeom.errors import InvalidInputError, MissingDependencyError, SolverError

Unit = TypeVar("Unit")
Answer = TypeVar("Answer")
CONNECT_SECONDS = 10
_RESUME = "what was done is in the file, if one was given: run again to go on"


def run(function: Callable[[Unit], Answer], units: list[Unit], workers: int, dask: Any) -> Iterator[Answer]:
    """Yield ``function(unit)`` for every unit, in any order, while the others are being worked on.

    Parameters
    ----------
    function : callable
        Importable by its name; it must not raise, so that an exception means that a worker is lost.
    units : list
    workers : int
        Processes; 1 is this one.
    dask : str, distributed.Client or None

    Raises
    ------
    InvalidInputError
        No scheduler at the address.
    MissingDependencyError
        joblib or dask is not there.
    SolverError
        A worker process or the cluster was lost.
    """
    if dask is not None:
        return _on_cluster(function, units, dask)
    if workers == 1 or len(units) < 2:
        return map(function, units)
    return _in_processes(function, units, min(workers, len(units)))


def _in_processes(function: Callable[[Unit], Answer], units: list[Unit], workers: int) -> Iterator[Answer]:
    try:
        import joblib  # type: ignore[import-untyped]
        from joblib.externals.loky.process_executor import BrokenProcessPool  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingDependencyError("several workers need joblib: pip install 'optgeom[distributed]' (or workers=1)") from error
    # One BLAS thread each: the matrices are small, and the processes already keep every core busy.
    with joblib.parallel_config(backend="loky", n_jobs=workers, inner_max_num_threads=1):
        results = joblib.Parallel(return_as="generator", batch_size=1)(joblib.delayed(function)(unit) for unit in units)
        try:
            yield from results
        except BrokenProcessPool as error:
            raise SolverError(f"a worker process died, perhaps for want of memory ({_RESUME})") from error
        finally:
            results.close()


def _on_cluster(function: Callable[[Unit], Answer], units: list[Unit], dask: Any) -> Iterator[Answer]:
    try:
        import distributed as typed_in_part
    except ImportError as error:
        raise MissingDependencyError("a cluster needs dask: pip install 'optgeom[distributed]'") from error
    distributed: Any = typed_in_part
    client, own = dask, not isinstance(dask, distributed.Client)
    if own:
        try:
            client = distributed.Client(dask, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            raise InvalidInputError(f"`dask` must be the address of a scheduler, as tcp://host:8786; got {dask!r} ({error})") from error
    futures: list[Any] = []
    try:
        futures = client.map(function, units, pure=False)
        for future in distributed.as_completed(futures, loop=client.loop):
            if future.status != "finished":
                raise SolverError(f"the cluster lost its workers: {future.status}, {_reason(future)} ({_RESUME})")
            yield future.result()
            future.release()
    finally:
        client.cancel(futures)
        if own:
            client.close()


def _reason(future: Any) -> str:
    return " ".join(str(future.exception()).split()) if future.status == "error" else "no answer from the scheduler"
