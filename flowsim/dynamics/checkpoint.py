"""The state of a long run on disk, from which it goes on bit for bit."""

import hashlib
import os
import tempfile
import time
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

State = TypeVar("State")

_MAGIC = b"flowsim checkpoint 1\n"


class Checkpoint:
    """A file that holds the latest state of one run, and knows which run that is.

    It is written whole or not at all, at most once in `seconds`, and at the end. `request` is all that determines the
    run: its arrays are hashed, value by value, together with the versions that compute it.
    """

    def __init__(self, path: str | os.PathLike, request: PyTree, seconds: float):
        self.path, self.seconds = Path(path), seconds
        self._identity = _identity(request)
        self._saved_at = time.monotonic()

    def load(self, fresh: State) -> State:
        """Return the state in the file, placed like `fresh`, or `fresh` if there is no file.

        Raises `ValueError` for a file that belongs to another run, or is no checkpoint.
        """
        if not self.path.exists():
            return fresh
        with self.path.open("rb") as file:
            if file.readline() != _MAGIC:
                raise ValueError(f"{self.path} is not a checkpoint of flowsim: choose another file")
            if file.readline().strip() != self._identity:
                raise ValueError(
                    f"{self.path} is the checkpoint of a run with another network, problem, options or versions: "
                    "choose another file, or delete it to begin anew"
                )
            try:
                stored = eqx.tree_deserialise_leaves(file, fresh)
            except (RuntimeError, ValueError, EOFError, OSError) as error:
                raise ValueError(f"{self.path} is damaged: delete it to begin anew") from error
        return jax.tree.map(_placed_like, stored, fresh)

    def save_if_due(self, state: PyTree, *, ended: bool) -> None:
        """Write the state if the run has ended or the last writing is long ago."""
        if ended or time.monotonic() - self._saved_at >= self.seconds:
            self._save(state)
            self._saved_at = time.monotonic()

    def _save(self, state: PyTree) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_MAGIC + self._identity + b"\n")
                eqx.tree_serialise_leaves(file, state)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, self.path)
        except BaseException:
            os.unlink(name)
            raise


def _placed_like(new: Any, old: Any) -> Any:
    # An array that nobody placed stays so: a change would compile the program once more.
    return jax.device_put(new, old.sharding) if isinstance(old, jax.Array) and old.committed else new


def _identity(request: PyTree) -> bytes:
    """Return a hash of everything that determines a run, as hexadecimal digits."""
    digest = hashlib.sha256()
    leaves, structure = jax.tree.flatten(request)
    digest.update(f"{jax.__version__} {jax.default_backend()} {structure}".encode())
    for leaf in leaves:
        array = np.asarray(leaf) if eqx.is_array(leaf) else None
        digest.update(repr(leaf if array is None else (array.dtype, array.shape)).encode())
        digest.update(b"" if array is None else np.ascontiguousarray(array).tobytes())
    return digest.hexdigest().encode()
