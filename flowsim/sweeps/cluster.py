"""A Dask cluster that can be worked with: a scheduler that answers, and workers with the versions of this process."""

import logging
import socket
import struct
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..kinds import reason_of
from ..scenarios.runner import environment

if TYPE_CHECKING:
    from distributed import Client


SCHEDULER_GONE = "the scheduler has gone; start one and run this again, which goes on where it stopped"


class ClusterError(RuntimeError):
    """A Dask cluster that cannot be used: the message says why, and what to do instead."""


def connect(address: str, notify: Callable[[str], None]) -> "Client":
    """Return a client of the cluster at this address; `notify` is called with what is waited for.

    Raises `ClusterError` for one that cannot be used, `ModuleNotFoundError` without the package.
    """
    client = _client(address)
    try:
        await_a_worker(client, notify)
        _check_versions(client)
    except BaseException:
        client.close()
        raise
    return client


def await_a_worker(client: "Client", notify: Callable[[str], None], *, seconds: int = 60) -> None:
    """Wait for a worker where there is none, and say so. Raises `ClusterError` where none comes."""
    if client.scheduler_info()["workers"]:
        return
    notify(f"the cluster has no workers; waiting {seconds} seconds for one")
    try:
        client.wait_for_workers(1, timeout=seconds)
    except (TimeoutError, OSError):
        message = f"no worker within {seconds} seconds; start some (dask worker ADDRESS) and run this again"
        raise ClusterError(message) from None


def _client(address: str, *, seconds: float = 10) -> "Client":
    """Return a client whose scheduler answered within some seconds."""
    from distributed import Client
    from distributed.comm.addressing import get_address_host_port, parse_address

    try:
        place = get_address_host_port(address)
    except ValueError as error:
        raise ClusterError(f"no address ({error}); write for instance tcp://localhost:8786") from None
    # A failing connection ends in one message, without tracebacks before it. Dask sets levels for some of its parts.
    for name in [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "distributed"]:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    if parse_address(address)[0] == "tcp":
        _check_service(*place, seconds)
    client = Client.__new__(Client)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of other versions, which are refused below
            client.__init__(address, timeout=seconds, set_as_default=False)
    except OSError as error:
        raise ClusterError(f"no answer ({error}); start a scheduler, or leave the option out") from None
    except Exception:  # whatever comes of a protocol that is another one
        client.status = "closed"  # else it would try to say farewell, and complain
        raise _not_a_scheduler() from None
    return client


def _check_service(host: str, port: int, seconds: float) -> None:
    """Raise `ClusterError` for what listens there and does not greet as a scheduler does, for which Dask would wait.

    A scheduler announces what it says first by its length in eight bytes, and that is short.
    """
    try:
        connection = socket.create_connection((host, port), seconds)
    except OSError:
        return  # as it may be about to start
    with connection:
        try:
            (length,) = struct.unpack("<Q", connection.recv(8, socket.MSG_WAITALL))
        except (OSError, struct.error):
            raise _not_a_scheduler() from None
    if not 0 < length < 2**24:
        raise _not_a_scheduler()


def _not_a_scheduler() -> ClusterError:
    return ClusterError(
        "what answers there is not a Dask scheduler; write the address that dask scheduler prints, "
        "for instance tcp://localhost:8786"
    )


def _check_versions(client: "Client") -> None:
    """Raise `ClusterError` where a worker has other versions, of Python or of a package, than this process has."""
    here = environment()
    try:
        there: Any = client.run(environment)
    except OSError:  # of a connection that is closed
        raise ClusterError(SCHEDULER_GONE) from None
    except Exception as error:
        reason = reason_of(error)
        raise ClusterError(f"its workers do not know flowsim ({reason}); install it there, as it is here") from None
    for worker, found in there.items():
        for name, value in here.items():
            if found.get(name) != value:
                raise ClusterError(
                    f"the worker {worker} has {name} {found.get(name)}, and this process has {value}; "
                    "install the same there"
                )
