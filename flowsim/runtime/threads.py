"""How many threads BLAS computes in: several that are busy with small matrices wait for one another."""

import functools
import importlib
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import jax
from threadpoolctl import ThreadpoolController


def knows_lapack() -> bool:
    """Tell whether the BLAS that JAX calls on a CPU is loaded: SciPy's, with the first program that needs it."""
    return _LAPACK in sys.modules


@contextmanager
def few_blas_threads(rows: int, *, lapack: bool = True, many_rows: int = 500) -> Iterator[None]:
    """Have BLAS compute in one thread meanwhile, for matrices of fewer than `many_rows` rows on a CPU.

    Where other programs keep the cores busy, a factorization of some hundred rows takes many times as long in two
    threads as in one, as they wait for one another; where the cores are idle, it takes 0.85 of the time with 300 rows,
    and 0.74 with 500 (`benchmarks/threads.py`). The limit is that of the whole process, and belongs to the thread of
    Python that asked first: others leave it as it is. What is computed has to be waited for inside. A library that is
    loaded meanwhile is not limited: LAPACK is loaded first, unless `lapack` says that it may not be needed.
    """
    wanted = rows < many_rows and jax.default_backend() == "cpu"
    if not (wanted and _LIMITED.acquire(blocking=False)):
        yield
        return
    try:
        if lapack:
            importlib.import_module(_LAPACK)
        with _controller(knows_lapack()).limit(limits=1, user_api="blas"):
            yield
    finally:
        _LIMITED.release()


_LAPACK = "scipy.linalg.cython_lapack"
_LIMITED = threading.Lock()


@functools.cache
def _controller(with_lapack: bool) -> ThreadpoolController:
    """Return the controller of the libraries that are loaded; to find them takes some milliseconds."""
    return ThreadpoolController()
