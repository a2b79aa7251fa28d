"""Worker pools that compute the blocks: this process, spawned processes on this machine, or a Dask cluster.

Processes on one machine are the standard library's and not those of `distributed.LocalCluster`: that would make Dask a
dependency of every sweep, opens a port for a scheduler and for each worker, which a firewall or a batch job may forbid,
and starts a worker that dies anew, where a block that takes its process down is to be named.
"""

import multiprocessing
import os
import pickle
import signal
import threading
import time
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any

import jax

from ..kinds import reason_of
from ..runtime.compiling import keep_programs_in, programs_folder
from ..runtime.signals import ending_held
from ..scenarios.runner import default_device, environment
from .blocks import Block
from .cluster import SCHEDULER_GONE, ClusterError, await_a_worker, connect
from .compute import BlockResult, compute, failed_block

if TYPE_CHECKING:
    from distributed import Client, as_completed


class InProcess:
    """Computes the blocks one after the other, in this process."""

    elsewhere = False

    def results(self, groups: Iterable[Sequence[Block]]) -> Iterator[tuple[Block, BlockResult]]:
        """Yield every block with its result, in the order in which they are ready.

        Blocks of a group are begun before those of the next, which is taken when it is needed.
        """
        for block in chain.from_iterable(groups):
            yield block, compute(block, environment())


class BlockQueue:
    """The blocks that wait for a worker, those of the first group first.

    Every process compiles its own programs, one set for each structure. So a worker leaves a structure that another
    one is at alone while there is anything else to do, in a later group if need be.
    """

    def __init__(self, groups: Iterable[Sequence[Block]]):
        self._coming = enumerate(groups)
        self._waiting: list[tuple[int, Block]] = []
        self._latest: dict[int, Hashable] = {}

    def next_for(self, worker: int) -> Block | None:
        """Take the block that suits a worker best, the most costly of them; `None` if there is none."""
        others = {structure for one, structure in self._latest.items() if one != worker}
        # Groups are taken until there is a block of a structure that no other worker is at, or no group is left.
        while all(block.recipe.structure in others for _, block in self._waiting):
            number, group = next(self._coming, (0, None))
            if group is None:
                break
            self._waiting += [(number, block) for block in group]
        if not self._waiting:
            return None
        mine = self._latest.get(worker)

        def preference(entry: tuple[int, Block]) -> tuple:
            number, block = entry
            return block.recipe.structure in others, number, block.recipe.structure != mine, -block.cost

        best = min(self._waiting, key=preference)
        self._waiting.remove(best)
        self._latest[worker] = best[1].recipe.structure
        return best[1]

    def put_back(self, block: Block) -> None:
        """Have a block done again, before all others of its kind."""
        self._waiting.append((-1, block))


class Spawned:
    """Spawned processes, each with one block at a time; one that dies is replaced, and its block tried again.

    A block whose process died in all `attempts` has failed: it may be the one that kills.
    """

    elsewhere = True

    def __init__(self, count: int, device: str | None = None, *, attempts: int = 3):
        self._device, self._attempts = device, attempts
        self._closing = threading.Lock()
        self._closed = False
        # Not together with the first processes: the tracker of semaphores starts here, and lets go of SIGINT again.
        with ending_held(), _terminal_held():
            self._pools = [_pool(device) for _ in range(count)]

    def begin(self, most: int = 4) -> None:
        """Have the first processes do their imports while blocks are planned, of which there may be fewer."""
        with ending_held(), _terminal_held():
            for pool in self._pools[:most]:
                pool.submit(os.getpid)

    def results(self, groups: Iterable[Sequence[Block]]) -> Iterator[tuple[Block, BlockResult]]:
        """Yield blocks with their results as `InProcess` does."""
        queue = BlockQueue(groups)
        attempts: dict[int, int] = {}
        running: dict[Future, tuple[int, Block]] = {}
        while True:
            for worker in set(range(len(self._pools))) - {worker for worker, _ in running.values()}:
                block = queue.next_for(worker)
                if block is not None:
                    running[self._submit(worker, block)] = (worker, block)
            if not running:
                return
            for future in self._ended(running):
                worker, block = running.pop(future)
                try:
                    result = future.result()
                except BrokenProcessPool:
                    attempts[id(block)] = attempts.get(id(block), 0) + 1
                    if attempts[id(block)] < self._attempts:
                        queue.put_back(block)
                    else:
                        yield block, failed_block(block, f"its worker died {self._attempts} times")
                except Exception as error:
                    yield block, failed_block(block, reason_of(error))
                else:
                    yield block, result

    def close(self) -> None:
        """End the processes, whatever they are doing, and with them `results`, whoever waits for it."""
        with ending_held(), self._closing:
            self._closed = True
            for pool in self._pools:
                # From Python 3.14 on this is ProcessPoolExecutor.kill_workers.
                for process in list((getattr(pool, "_processes", None) or {}).values()):
                    process.kill()
        while self._pools:
            self._pools.pop().shutdown(cancel_futures=True)  # at once, as they are dead

    @staticmethod
    def _ended(running: Iterable[Future], *, poll_seconds: float = 0.1) -> set[Future]:
        done: set[Future] = set()
        while not done:
            with ending_held():
                done = wait(running, poll_seconds, FIRST_COMPLETED).done
        return done

    def _submit(self, worker: int, block: Block) -> Future:
        try:
            pickled = pickle.dumps(block)
        except Exception as error:  # of a kind of a user's own: a failure of this block
            failed: Future = Future()
            failed.set_exception(error)
            return failed
        with ending_held(), self._closing, _terminal_held():
            if self._closed:
                raise RuntimeError("the worker pool is closed")
            try:
                return self._pools[worker].submit(_compute_pickled, pickled, environment())
            except BrokenProcessPool:  # it died with its last block, or since
                self._pools[worker] = _pool(self._device)
                return self._pools[worker].submit(_compute_pickled, pickled, environment())


