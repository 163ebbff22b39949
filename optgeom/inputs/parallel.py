"""Where units of work are done: in this process, in processes of this machine (joblib), or on a dask cluster."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import Any

from optgeom.errors import InvalidInputError, MissingDependencyError, SolverError

ADDRESS = re.compile(r"inproc://.+|(\w+://)?\S+:\d{1,5}")
CONNECT_SECONDS = 10


def run(
    function: Callable[..., Any],
    units: Sequence[Any],
    workers: int,
    dask: Any,
    *,
    shared: tuple[Any, ...] = (),
    in_order: bool = False,
    errors: tuple[type[Exception], ...] = (),
    remedy: str = "try fewer workers, or one",
) -> Iterator[Any]:
    """Yield ``function(*shared, unit)`` for every unit, while others are being worked on.

    Parameters
    ----------
    function : callable
        Importable by its name.
    units : sequence
    workers : int
        Processes; 1 is this one.
    dask : str, distributed.Client or None
        Address of a scheduler, or a client; replaces `workers`.
    shared : tuple
        What all units need; sent to a cluster once.
    in_order : bool
        In the order of the units, or, on a cluster, as they are done.
    errors : tuple of exception types
        What the function may raise about its unit; anything else means that a worker is lost.
    remedy : str
        What to do when a worker is lost, for the message.

    Raises
    ------
    errors
        What the function raised for the first such unit.
    InvalidInputError
        No scheduler at the address.
    MissingDependencyError
        joblib or dask is not there.
    SolverError
        A worker process or the cluster was lost.
    """
    if dask is None and (workers == 1 or len(units) < 2):
        return (function(*shared, unit) for unit in units)
    answering = _Answering(function, errors)
    if dask is not None:
        answers = _on_cluster(answering, shared, units, dask, in_order, remedy)
    else:
        answers = _in_processes(answering, shared, units, min(workers, len(units)), remedy)
    return _raised(answers)


class _Answering:
    """The function with its errors as answers, so that an exception means that a worker is lost."""

    def __init__(self, function: Callable[..., Any], errors: tuple[type[Exception], ...]) -> None:
        self.function, self.errors = function, errors

    def __call__(self, *given: Any) -> Any:
        try:
            return self.function(*given)
        except self.errors as error:
            return _Failed(error)


class _Failed:
    def __init__(self, error: Exception) -> None:
        self.error = error


def _raised(answers: Generator[Any, None, None]) -> Generator[Any, None, None]:
    # Closed at once where something is wrong: workers are not to go on until the garbage collector comes.
    with closing(answers):
        for answer in answers:
            if isinstance(answer, _Failed):
                raise answer.error
            yield answer


def _in_processes(
    function: Callable[..., Any], shared: tuple[Any, ...], units: Sequence[Any], workers: int, remedy: str
) -> Generator[Any, None, None]:
    try:
        import joblib  # type: ignore[import-untyped]
        from joblib.externals.loky.process_executor import BrokenProcessPool  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingDependencyError(
            "several workers need joblib: pip install 'optgeom[distributed]' (or workers=1)"
        ) from error
    # One BLAS thread each: the processes already keep every core busy.
    with joblib.parallel_config(backend="loky", n_jobs=workers, inner_max_num_threads=1):
        results = joblib.Parallel(return_as="generator", batch_size=1)(
            joblib.delayed(function)(*shared, unit) for unit in units
        )
        try:
            yield from results
        except BrokenProcessPool as error:
            raise SolverError(f"a worker process died, perhaps because memory ran out ({remedy})") from error
        finally:
            results.close()


def _on_cluster(
    function: Callable[..., Any], shared: tuple[Any, ...], units: Sequence[Any], dask: Any, in_order: bool, remedy: str
) -> Generator[Any, None, None]:
    try:
        import distributed as typed_in_part
    except ImportError as error:
        raise MissingDependencyError("a cluster needs dask: pip install 'optgeom[distributed]'") from error
    distributed: Any = typed_in_part
    client, own = dask, not isinstance(dask, distributed.Client)
    if own:
        # Given text that is not an address, a client is half made, and waited for when it is thrown away.
        if isinstance(dask, str) and not ADDRESS.fullmatch(dask):
            raise InvalidInputError(f"`dask` must be the address of a scheduler, as tcp://host:8786; got {dask!r}")
        try:
            client = distributed.Client(dask, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            raise InvalidInputError(
                f"`dask` must be the address of a scheduler, as tcp://host:8786; got {dask!r} ({error})"
            ) from error
    futures: list[Any] = []
    try:
        # As a list, since dask would look into a dict or take a future apart; by itself, so that it is not part of
        # every task.
        sent = client.scatter(list(shared), broadcast=True, hash=False) if shared else []
        futures = [client.submit(function, *sent, unit, pure=False) for unit in units]
        for future in futures if in_order else distributed.as_completed(futures, loop=client.loop):
            with client.as_current():  # `wait` would look for a default client, which an address alone does not make
                distributed.wait([future])
            if future.status != "finished":
                raise SolverError(f"the cluster lost its workers: {future.status}, {_reason(future)} ({remedy})")
            yield future.result()
            future.release()
    finally:
        client.cancel(futures)
        if own:
            client.close()


def _reason(future: Any) -> str:
    return " ".join(str(future.exception()).split()) if future.status == "error" else "no answer from the scheduler"
