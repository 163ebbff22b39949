"""Where the shards of a source are read: in this process, in processes of this machine (joblib), or on a dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from typing import Any, TypeVar

from optgeom.errors import InvalidInputError, MissingDependencyError, OptGeomError, SolverError

Unit = TypeVar("Unit")
Common = TypeVar("Common")
Answer = TypeVar("Answer")
CONNECT_SECONDS = 10


def run(
    function: Callable[[Common, Unit], Answer], common: Common, units: list[Unit], workers: int, dask: Any
) -> Generator[Answer, None, None]:
    """Yield ``function(common, unit)`` for every unit, in the order of the units, while later ones are being worked on.

    Parameters
    ----------
    function : callable
        Importable by its name.
    common : object
        What all units need; sent to a cluster once.
    units : list
    workers : int
        Processes; 1 is this one.
    dask : str, distributed.Client or None
        Replaces `workers`.

    Raises
    ------
    OptGeomError, OSError
        What the function raised for the first of the units that failed.
    InvalidInputError
        No scheduler at the address.
    MissingDependencyError
        joblib or dask is not there.
    SolverError
        A worker process or the cluster was lost.
    """
    if dask is not None:
        answers: Generator[Any, None, None] = _on_cluster(function, common, units, dask)
    elif workers == 1 or len(units) < 2:
        return (function(common, unit) for unit in units)
    else:
        answers = _in_processes(function, common, units, min(workers, len(units)))
    return _raised(answers)


def _raised(answers: Generator[Any, None, None]) -> Generator[Any, None, None]:
    # Closed at once where something is wrong: workers are not to go on until the garbage collector comes.
    with closing(answers):
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
            yield answer


def _answer(function: Callable[[Common, Unit], Answer], common: Common, unit: Unit) -> Answer | Exception:
    """What is wrong with the data is an answer, so that an exception means that a worker is lost."""
    try:
        return function(common, unit)
    except (OptGeomError, OSError) as error:
        return error


def _in_processes(function: Callable[[Common, Unit], Any], common: Common, units: list[Unit], workers: int) -> Generator[Any, None, None]:
    try:
        import joblib  # type: ignore[import-untyped]
        from joblib.externals.loky.process_executor import BrokenProcessPool  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingDependencyError("several workers need joblib: pip install 'optgeom[distributed]' (or workers=1)") from error
    # One BLAS thread each: the processes already keep every core busy.
    with joblib.parallel_config(backend="loky", n_jobs=workers, inner_max_num_threads=1):
        results = joblib.Parallel(return_as="generator", batch_size=1)(joblib.delayed(_answer)(function, common, unit) for unit in units)
        try:
            yield from results
        except BrokenProcessPool as error:
            raise SolverError("a worker process died, perhaps for want of memory (try fewer workers)") from error
        finally:
            results.close()


def _on_cluster(function: Callable[[Common, Unit], Any], common: Common, units: list[Unit], dask: Any) -> Generator[Any, None, None]:
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
        # In a list, since dask would look into a dict or take a future apart; by itself, so that it is not part of every task.
        shared = client.scatter([common], broadcast=True, hash=False)[0]
        futures = [client.submit(_answer, function, shared, unit, pure=False) for unit in units]
        for position, future in enumerate(futures):
            distributed.wait([future])
            if future.status != "finished":
                raise SolverError(f"the cluster lost its workers: {future.status}, {_reason(future)} (start it again, and then this)")
            yield future.result()
            future.release()
            futures[position] = None
    finally:
        client.cancel([future for future in futures if future is not None])
        if own:
            client.close()


def _reason(future: Any) -> str:
    return " ".join(str(future.exception()).split()) if future.status == "error" else "no answer from the scheduler"
