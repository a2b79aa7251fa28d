"""Who computes the sweeps."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ..scenarios import ScenarioError, default_device
from ..sweeps import ClusterError, Workers, default_jobs, workers
from .jobs import Job


@contextmanager
def crew_for(jobs: Sequence[Job], options: argparse.Namespace) -> Iterator[Workers | None]:
    """Provide who computes the blocks of the sweeps among the jobs, `None` where there are none."""
    if not any(job.scenario.sweep for job in jobs):
        yield None
        return
    count = options.jobs or default_jobs()
    platform = default_device().platform
    if count > 1 and platform != "cpu":
        raise ScenarioError(f"--jobs {count}: one process has all of a {platform}; write --jobs 1, or --device cpu")

    def told(message: str) -> None:
        print(f"flowsim: --dask {options.dask}: {message}", file=sys.stderr, flush=True)

    try:
        with workers(count, dask=options.dask, device=options.device, notify=told) as crew:
            yield crew
    except ClusterError as error:
        raise ScenarioError(f"--dask {options.dask}: {error}") from None
    except ModuleNotFoundError as error:
        if error.name != "distributed":
            raise
        raise ScenarioError("--dask: needs Dask's distributed; write pip install 'flowsim[dask]'") from None