class OnDask:
    """The workers of a Dask cluster, which replaces those that die; whether any is left is looked at now and then."""

    elsewhere = True

    def __init__(self, client: "Client", notify: Callable[[str], None], *, look_seconds: float = 5.0):
        self._client, self._notify, self._look_seconds = client, notify, look_seconds

    def results(self, groups: Iterable[Sequence[Block]]) -> Iterator[tuple[Block, BlockResult]]:
        """Yield blocks with their results as `InProcess` does."""
        from distributed import as_completed

        here = environment()
        futures = {
            self._client.submit(_compute_pickled, pickle.dumps(block), here, pure=False, priority=-number): block
            for number, group in enumerate(groups)
            for block in group
        }
        ended = as_completed(futures, loop=self._client.loop)
        while not ended.is_empty():
            self._wait_for(ended)
            future = next(ended)
            block = futures[future]
            try:
                result = future.result()
            except CancelledError:
                raise ClusterError(SCHEDULER_GONE) from None
            except Exception as error:
                result = failed_block(block, reason_of(error))
            yield block, result
            future.release()

    def _wait_for(self, ended: "as_completed") -> None:
        """Wait until a block has ended, which none would if the workers had gone."""
        looked = time.monotonic()
        while not ended.has_ready():
            time.sleep(0.02)
            if time.monotonic() - looked > self._look_seconds:
                await_a_worker(self._client, self._notify)
                looked = time.monotonic()


Workers = InProcess | Spawned | OnDask


@contextmanager
def workers(
    jobs: int,
    *,
    dask: str | None = None,
    device: str | None = None,
    notify: Callable[[str], None] = lambda message: None,
) -> Iterator[Workers]:
    """Provide workers: a Dask cluster by its address, else `jobs` processes on a kind of `device`; one is this one.

    `notify` is called with what is waited for. Raises `ClusterError` for a cluster that cannot be used, and
    `ModuleNotFoundError` without the package.
    """
    if dask is not None:
        with connect(dask, notify) as client:
            yield OnDask(client, notify)
    elif jobs == 1:
        yield InProcess()
    else:
        spawned = Spawned(jobs, device)
        try:
            spawned.begin()
            yield spawned
        finally:
            spawned.close()


def default_jobs() -> int:
    """Return one job for each core that this process may use, one in all where an accelerator computes."""
    if default_device().platform != "cpu":
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _compute_pickled(block: bytes, expected: dict[str, Any]) -> BlockResult:
    """Compute a block in another process: one that cannot be read there fails alone, and does not end the process."""
    return compute(pickle.loads(block), expected)


def _pool(device: str | None) -> ProcessPoolExecutor:
    # Never fork: JAX has threads by now.
    spawn = multiprocessing.get_context("spawn")
    begin = {"initializer": _begin_worker, "initargs": (device, programs_folder())}
    return ProcessPoolExecutor(1, mp_context=spawn, **begin)


@contextmanager
def _terminal_held() -> Iterator[None]:
    """Hold back what a terminal sends to all processes while some are started: they keep held back what is so then.

    Else one that is still at its imports would print a traceback at Ctrl-C. The main process sees to their end.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGHUP])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin_worker(device: str | None, programs: str | None) -> None:
    """Leave the terminal to the main process, and end with it, however it ends."""
    warnings.filterwarnings("ignore", message="the weights are")  # the process that planned the sweep has warned
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if programs is not None and programs != programs_folder():  # what the environment says holds here already
        keep_programs_in(programs)
    if device is not None:
        jax.config.update("jax_default_device", jax.devices(device)[0])
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
