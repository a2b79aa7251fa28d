"""The state of a long run on disk, from which it continues bit for bit."""

import hashlib
import os
import re
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import equinox as eqx
import jax
from jaxtyping import PyTree

from ..runtime.identity import identity_of
from ..runtime.paths import user_path

State = TypeVar("State")

_KIND = b"flowsim checkpoint "
# The number changes with the form of the file. Below it stand the identity of the run and the SHA-256 of that and of
# all the rest, which is the state.
_VERSION = _KIND + b"5\n"


class Checkpoint:
    """A file that holds the latest state of one run, and the identity of that run.

    It is written atomically, at most once in `seconds`, and at the end. `request` is all that determines the run
    (`identity_of`). Temporary files of processes that were killed are removed once they are `untouched` for so many
    seconds. Raises `ValueError` where no file could be written.
    """

    def __init__(self, path: str | os.PathLike, request: PyTree, seconds: float, untouched: float = 600.0):
        self.path, self.seconds = user_path(path), seconds
        _refuse_unwritable(self.path)
        self._identity, self._saved_at = identity_of(request).encode() + b"\n", time.monotonic()
        self._prefix = f".{self.path.name}."
        temporary = re.compile(re.escape(self._prefix) + r"\w{8}")  # as `tempfile` makes it
        for entry in self.path.parent.iterdir() if self.path.parent.is_dir() else ():
            if temporary.fullmatch(entry.name):
                with suppress(OSError):  # another process may have been faster
                    if time.time() - entry.stat().st_mtime > untouched:
                        entry.unlink()

    def load(self, begin: Callable[[], State]) -> State:
        """Return the state in the file, on the devices of `begin()`, or `begin()` itself if there is no file.

        Raises `ValueError` for a file that belongs to another run, is not a checkpoint, or is damaged.
        """
        try:
            with self.path.open("rb") as file:
                version = file.readline(len(_VERSION))
                if not version.startswith(_KIND):
                    raise ValueError(f"{self.path} is not a checkpoint of flowsim: choose another file")
                if version != _VERSION:
                    raise ValueError(
                        f"{self.path} is a checkpoint of another version of flowsim: delete it to begin anew"
                    )
                identity, digest = (file.read(len(self._identity)) for _ in range(2))
                state_at = file.tell()
                if digest != _digest(identity, file):
                    raise ValueError(f"{self.path} is damaged: delete it to begin anew")
                if identity != self._identity:
                    raise ValueError(
                        f"{self.path} is the checkpoint of a run with another network, problem, options or versions: "
                        "choose another file, or delete it to begin anew"
                    )
                file.seek(state_at)
                fresh = begin()
                stored = eqx.tree_deserialise_leaves(file, fresh)
        except FileNotFoundError:
            return begin()
        except (RuntimeError, EOFError, OSError, MemoryError) as error:
            raise ValueError(f"{self.path} cannot be read ({error}): delete it to begin anew") from error
        return jax.tree.map(_placed_like, stored, fresh)

    def save_if_due(self, state: PyTree, *, ended: bool) -> None:
        """Write the state if the run has ended, or the last write was `seconds` ago or more."""
        if not ended and time.monotonic() - self._saved_at < self.seconds:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=self._prefix)
        try:
            with os.fdopen(handle, "w+b") as file:
                file.write(_VERSION + self._identity)
                digest_at = file.tell()
                file.write(bytes(len(self._identity)))  # room for the digest, which is as long
                state_at = file.tell()
                eqx.tree_serialise_leaves(file, state)
                file.seek(state_at)
                digest = _digest(self._identity, file)
                file.seek(digest_at)
                file.write(digest)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, self.path)
        except BaseException:
            os.unlink(name)
            raise
        self._saved_at = time.monotonic()


def _digest(identity: bytes, rest: BinaryIO) -> bytes:
    """Return the SHA-256 of a line and of the rest of a file, as a line."""
    digest = hashlib.file_digest(rest, lambda: hashlib.sha256(identity))  # pyright: ignore[reportArgumentType]
    return digest.hexdigest().encode() + b"\n"


def _refuse_unwritable(path: Path) -> None:
    """Raise `ValueError` where no file of this name could be written."""
    if path.is_dir() or path.is_fifo():  # a pipe would be waited for
        what = "a folder" if path.is_dir() else "a pipe"
        raise ValueError(f"{path} is {what}: choose the name of a file for the checkpoint")
    nearest = next(parent for parent in path.absolute().parents if os.path.lexists(parent))
    if not nearest.is_dir():
        raise ValueError(f"{nearest} is not a folder: choose another place for the checkpoint")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise ValueError(f"{nearest} is a folder without permission to write: choose another place for the checkpoint")


def _placed_like(new: Any, old: Any) -> Any:
    # An array that nobody placed stays so: a change would compile the program once more.
    return jax.device_put(new, old.sharding) if isinstance(old, jax.Array) and old.committed else new
